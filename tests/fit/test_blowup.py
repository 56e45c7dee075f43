from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from td_loop.fit.blowup import BlowupGuard
from td_loop.fit.data import Targets
from td_loop.fit.metrics import mean_nll
from td_loop.value.model import SplineValue
from tests.synthetic import games, value_function

G = games(3, 20, 6)
VAL = Targets(G.features, G.n_players, G.alive, G.outcome)
V = value_function(3)


def scaled(by: Any) -> SplineValue:
    return SplineValue(V.knots, by * V.coef, V.feature_names, V.meta)


def test_the_threshold_itself_is_allowed() -> None:
    guard = BlowupGuard(V, VAL, tau=0.25)
    assert guard.threshold == pytest.approx(1.25 * guard.val_mc_nll(V))
    assert guard.check(guard.threshold, 0, 1) is None


@pytest.mark.parametrize(("val", "reason"), [(math.nan, "not_finite"), (math.inf, "not_finite"), (1e9, "blowup")])
def test_above_it_or_no_number_aborts_and_says_where(val: float, reason: str) -> None:
    aborted = BlowupGuard(V, VAL, tau=0.25).check(val, 3, 77)
    assert aborted is not None
    assert aborted.reason == f"val_mc_nll_{reason}"
    assert (aborted.epoch, aborted.step) == (3, 77)


def test_the_screen_finds_a_blown_up_value_function_and_passes_a_good_one() -> None:
    guard = BlowupGuard(V, VAL, tau=0.25)
    assert guard.screen(V, 0, 16) is None
    aborted = guard.screen(scaled(-50.0), 1, 80)
    assert aborted is not None
    assert aborted.val_mc_nll == guard.val_mc_nll(scaled(-50.0))


def test_all_rows_decide_when_only_the_sample_looks_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td_loop.fit.blowup.SCREEN_ROWS", 1)
    guard = BlowupGuard(V, VAL, tau=0.25)
    first = VAL.take(np.array([0]))
    factors = np.linspace(-3, 3, 61)
    on_first = np.array([mean_nll(scaled(by), first) for by in factors])
    on_all = np.array([mean_nll(scaled(by), VAL) for by in factors])
    looks_bad = on_first > 1.25 * on_first[factors == 1]
    is_bad = on_all > guard.threshold
    assert (looks_bad & ~is_bad).any()
    for by, aborts in zip(factors, looks_bad & is_bad, strict=True):
        assert (guard.screen(scaled(by), 0, 16) is not None) == aborts
