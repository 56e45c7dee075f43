"""What the three limits of the document share: a metric beyond a fixed limit for several consecutive steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from td_loop.guard.detectors import streak
from td_loop.guard.detectors.settings import Settings
from td_loop.guard.detectors.streak import Streak
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import Record


@dataclass(frozen=True)
class Threshold(Settings):
    """Base of the detectors with one fixed limit.

    A step without the metric neither counts nor resets. A value that is not finite is beyond the limit: nobody
    knows that it is within.
    """

    METRIC: ClassVar[str]
    ABOVE: ClassVar[bool]
    """Whether values above the limit are bad; else those below."""

    @property
    def name(self) -> str:
        """The metric's own name."""
        return self.METRIC

    @property
    def limit(self) -> float:
        """What the metric is compared with; the limit itself is still fine."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """Consecutive bad steps that trip."""
        raise NotImplementedError

    def start(self) -> Streak:
        """No bad step so far."""
        return streak.start()

    def step(self, state: Streak, record: Record) -> tuple[Streak, Finding]:
        """Compare the record's value with the limit."""
        value = record.values.get(self.METRIC)
        if value is None:
            return state, Finding(self.METRIC, Health.NO_DATA)
        limit = self.limit
        fine = math.isfinite(value) and (value <= limit if self.ABOVE else value >= limit)
        state = streak.advance(state, record.step, not fine)
        count = state[2]
        if not count:
            return state, Finding(self.METRIC, Health.HEALTHY, False, value, limit)
        what = "another record of this step was" if fine else f"{self.METRIC} {value:.4g} is"
        side = "above" if self.ABOVE else "below"
        why = f"{what} {side} {limit:g}, step {count} in a row, patience is {self.steps}"
        return state, Finding(self.METRIC, Health.SICK, count >= self.steps, value, limit, why)
