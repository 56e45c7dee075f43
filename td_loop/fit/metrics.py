"""Losses of a value function on fixed rows: the numbers that fit reports."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from td_loop.fit.data import Targets
from td_loop.value.evaluate import scores
from td_loop.value.model import SEGMENT_PLAYERS, SplineValue


def log_value(v: SplineValue, rows: Targets) -> npt.NDArray[np.float64]:
    """log V: f64[B, 4], -inf at seats that are not alive. Scores that are not finite give NaN."""
    s = np.where(rows.alive, scores(v, rows.features, rows.n_players), -np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        s = s - s.max(axis=1, keepdims=True)
        log_v: npt.NDArray[np.float64] = s - np.log(np.exp(s).sum(axis=1, keepdims=True))
    return log_v


def nll(v: SplineValue, rows: Targets) -> npt.NDArray[np.float64]:
    """Cross-entropy of V to the target of every row: f64[B], in nats.

    It works on log V, so a value function that is certain and wrong costs a large finite number, not infinity.
    """
    log_v = log_value(v, rows)
    with np.errstate(invalid="ignore", over="ignore"):  # scores that are not finite give NaN, and NaN is reported
        out: npt.NDArray[np.float64] = -np.where(rows.target > 0, rows.target * log_v, 0.0).sum(axis=1)
    return out


def mean_nll(v: SplineValue, rows: Targets) -> float | None:
    """Mean of `nll`; None where there are no rows: no data is neither good nor bad."""
    return float(nll(v, rows).mean()) if len(rows) else None


def constant_nll(rows: Targets) -> float:
    """Mean loss of the constant predictor, which gives every seat alive the same chance."""
    return float(np.log(rows.alive.sum(axis=1)).mean())


def nll_by_segment(v: SplineValue, rows: Targets) -> dict[str, float | None]:
    """`mean_nll` of the rows of each segment: "2P", "4P"."""
    four = rows.n_players > SEGMENT_PLAYERS[0]
    return {f"{n}P": mean_nll(v, rows.take(m)) for n, m in zip(SEGMENT_PLAYERS, (~four, four), strict=True)}
