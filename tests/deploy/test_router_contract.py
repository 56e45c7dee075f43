"""Percentages that a back end cannot express."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.routing.contract import whole_steps
from td_loop.errors import UsageError

STEPS = st.sampled_from([0.01, 1.0])


@pytest.mark.parametrize(
    ("asked", "step", "given_"),
    [
        (0.0, 1.0, 0.0),
        (0.2, 1.0, 1.0),
        (5.0, 1.0, 5.0),
        (5.9, 1.0, 5.0),
        (99.99, 1.0, 99.0),
        (100.0, 1.0, 100.0),
        (0.29, 0.01, 0.29),
        (12.345, 0.01, 12.34),
        (0.001, 0.01, 0.01),
        (99.999, 0.01, 99.99),
    ],
)
def test_shares_are_rounded_down_but_not_to_nothing(asked: float, step: float, given_: float) -> None:
    assert whole_steps(asked, step) == given_


@given(st.floats(0, 100), STEPS)
def test_zero_and_all_are_reached_only_when_asked_for(asked: float, step: float) -> None:
    got = whole_steps(asked, step)
    assert (got == 0.0) == (asked == 0.0)
    assert (got == 100.0) == (asked >= 100.0 - 1e-6)
    assert got <= max(asked, step) + 1e-6
    assert got > asked - step - 1e-6


@given(st.floats(0, 100), STEPS)
def test_what_came_out_stays(asked: float, step: float) -> None:
    got = whole_steps(asked, step)
    assert whole_steps(got, step) == got


@pytest.mark.parametrize("bad", [-0.1, 100.1, math.nan, math.inf])
@pytest.mark.parametrize("step", [0.01, 1.0])
def test_what_is_no_percentage_is_refused(bad: float, step: float) -> None:
    with pytest.raises(UsageError, match="percentage"):
        whole_steps(bad, step)
