"""games/base.py: what a search may spend."""

from __future__ import annotations

from math import inf, nan

import pytest

from td_loop.errors import UsageError
from td_loop.games.base import Budget


@pytest.mark.parametrize("seconds", [0.0, -1.0, nan, inf])
def test_seconds_out_of_range_are_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="seconds must be above 0"):
        Budget(seconds=seconds)
    with pytest.raises(UsageError, match="seconds must be above 0"):
        Budget(seconds=seconds, evals=10)


@pytest.mark.parametrize("evals", [0, -5])
def test_evals_out_of_range_are_refused(evals: int) -> None:
    with pytest.raises(UsageError, match="evals must be 1 or more"):
        Budget(evals=evals)


def test_a_budget_without_a_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="set its seconds, its evals or both"):
        Budget()
