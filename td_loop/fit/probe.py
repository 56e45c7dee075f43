"""How far a step moves V, on a few rows that stay the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from td_loop.fit.data import Targets
from td_loop.fit.metrics import log_value
from td_loop.rng import Stream, stream
from td_loop.value.model import SplineValue

PROBE_ROWS = 64
"""Rows that are looked at after every step."""

_INDEX = 3  # of the stream: the samples of the training rows have 0 to 2


class Probe:
    """Compares V after a step with V before it, on rows drawn once by the seed of the fit."""

    def __init__(self, rows: Targets, seed: int) -> None:
        """Draw at most PROBE_ROWS of `rows`."""
        n = min(PROBE_ROWS, len(rows))
        self._rows = rows.take(np.sort(stream(seed, Stream.FIT, _INDEX).choice(len(rows), n, replace=False)))
        self._before: npt.NDArray[np.float64] | None = None

    def begin(self, v: SplineValue) -> None:
        """Take `v` for what stands before the next step."""
        self._before = log_value(v, self._rows)

    def after_step(self, v: SplineValue) -> tuple[float, float]:
        """Means over the rows, in nats: KL(V before the step || V after it), and the entropy of V after it."""
        assert self._before is not None, "begin comes first"
        before, after = self._before, log_value(v, self._rows)
        self._before = after
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is reported
            p, q = np.exp(before), np.exp(after)
            kl = np.where(p == 0, 0.0, p * (before - after)).sum(axis=1)
            entropy = -np.where(q == 0, 0.0, q * after).sum(axis=1)
        return float(kl.mean()), float(entropy.mean())
