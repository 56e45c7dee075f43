"""Value-loss explosion: the critic diverges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from td_loop.guard.detectors.settings import number, whole
from td_loop.guard.detectors.threshold import Threshold


@dataclass(frozen=True)
class ValueLossExplosion(Threshold):
    """Trips when `value_loss` is above `max_value_loss` for `patience` consecutive steps that report it.

    The loss goes with the square of the rewards' scale: large returns need a larger limit than the default.
    """

    TABLE: ClassVar[str] = "detectors.value_loss"
    METRIC: ClassVar[str] = "value_loss"
    ABOVE: ClassVar[bool] = True

    max_value_loss: float = number(50.0, 0.0, above=True)
    """In the loss's own unit, squared reward."""
    patience: int = whole(3, 1)
    """Consecutive steps."""

    @property
    def limit(self) -> float:
        """`max_value_loss`."""
        return self.max_value_loss

    @property
    def steps(self) -> int:
        """`patience`."""
        return self.patience
