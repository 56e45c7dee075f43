"""canary.toml: every key has a default, a flag overrides it, and a key that nothing reads is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from td_loop.errors import UsageError
from td_loop.files import read_toml
from td_loop.guard.detectors.settings import Settings, choice, number, refuse_unknown, table_of, whole


@dataclass(frozen=True)
class StageSettings(Settings):
    """How long each stage takes, and how much traffic it gives the canary."""

    TABLE: ClassVar[str] = "stages"

    shadow_s: float = number(300.0, 0.0)
    """Seconds in which the canary answers beside the stable policy, and nobody gets its answers. 0: no shadow."""
    canary_s: float = number(600.0, 0.0)
    """Seconds at `canary_percent`."""
    canary_percent: float = number(5.0, 0.01, 50.0)
    """Percent of new episodes in the first stage with traffic."""
    ramp_s: float = number(1800.0, 0.0)
    """Seconds in which the share grows linearly to `ramp_to`. Time spent in HOLD counts in no stage."""
    ramp_to: float = number(95.0, 0.01, 99.99)
    """Percent at the end of the ramp: something must be left to compare with."""
    step_s: float = number(30.0, 0.0, above=True)
    """Seconds between two weights of the ramp."""
    gate: str = choice("auto", ("auto", "manual"))
    """manual: each next stage waits for `td-loop deploy approve`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ramp_to < self.canary_percent:
            self._refuse("ramp_to", f"must not be below canary_percent, {self.canary_percent:g}")


@dataclass(frozen=True)
class WatchSettings(Settings):
    """How often the counters are read, and what is too little of them to go on."""

    TABLE: ClassVar[str] = "watch"

    poll_s: float = number(5.0, 0.0, above=True)
    """Seconds between two observations."""
    stale_s: float = number(60.0, 0.0, above=True)
    """Counters that are older than this are no news: HOLD."""
    quiet_s: float = number(120.0, 0.0, above=True)
    """HOLD when one of the subsets got no request for so long."""
    reward_quiet_s: float = number(300.0, 0.0, above=True)
    """HOLD when no reward came for one of the subsets for so long."""
    window_s: float = number(300.0, 0.0, above=True)
    """Every so often the tests begin anew, beside those that are under way: what degrades late is found, too."""
    requests: int = whole(200, 1)
    """Requests of the canary that a stage needs before it can end."""
    rewards: int = whole(50, 2)
    """Rewards of the canary, and of the stable policy, that a stage with traffic needs before it can end."""


@dataclass(frozen=True)
class LimitSettings(Settings):
    """What the canary may not do. Each limit counts only together with evidence that the stable policy does
    better."""

    TABLE: ClassVar[str] = "limits"

    alpha: float = number(0.05, 0.0, 0.5, above=True)
    """How often a canary that is just as good may be rolled back in a whole release, over all triggers but
    collapse (`entropy`), which is a limit without a test."""
    drop: float = number(0.2, 0.0, 10.0)
    """Degraded: the canary's mean reward is below the stable mean minus so many times its absolute value."""
    reward_unit: float = number(0.0, 0.0)
    """Least absolute value for `drop`, in rewards: of a mean near zero any share is next to nothing."""
    reward_cluster: float = number(1.0, 1.0)
    """How many rewards say the same thing: decisions of one game that each report how it ended, say."""
    settle_s: float = number(30.0, 0.0)
    """Rewards of the first seconds with traffic are left out. As long as an episode takes, if rewards come at
    its end: the first to end are the short ones, and no fair sample. Nor is collapse looked for until then."""
    fallback: float = number(0.01, 0.0, 1.0)
    """Share of requests that the fallback answers."""
    output: float = number(0.001, 0.0, 1.0)
    """Share of requests whose output was invalid (NaN, wrong shape), illegal, or an error of the model."""
    error: float = number(0.001, 0.0, 1.0)
    """Share of requests that were answered with a 5xx status, or by nobody."""
    p99_ms: float = number(15.0, 0.0, above=True)
    """99th percentile of the time to answer; it is rounded up to a bound of the histogram."""
    differing: float = number(0.005, 0.0, 1.0)
    """Share of replayed states that were answered differently: exploration noise."""
    entropy: float = number(0.2, 0.0, 1.0)
    """Collapse: the canary's mean action entropy is below this part of the stable one's."""
    drift: float = number(0.25, 0.0)
    """Population stability index of a feature from which on its distribution counts as another one."""
    on_drift: str = choice("warn", ("warn", "hold"))
    """What drift does. It speaks of the traffic, and seldom of the canary."""


@dataclass(frozen=True)
class WebhookSettings(Settings):
    """Whom to tell of transitions."""

    TABLE: ClassVar[str] = "webhook"

    url: str = ""
    """Each transition is POSTed there as JSON; empty: nobody is told."""
    timeout_s: float = number(5.0, 0.0, 60.0, above=True)
    """Seconds that one try may take."""
    tries: int = whole(5, 1, 20)
    """Tries for one transition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.url, str) or not (not self.url or self.url.startswith(("http://", "https://"))):
            self._refuse("url", "must begin with http:// or https://")


@dataclass(frozen=True)
class CanarySettings:
    """All settings of a release. They hold from its start to its end, whatever becomes of the file meanwhile."""

    stages: StageSettings = field(default_factory=StageSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)

    def as_mapping(self) -> dict[str, dict[str, Any]]:
        """Keys and values by table."""
        return {
            getattr(self, f.name).TABLE: dataclasses.asdict(getattr(self, f.name))
            for f in dataclasses.fields(self)
        }

    @classmethod
    def from_mapping(cls, tables: Mapping[str, Any]) -> Self:
        """The inverse of `as_mapping`; what is left out has its default.

        Raises:
            UsageError: a key or table that there is not, or a value out of its range.
        """
        kinds: dict[str, type[Settings]] = {
            kind.TABLE: kind for kind in (StageSettings, WatchSettings, LimitSettings, WebhookSettings)
        }
        refuse_unknown(tables, kinds, "top level")
        return cls(
            *(kind.from_mapping(table_of(tables.get(name, {}), name)) for name, kind in kinds.items())  # type: ignore[arg-type]
        )

    def as_toml(self) -> str:
        """What `read_settings` makes the same of."""
        return "\n".join(
            "\n".join([f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items()), ""])
            for table, keys in self.as_mapping().items()
        )


def read_settings(path: Path | None, flags: Mapping[str, Mapping[str, Any]]) -> CanarySettings:
    """The settings of a file and of flags.

    Args:
        path: canary.toml; None for the defaults.
        flags: values by table and key, which go before the file's.

    Raises:
        DataError: the file is missing or no TOML; the message names the line.
        UsageError: a key or table that there is not, or a value out of its range.
    """
    tables = {} if path is None else read_toml(path)
    try:
        merged = {
            **tables,
            **{name: {**table_of(tables.get(name, {}), name), **given} for name, given in flags.items()},
        }
        return CanarySettings.from_mapping(merged)
    except UsageError as e:
        raise UsageError(str(e) if path is None else f"{path}: {e}") from e
