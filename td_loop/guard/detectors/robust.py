"""Medians and spreads that one wild value cannot move, over windows of finite values."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence

SIGMA = 1.4826
"""Median absolute deviation times this is the standard deviation of normal noise."""

_HUGE = 1e100


def finite(value: float | None) -> float | None:
    """`value` where it is finite, cut to +-1e100 so that sums and differences stay finite; else None."""
    if value is None or -_HUGE < value < _HUGE:  # by far the most
        return value
    return min(max(value, -_HUGE), _HUGE) if math.isfinite(value) else None


def median(ranked: Sequence[float]) -> float:
    """The middle of a sorted, non-empty sequence; of an even number, the mean of the two in the middle."""
    n = len(ranked)
    return ranked[n // 2] if n % 2 else 0.5 * (ranked[n // 2 - 1] + ranked[n // 2])


def spread(ranked: Sequence[float], centre: float) -> float:
    """Standard deviation from the median absolute deviation around `centre`; O(log n).

    The n // 2 + 1 values that are closest to `centre` stand side by side, and the farther of their two ends is the
    deviation that is looked for (of an even number of deviations, the larger of the two in the middle).
    """
    k = len(ranked) // 2
    last = len(ranked) - 1 - k
    i = bisect_left(range(last), 2.0 * centre, key=lambda i: ranked[i] + ranked[i + k])
    far = max(ranked[i + k] - centre, centre - ranked[i])
    if i > 0:
        far = min(far, max(ranked[i - 1 + k] - centre, centre - ranked[i - 1]))
    return SIGMA * far


def push(window: list[float], ranked: list[float], value: float, size: int) -> tuple[list[float], list[float]]:
    """A window of the newest `size` values in their order of arrival, and the same sorted, with one more value.

    The lists that were handed over stay as they are.
    """
    ranked = ranked.copy()
    full = len(window) >= size
    if full:
        del ranked[bisect_left(ranked, window[0])]
    insort(ranked, value)
    return [*window[full:], value], ranked


def log_like(value: float, unit: float) -> float:
    """Close to log(2 value / unit) far above `unit`, linear around zero, and defined for negative values, too.

    Differences are then ratios for values well above `unit`, and what is below it hardly counts: losses and KL
    range over orders of magnitude, and a rise from 1e-6 to 1e-3 of a metric whose unit is 1 is nothing.
    """
    return math.asinh(value / unit)
