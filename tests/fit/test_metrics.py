from __future__ import annotations

import math

import numpy as np
import pytest

from td_loop.fit.data import Targets
from td_loop.fit.metrics import constant_nll, mean_nll, nll, nll_by_segment
from td_loop.value.evaluate import evaluate
from td_loop.value.model import SplineValue
from tests.synthetic import games, value_function

G = games(3, 20, 6)
ROWS = Targets(G.features, G.n_players, G.alive, G.outcome)
V = value_function(3)
NONE = np.zeros(len(ROWS), np.bool_)


def test_it_is_the_cross_entropy_of_v() -> None:
    v = np.where(ROWS.target > 0, evaluate(V, G.features, G.n_players, G.alive), 1.0)
    assert np.allclose(nll(V, ROWS), -(ROWS.target * np.log(v)).sum(axis=1))
    assert mean_nll(V, ROWS) == pytest.approx(nll(V, ROWS).mean())


def test_no_rows_have_no_loss() -> None:
    assert mean_nll(V, ROWS.take(NONE)) is None


def test_certain_and_wrong_is_large_but_finite() -> None:
    coef = np.zeros_like(V.coef)
    coef[:, 0, -1] = 5000.0
    sure = SplineValue(V.knots, coef, V.feature_names, V.meta)
    x = np.zeros((1, 4, 3), np.float32)
    x[0, 0, 0] = 100.0
    row = Targets(
        x, np.array([2], np.int8), np.array([[1, 1, 0, 0]], np.bool_), np.array([[0, 1, 0, 0]], np.float32)
    )
    loss = mean_nll(sure, row)
    assert loss is not None
    assert 1000 < loss < 1e9


def test_scores_that_overflow_are_reported_as_nan() -> None:
    broken = SplineValue(V.knots, np.full_like(V.coef, 1e308), V.feature_names, V.meta)
    assert math.isnan(mean_nll(broken, ROWS) or 0.0)


def test_the_constant_predictor_is_v_without_curves() -> None:
    flat = SplineValue(V.knots, np.zeros_like(V.coef), V.feature_names, V.meta)
    assert constant_nll(ROWS) == pytest.approx(mean_nll(flat, ROWS))


def test_segments_are_told_apart() -> None:
    two = ROWS.take(G.n_players == 2)
    assert nll_by_segment(V, two) == {"2P": mean_nll(V, two), "4P": None}
