"""Where the knots stand: derived as quantiles of the data, and how well they still cover other data.

`R` rows, `F` features, `K` knots. Only seats alive count: the features of the others mean nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.value.model import SEGMENT_PLAYERS

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_TAIL = 0.001
"""The end knots stand at this quantile and its mirror image: one freak state must not stretch an end interval."""
_BOTTOM_ATOM = 0.2
"""From this share of equal lowest values on, the first *interior* knot stands on them (see `knots_of`)."""


def derive_knots(features: npt.NDArray[Any], alive: BoolArray, n_knots: int) -> FloatArray:
    """Knots of every feature as quantiles of what the seats alive show.

    Args:
        features: f32[R, 4, F], R >= 1 with at least one seat alive, finite.
        alive: bool[R, 4].
        n_knots: K >= 3.

    Returns:
        f64[F, K], strictly increasing along K whatever the data: ties, constants, fewer values than knots.
    """
    assert n_knots >= 3, n_knots
    assert alive.any(), "no seat alive in any row: nothing to derive knots from"
    rows = features[alive].astype(np.float64)  # [N, F]
    return np.stack([knots_of(rows[:, f], n_knots) for f in range(rows.shape[1])])


def knots_of(x: FloatArray, n_knots: int) -> FloatArray:
    """Knots of one feature: f64[N] -> f64[K], strictly increasing.

    Plain quantiles repeat where many values are equal (no fleet under way: 0). So the weight of a value is capped
    at the share of one knot, and the knots that this frees go where the data differ. What is still missing (few
    distinct values) halves the widest intervals.

    A heavy lowest value gets the first interior knot, with an end knot below it: "below the first interior knot"
    then means what the drift monitor wants to hear, data where there was none, and not the everyday 0.
    """
    values, counts = np.unique(x, return_counts=True)
    heavy_bottom = counts[0] >= _BOTTOM_ATOM * x.size
    wanted = n_knots - 1 if heavy_bottom else n_knots
    knots = _fill(_quantile_values(values, counts.astype(np.float64), wanted), wanted)
    if heavy_bottom:
        knots = np.concatenate(([_below(knots[0], knots[1] - knots[0])], knots))
    return knots


def _quantile_values(values: FloatArray, counts: FloatArray, n: int) -> FloatArray:
    """At most `n` of the sorted distinct `values`, at even quantiles of their capped counts."""
    inner = _without_tails(values, counts)
    values, weight = values[inner], counts[inner]
    if values.size <= n:
        return values
    for _ in range(64):  # capping shrinks the total, hence the cap; it converges geometrically
        cap = weight.sum() / (n - 1)
        if weight.max() <= cap * (1 + 1e-9):
            break
        weight = np.minimum(weight, cap)
    middle = np.cumsum(weight) - weight / 2
    levels = np.linspace(middle[0], middle[-1], n)
    chosen: FloatArray = np.unique(values[np.searchsorted(middle, levels * (1 - 1e-12))])
    return chosen


def _without_tails(values: FloatArray, counts: FloatArray) -> slice:
    """The values between the `_TAIL` quantiles, those included."""
    share = np.cumsum(counts) / counts.sum()
    low = int(np.searchsorted(share, _TAIL))
    high = int(np.searchsorted(share, 1 - _TAIL))
    return slice(low, min(high, values.size - 1) + 1)


def _fill(knots: FloatArray, n: int) -> FloatArray:
    """Grow sorted distinct `knots` (at least one) to exactly `n`, halving the widest interval each time."""
    if knots.size == 1:  # a constant feature: intervals of a sensible width around it
        width = max(1.0, abs(float(knots[0])))
        return float(knots[0]) + width * np.linspace(-1.0, 1.0, n)
    while knots.size < n:
        widths = np.diff(knots)
        i = int(np.argmax(widths))
        middle = knots[i] + widths[i] / 2
        if knots[i] < middle < knots[i + 1]:
            knots = np.insert(knots, i + 1, middle)
        else:  # neighbours in float64: no room between them, so go on above the top
            knots = np.append(knots, _above(knots[-1], widths[i]))
    return knots


def _above(x: float, width: float) -> float:
    return float(max(x + width, np.nextafter(x, np.inf)))


def _below(x: float, width: float) -> float:
    return float(min(x - width, np.nextafter(x, -np.inf)))


def coverage_stats(
    knots: FloatArray,
    feature_names: tuple[str, ...],
    features: npt.NDArray[Any],
    n_players: npt.NDArray[Any],
    alive: BoolArray,
) -> dict[str, Any]:
    """How much of some data lies beyond the knots: what the knot-drift monitor reads from training.json.

    Args:
        knots: f64[F, K].
        feature_names: F names.
        features: f32[B, 4, F].
        n_players: i8[B].
        alive: bool[B, 4]; other seats do not count.

    Returns:
        A JSON object, by feature name: `frac_above_top_knot` (x above the last knot),
        `frac_below_first_interior_knot` (x below the second knot) and `frac_below_bottom_knot`, each the worst of
        the segments that have rows. Empty without rows: no data is no verdict.
    """
    four = np.broadcast_to((n_players > SEGMENT_PLAYERS[0])[:, None], alive.shape)
    shares = [_shares(knots, features[mask]) for mask in (alive & ~four, alive & four) if mask.any()]
    if not shares:
        return {}
    return {
        name: {key: max(float(s[key][f]) for s in shares) for key in shares[0]}
        for f, name in enumerate(feature_names)
    }


def _shares(knots: FloatArray, x: npt.NDArray[Any]) -> dict[str, FloatArray]:
    """Share of the rows of `x` f64[N, F] beyond three knots, each f64[F]."""
    return {
        "frac_above_top_knot": (x > knots[:, -1]).mean(axis=0),
        "frac_below_first_interior_knot": (x < knots[:, 1]).mean(axis=0),
        "frac_below_bottom_knot": (x < knots[:, 0]).mean(axis=0),
    }
