"""What the two kinds of change detection share: which way is bad, and how a metric is scaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from td_loop.guard.detectors import robust
from td_loop.guard.detectors.settings import Settings, choice, number, refuse_unknown
from td_loop.guard.health import Finding, Health

_SIGNS = {"up": (1.0,), "down": (-1.0,), "both": (1.0, -1.0)}


@dataclass(frozen=True)
class Change(Settings):
    """Base of the detectors that compare a metric with its own past."""

    DEFAULTS: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Settings that differ from the class's own, by metric; those metrics are looked at by default."""

    metric: str = ""
    """Its name in the telemetry; in guard.toml it is the name of the table."""
    bad: str = choice("up", tuple(_SIGNS))
    """Which way is bad. A KL that falls or a reward that rises is no fault."""
    scale: str = choice("log", ("log", "linear"))
    """How values are compared: "log" by ratios, for losses and norms that range over orders of magnitude."""
    unit: float = number(1.0, 0.0, above=True)
    """With "log": a size of the metric below which differences hardly count (see `robust.log_like`)."""
    floor: float = number(0.25, 0.0, above=True)
    """The least standard deviation: with "log" in e-folds, with "linear" as a share of the size of the values.

    A metric that hardly moves (a solved task) would else make anything look like a change.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.metric or not isinstance(self.metric, str):
            self._refuse("metric", "must be the name of a metric")

    @classmethod
    def of(cls, metric: str, table: Mapping[str, Any] | None = None) -> Self:
        """The detector for a metric: a table of guard.toml over the defaults of that metric.

        Raises:
            UsageError: a key that there is not, or a value out of its range.
        """
        table = {} if table is None else table
        known = set(cls.__dataclass_fields__) - {"metric"}
        refuse_unknown(table, known, f"{cls.TABLE}.{metric}")
        return cls(**{"metric": metric, **cls.DEFAULTS.get(metric, {}), **table})

    @property
    def table(self) -> str:
        """Where in guard.toml these settings stand."""
        return f"{self.TABLE}.{self.metric}"

    @cached_property
    def name(self) -> str:
        """Kind and metric: `jump.kl`."""
        return f"{self.TABLE.rpartition('.')[2]}.{self.metric}"

    @cached_property
    def no_data(self) -> Finding:
        """What is said of a record without the metric."""
        return Finding(self.name, Health.NO_DATA)

    @cached_property
    def warming_up(self) -> Finding:
        """What is said before there is enough of a past."""
        return Finding(self.name, Health.NO_DATA, why="warming up")

    def badness(self, difference: float) -> float:
        """A difference, positive where it is bad."""
        return difference if self.bad == "up" else -difference if self.bad == "down" else abs(difference)

    @cached_property
    def signs(self) -> tuple[float, ...]:
        """What differences are multiplied with, so that bad ones are positive."""
        return _SIGNS[self.bad]

    def scaled(self, value: float | None) -> float | None:
        """The value as it is compared; None where there is no finite one."""
        value = robust.finite(value)
        return value if value is None or self.scale == "linear" else robust.log_like(value, self.unit)

    def sigma(self, ranked: list[float], centre: float) -> float:
        """Robust standard deviation of sorted values, at least the floor; 0 where they have no size at all."""
        sigma, floor = robust.spread(ranked, centre), self.floor
        if self.scale == "linear":
            n = len(ranked)
            floor *= max(abs(centre), ranked[n - 1 - n // 20] - ranked[n // 20])
        return sigma if sigma > floor else floor
