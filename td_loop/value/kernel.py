"""V as numba kernels: the score of one seat, and the softmax over the seats alive.

`F` features, `K` knots a feature. Nothing here allocates, so search kernels may call it in their innermost loop.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.kernels import inlined, kernel

Floats = npt.NDArray[np.floating[Any]]


@inlined
def segment_of(n_players: int) -> int:
    """Row of `coef` that serves a game of `n_players` seats: 0 for 2, 1 for 3 and 4 (SEGMENT_PLAYERS)."""
    return 0 if n_players <= 2 else 1


@inlined
def knot_interval(x: float, knots: Floats) -> int:
    """The i in 0..K-2 whose interval [knots[i], knots[i+1]) holds `x`; the end intervals take what lies beyond.

    Counting the knots passed looks slower than halving, but it has no branch that depends on the data and runs in
    SIMD: with K = 16 it takes 4 ns a feature where a binary search takes 19.
    """
    passed: int = 0
    for j in range(1, knots.shape[0] - 1):
        passed += int(x >= knots[j])
    return passed


@inlined
def knot_fraction(x: float, knots: Floats, i: int) -> float:
    """How far `x` is from knot i to knot i+1, clamped to [0, 1]: the spline is constant beyond its end knots."""
    t: float = (x - knots[i]) / (knots[i + 1] - knots[i])
    return min(max(t, 0.0), 1.0)


@inlined
def seat_score(features_row: Floats, knots: Floats, coef_segment: Floats) -> float:
    """Score of one seat: the sum over features of a piecewise-linear spline.

    Args:
        features_row: [F], finite.
        knots: f64[F, K], strictly increasing along K.
        coef_segment: f64[F, K], `coef[segment_of(n_players)]`.
    """
    total = 0.0
    for f in range(features_row.shape[0]):
        x = np.float64(features_row[f])
        i = knot_interval(x, knots[f])
        t = knot_fraction(x, knots[f], i)
        total += (1.0 - t) * coef_segment[f, i] + t * coef_segment[f, i + 1]
    return total


@inlined
def softmax_alive(scores: Floats, alive: npt.NDArray[np.bool_], out: Floats) -> None:
    """Write softmax of `scores` over the seats alive to `out`, exactly 0 at the others. All three: [4].

    With nobody alive `out` is all zero.
    """
    top = -math.inf
    for p in range(scores.shape[0]):
        if alive[p] and scores[p] > top:
            top = scores[p]
    total = 0.0
    for p in range(scores.shape[0]):
        out[p] = math.exp(scores[p] - top) if alive[p] else 0.0
        total += out[p]
    if total > 0.0:
        for p in range(scores.shape[0]):
            out[p] /= total


@kernel
def batch_scores(features: Floats, n_players: npt.NDArray[Any], knots: Floats, coef: Floats, out: Floats) -> None:
    """Write the score of every seat of every row to `out` f64[B, 4]; see `evaluate.scores` for the shapes."""
    for b in range(features.shape[0]):
        segment = coef[segment_of(n_players[b])]
        for p in range(features.shape[1]):
            out[b, p] = seat_score(features[b, p], knots, segment)


@kernel
def batch_softmax(scores: Floats, alive: npt.NDArray[np.bool_], out: Floats) -> None:
    """`softmax_alive` of every row. All three: [B, 4]."""
    for b in range(scores.shape[0]):
        softmax_alive(scores[b], alive[b], out[b])


@kernel
def batch_positions(features: Floats, knots: Floats, interval: npt.NDArray[np.int8], fraction: Floats) -> None:
    """Write the knot interval and the fraction of every feature of N rows: features [N, F] -> i8[N, F], [N, F]."""
    for n in range(features.shape[0]):
        for f in range(features.shape[1]):
            x = np.float64(features[n, f])
            i = knot_interval(x, knots[f])
            interval[n, f] = i
            fraction[n, f] = knot_fraction(x, knots[f], i)
