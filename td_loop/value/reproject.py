"""Move a value function onto new knots by least squares, and measure the change. Shapes as in `model.py`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.value.evaluate import evaluate
from td_loop.value.kernel import batch_positions
from td_loop.value.model import SEGMENT_PLAYERS, SplineValue

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_PRIOR_ROWS = 1e-3
"""Each new knot counts as this many rows at its own place: where there are no data, the old curve is copied."""


class Change(NamedTuple):
    """How far V moved, over all seats alive of some rows."""

    largest: float
    mean: float


def reproject(
    v: SplineValue,
    knots: FloatArray,
    features: npt.NDArray[Any],
    n_players: npt.NDArray[Any],
    alive: BoolArray,
) -> SplineValue:
    """The value function on `knots` f64[F, K'] nearest to `v` on the data, curve by curve.

    Every curve of a segment is fitted on the seats alive of that segment's rows: minimise
    sum_x (new(x) - old(x))^2 + _PRIOR_ROWS * sum_k (new(knot_k) - old(knot_k))^2. Onto its own knots a curve
    comes back as it was. `meta` is taken over unchanged.
    """
    n_features, n_knots = knots.shape
    coef = np.empty((len(SEGMENT_PLAYERS), n_features, n_knots))
    four = n_players > SEGMENT_PLAYERS[0]
    for s, rows in enumerate((~four, four)):
        x = np.ascontiguousarray(features[rows][alive[rows]])  # [N, F]
        interval = np.empty(x.shape, dtype=np.int8)
        fraction = np.empty(x.shape)
        batch_positions(x, knots, interval, fraction)
        for f in range(n_features):
            at_data = _curve(x[:, f].astype(np.float64), v.knots[f], v.coef[s, f])
            at_knots = _curve(knots[f], v.knots[f], v.coef[s, f])
            # The fit is of the difference from the old curve at the new knots, so that identity is exact.
            i, t = interval[:, f].astype(np.int64), fraction[:, f]
            rest = at_data - ((1.0 - t) * at_knots[i] + t * at_knots[i + 1])
            coef[s, f] = at_knots + _least_squares(i, t, rest, n_knots)
    return SplineValue(knots=knots, coef=coef, feature_names=v.feature_names, meta=dict(v.meta))


def _curve(x: FloatArray, knots: FloatArray, coef: FloatArray) -> FloatArray:
    """One spline at `x`: linear between knots, constant outside."""
    return np.interp(x, knots, coef)


def _least_squares(i: npt.NDArray[np.int64], t: FloatArray, y: FloatArray, n_knots: int) -> FloatArray:
    """Solve for the coefficients [K] whose spline at positions (i, t) is nearest to `y`."""

    def total(at: npt.NDArray[np.int64], weight: FloatArray) -> FloatArray:
        return np.bincount(at, weight, n_knots).astype(np.float64)

    diagonal = total(i, (1 - t) ** 2) + total(i + 1, t**2) + _PRIOR_ROWS
    beside = total(i, (1 - t) * t)[:-1]
    normal = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    return np.asarray(np.linalg.solve(normal, total(i, (1 - t) * y) + total(i + 1, t * y)))


def change_of_value(
    before: SplineValue,
    after: SplineValue,
    features: npt.NDArray[Any],
    n_players: npt.NDArray[Any],
    alive: BoolArray,
) -> Change:
    """Largest and mean absolute difference of V over the seats alive of the rows given (at least one)."""
    moved = evaluate(after, features, n_players, alive) - evaluate(before, features, n_players, alive)
    moved = np.abs(moved[alive])
    return Change(largest=float(moved.max()), mean=float(moved.mean()))
