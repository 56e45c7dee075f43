"""The telemetry around a trip: a line of text always, a picture where matplotlib is there (extra `guard-plot`)."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import numpy as np

from td_loop.guard.history import Series

WIDTH = 60
"""Characters of a sparkline."""

_BARS = "▁▂▃▄▅▆▇█"
_LOG_RANGE = 100.0
"""Positive values that range over more than this factor are drawn by their logarithm."""


def logarithmic(values: Sequence[float]) -> bool:
    """Whether finite values are better seen on a logarithmic scale."""
    finite = [x for x in values if math.isfinite(x)]
    return bool(finite) and min(finite) > 0 and max(finite) > _LOG_RANGE * min(finite)


def sparkline(values: Sequence[float]) -> str:
    """The last WIDTH values as bars; × is a value that is not finite."""
    shown = list(values[-WIDTH:])
    log = logarithmic(shown)
    heights = [(math.log(x) if log else x) if math.isfinite(x) else None for x in shown]
    there = [h for h in heights if h is not None]
    low, high = (min(there), max(there)) if there else (0.0, 0.0)
    span = high / 2 - low / 2  # halves: the difference of two large numbers may be infinite
    return "".join("×" if h is None else _bar((h / 2 - low / 2) / span if span > 0 else 0.5) for h in heights)


def _bar(share: float) -> str:
    return _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)]


def png(metrics: Mapping[str, Series], trip_step: int | None, limits: Mapping[str, float]) -> bytes | None:
    """A picture with one panel a metric, the trip and the limits marked; None without matplotlib.

    Args:
        metrics: at least one.
        trip_step: where to draw the line; None for none.
        limits: by metric, where there is a fixed one.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(9, 1.7 * len(metrics) + 0.6), layout="constrained")
    axes = figure.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (name, series) in zip(axes, metrics.items(), strict=True):
        good = series.finite
        ax.plot(good.steps, np.clip(good.values, -1e100, 1e100), linewidth=0.9, marker=".", markersize=2)
        bad = series.steps[~np.isfinite(series.values)]
        for step in bad[-100:]:
            ax.axvline(step, color="tab:red", linewidth=0.5, alpha=0.4)
        if name in limits:
            ax.axhline(limits[name], color="tab:orange", linestyle="--", linewidth=0.9)
        if trip_step is not None:
            ax.axvline(trip_step, color="tab:red", linewidth=1.2)
        if logarithmic(good.values.tolist()):
            ax.set_yscale("log")
        ax.set_ylabel(name)
    axes[-1].set_xlabel("step")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()
