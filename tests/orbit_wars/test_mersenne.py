"""Draws are those of `random.Random`."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.orbit_wars import mersenne
from td_loop.kernels import allocating


@allocating
def _draw(key: np.ndarray, n: int, low: int, high: int) -> np.ndarray:
    mt = mersenne.seeded(key)
    out = np.empty((n, 2))
    for i in range(n):
        out[i, 0] = mersenne.uniform(mt, 0.75, 93.5)
        out[i, 1] = mersenne.randint(mt, low, high)
    return out


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(-(2**70), 2**70)
    | st.text(max_size=20)
    | st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**31 - 1]),
    low=st.integers(-3, 5),
    width=st.integers(0, 100) | st.just(2**31 - 1),
)
def test_draws_equal_those_of_cpython(seed: int | str, low: int, width: int) -> None:
    rng = random.Random(seed)
    n = 700  # beyond one refill of the 624 words
    expected = [[rng.uniform(0.75, 93.5), rng.randint(low, low + width)] for _ in range(n)]
    assert _draw(mersenne.seed_key(seed), n, low, low + width).tolist() == expected
