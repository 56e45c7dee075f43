"""Entropy collapse: the policy becomes deterministic before it has explored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from td_loop.guard.detectors.settings import number, whole
from td_loop.guard.detectors.threshold import Threshold


@dataclass(frozen=True)
class EntropyCollapse(Threshold):
    """Trips when `entropy` is below `min_entropy` for `patience` consecutive steps that report it.

    The default suits discrete actions. The entropy of a continuous policy is a differential one, which falls below
    zero in healthy training: `min_entropy` may be negative for that reason.
    """

    TABLE: ClassVar[str] = "detectors.entropy"
    METRIC: ClassVar[str] = "entropy"
    ABOVE: ClassVar[bool] = False

    min_entropy: float = number(0.01)
    """Nats."""
    patience: int = whole(3, 1)
    """Consecutive steps."""

    @property
    def limit(self) -> float:
        """`min_entropy`."""
        return self.min_entropy

    @property
    def steps(self) -> int:
        """`patience`."""
        return self.patience
