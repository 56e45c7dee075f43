"""NaN and infinities: nothing that is computed from them can be trusted, so they trip at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from td_loop.guard.detectors.settings import Settings
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import METRICS, Record


@dataclass(frozen=True)
class NonFinite(Settings):
    """Trips at the first value of one of `metrics` that is NaN or infinite; there is no patience.

    Leave `grad_norm` out with mixed-precision training, whose loss scaling makes it infinite now and then, and
    skips such a step by itself.

    Raises:
        UsageError: `metrics` is no list of names, or an empty one.
    """

    TABLE: ClassVar[str] = "detectors.non_finite"

    metrics: tuple[str, ...] = tuple(METRICS)
    """Names of the metrics to look at; those that `td_loop.guard.record` knows by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.metrics
        if not isinstance(names, tuple | list) or not names or not all(isinstance(n, str) and n for n in names):
            self._refuse("metrics", 'must be a list of names, such as ["kl", "value_loss"]')
        object.__setattr__(self, "metrics", tuple(names))

    @property
    def name(self) -> str:
        """In the log, in guard.toml and in findings."""
        return "non_finite"

    def start(self) -> None:
        """There is nothing to remember."""

    def step(self, state: None, record: Record) -> tuple[None, Finding]:
        """Look at every value; no data where none of the metrics was reported."""
        values = record.values
        health = Health.NO_DATA
        for metric in self.metrics:
            value = values.get(metric)
            if value is None:
                continue
            if not math.isfinite(value):
                why = f"{metric} is {value}"
                return None, Finding("non_finite", Health.SICK, True, value, None, why)
            health = Health.HEALTHY
        return None, Finding("non_finite", health)
