"""Stop a fit whose validation loss blows up, before it burns the rest of its time.

A full evaluation of the validation rows can cost as much as an epoch of steps. So it is made once an epoch, and a
small fixed sample is looked at every SCREEN_EVERY steps; when the sample looks bad, the full rows decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from td_loop.fit.data import Targets
from td_loop.fit.metrics import mean_nll
from td_loop.value.model import SplineValue

SCREEN_EVERY = 16
"""Optimizer steps between two looks at the sample."""
SCREEN_ROWS = 512
"""Validation rows in the sample."""


@dataclass(frozen=True)
class Aborted:
    """Why a fit stopped itself: the `aborted` marker of training.json."""

    reason: str
    epoch: int
    step: int
    val_mc_nll: float
    threshold: float

    def __str__(self) -> str:
        return (
            f"val_mc_nll {self.val_mc_nll:.4f} is not within {self.threshold:.4f} "
            f"(epoch {self.epoch}, step {self.step})"
        )


class BlowupGuard:
    """Compares val_mc_nll with `baseline * (1 + tau)`. NaN counts as blown up."""

    def __init__(self, start: SplineValue, val: Targets, tau: float) -> None:
        """Measure the baseline of `start` on `val` (at least one row), before the first step."""
        self._val = val
        # Evenly spaced rows: games lie one after the other, so every game has its share.
        rows = np.linspace(0, len(val) - 1, min(SCREEN_ROWS, len(val))).astype(np.int64)
        self._screen = val.take(np.unique(rows))
        self._factor = 1.0 + tau
        self._screen_limit = self._factor * self._loss(start, self._screen)
        self.baseline = self._loss(start, val)

    @property
    def threshold(self) -> float:
        """The largest val_mc_nll that is allowed."""
        return self.baseline * self._factor

    def val_mc_nll(self, v: SplineValue) -> float:
        """Mean loss on all validation rows."""
        return self._loss(v, self._val)

    def check(self, val_mc_nll: float, epoch: int, step: int) -> Aborted | None:
        """Judge a full val_mc_nll."""
        if val_mc_nll <= self.threshold:
            return None
        reason = "val_mc_nll_blowup" if np.isfinite(val_mc_nll) else "val_mc_nll_not_finite"
        return Aborted(reason, epoch, step, val_mc_nll, self.threshold)

    def screen(self, v: SplineValue, epoch: int, step: int) -> Aborted | None:
        """Look at the sample, and at all rows only when the sample is over its own limit."""
        if self._loss(v, self._screen) <= self._screen_limit:
            return None
        return self.check(self.val_mc_nll(v), epoch, step)

    @staticmethod
    def _loss(v: SplineValue, rows: Targets) -> float:
        loss = mean_nll(v, rows)
        assert loss is not None
        return loss
