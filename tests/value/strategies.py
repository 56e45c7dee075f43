"""Hypothesis strategies for value functions and batches of states."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from td_loop.value.model import FORMAT_VERSION, SplineValue
from tests.synthetic import feature_names

MODERATE = st.floats(-100, 100, allow_nan=False, width=32)


@st.composite
def values(draw: st.DrawFn, *, max_features: int = 4, max_knots: int = 32) -> SplineValue:
    """A value function with strictly increasing knots."""
    n_features, n_knots = draw(st.integers(1, max_features)), draw(st.integers(2, max_knots))
    first = draw(hnp.arrays(np.float64, (n_features, 1), elements=MODERATE))
    gaps = draw(hnp.arrays(np.float64, (n_features, n_knots - 1), elements=st.floats(1e-3, 10)))
    knots = first + np.concatenate((np.zeros((n_features, 1)), np.cumsum(gaps, axis=1)), axis=1)
    coef = draw(hnp.arrays(np.float64, (2, n_features, n_knots), elements=st.floats(-3, 3)))
    return SplineValue(knots, coef, feature_names(n_features), {"format_version": FORMAT_VERSION, "gamma": 0.97})


@st.composite
def batches(draw: st.DrawFn, v: SplineValue) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features f32[B, 4, F] (on knots, between and beyond them), n_players i8[B], alive bool[B, 4]."""
    n = draw(st.integers(1, 6))
    x = draw(hnp.arrays(np.float32, (n, 4, len(v.knots)), elements=MODERATE))
    if draw(st.booleans()):
        knot = draw(st.integers(0, v.knots.shape[1] - 1))
        x[0] = v.knots[:, knot].astype(np.float32)
    players = draw(hnp.arrays(np.int8, n, elements=st.integers(2, 4)))
    dead = draw(hnp.arrays(np.bool_, (n, 4)))
    survivor = draw(hnp.arrays(np.int8, n, elements=st.integers(0, 1)))
    alive = (np.arange(4) < players[:, None]) & (~dead | (np.arange(4) == survivor[:, None]))
    return x, players, alive
