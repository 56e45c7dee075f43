"""Jump: a metric is far from the median of its recent past, for several consecutive steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from td_loop.guard.detectors import robust, streak
from td_loop.guard.detectors.change import Change
from td_loop.guard.detectors.settings import number, whole
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import Record

State = dict[str, Any]


@dataclass(frozen=True)
class Jump(Change):
    """Trips when the robust z-score is above `limit` for `patience` consecutive steps that report the metric.

        z = (value - median) / sigma,  median and sigma (MAD) of the last `window` finite values before this one

    Values that are not finite are no data and never enter the window, so NaN cannot blind it. The reward is not
    looked at by default: within a few steps a dip that recovers looks the same as a fall; `drawdown` waits.

    Raises:
        UsageError: also where `warmup` is larger than `window`: it would warm up for ever.
    """

    TABLE: ClassVar[str] = "detectors.jump"
    DEFAULTS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "kl": {"unit": 0.002},
        "entropy": {"bad": "down", "unit": 0.1},
        "value_loss": {"unit": 1.0},
        "grad_norm": {"unit": 1.0},
    }

    limit: float = number(8.0, 0.0, above=True)
    """Standard deviations. With the default floor, at least a factor of e^2 = 7.4."""
    window: int = whole(100, 10)
    """Values that are compared with."""
    warmup: int = whole(100, 10)
    """Values before anything is judged."""
    patience: int = whole(3, 1)
    """Consecutive steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup > self.window:
            self._refuse("warmup", f"must be at most window, {self.window}")

    def start(self) -> State:
        """Keys: window, in order of arrival;  ranked, the same values sorted;  streak of bad steps."""
        return {"window": [], "ranked": [], "streak": streak.start()}

    def step(self, state: State, record: Record) -> tuple[State, Finding]:
        """Compare the value with the window, then take it in."""
        raw = record.values.get(self.metric)
        value = self.scaled(raw)
        if value is None:
            return state, self.no_data
        window, ranked, run = state["window"], state["ranked"], state["streak"]
        finding = self.warming_up
        if len(ranked) >= self.warmup:
            centre = robust.median(ranked)
            sigma = self.sigma(ranked, centre)
            if sigma > 0.0:
                z = self.badness(value - centre) / sigma
                run = streak.advance(run, record.step, z > self.limit)
                finding = self._finding(raw, z, run[2])
        window, ranked = robust.push(window, ranked, value, self.window)
        return {"window": window, "ranked": ranked, "streak": run}, finding

    def _finding(self, raw: float | None, z: float, count: int) -> Finding:
        if not count:
            return Finding(self.name, Health.HEALTHY, False, z, self.limit)
        why = (
            f"{self.metric} {raw:.4g} is {z:.1f} standard deviations from the median of the last {self.window} "
            f"values (limit {self.limit:g}), step {count} in a row, patience is {self.patience}"
        )
        return Finding(self.name, Health.SICK, count >= self.patience, z, self.limit, why)
