"""KL spike: the policy leaves its trust region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from td_loop.guard.detectors.settings import number, whole
from td_loop.guard.detectors.threshold import Threshold


@dataclass(frozen=True)
class KlSpike(Threshold):
    """Trips when `kl` is above `max_kl` for `patience` consecutive steps that report it."""

    TABLE: ClassVar[str] = "detectors.kl"
    METRIC: ClassVar[str] = "kl"
    ABOVE: ClassVar[bool] = True

    max_kl: float = number(0.05, 0.0, above=True)
    """Nats."""
    patience: int = whole(3, 1)
    """Consecutive steps."""

    @property
    def limit(self) -> float:
        """`max_kl`."""
        return self.max_kl

    @property
    def steps(self) -> int:
        """`patience`."""
        return self.patience
