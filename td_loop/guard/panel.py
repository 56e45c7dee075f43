"""All detectors of a configuration, and what they say together of one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from td_loop.errors import DataError, UsageError
from td_loop.guard.detectors import (
    Drift,
    EntropyCollapse,
    Jump,
    KlSpike,
    NonFinite,
    RewardDrawdown,
    Stalled,
    ValueLossExplosion,
)
from td_loop.guard.detectors.change import Change
from td_loop.guard.detectors.settings import Settings, refuse_unknown, table_of
from td_loop.guard.health import Detector, Finding, Health
from td_loop.guard.record import Record

State = Mapping[str, Any]
"""The state of each detector by its name: plain JSON data."""

_SINGLE: Mapping[str, type[Settings]] = {
    "non_finite": NonFinite,
    "kl": KlSpike,
    "entropy": EntropyCollapse,
    "value_loss": ValueLossExplosion,
    "drawdown": RewardDrawdown,
}
_NO_DATA, _SICK = Health.NO_DATA, Health.SICK  # looked up once: this runs for every record
_BY_METRIC: Mapping[str, type[Change]] = {"jump": Jump, "drift": Drift}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What all detectors say of one record.

    Attributes:
        step: of the record.
        health: sick if any detector is; healthy if at least one is and none is sick; else no data. Only healthy
            steps count towards promoting a snapshot and closing the breaker.
        findings: of every detector, in the panel's order.
        trip: the first finding that stops training; None while it may go on.
    """

    step: int
    health: Health
    findings: tuple[Finding, ...]
    trip: Finding | None = None

    @property
    def sick(self) -> tuple[Finding, ...]:
        """The findings that are."""
        return tuple(f for f in self.findings if f.health is Health.SICK)


def _default_detectors() -> tuple[Detector[Any], ...]:
    return _detectors({})


@dataclass(frozen=True)
class Panel:
    """Detectors in the order in which they are asked; the first that trips gives the reason.

    Attributes:
        detectors: all with their defaults if not told otherwise.
        stalled: how long telemetry may be silent; None: for ever.

    Raises:
        UsageError: there is no detector, or two have the same name.
    """

    detectors: tuple[Detector[Any], ...] = field(default_factory=_default_detectors)
    stalled: Stalled | None = field(default_factory=Stalled)

    def __post_init__(self) -> None:
        names = [d.name for d in self.detectors]
        if not names:
            raise UsageError("[detectors] all are switched off: nothing would ever trip; leave one enabled")
        if len(set(names)) < len(names):
            raise UsageError(f"[detectors] two detectors have the same name: {', '.join(sorted(names))}")

    @classmethod
    def from_mapping(cls, table: Mapping[str, Any]) -> Panel:
        """The panel of the table `[detectors]` of guard.toml.

            [detectors.kl]
            max_kl = 0.03
            [detectors.entropy]
            enabled = false
            [detectors.jump.my_loss]      # jump and drift have a table for each metric
            unit = 0.1

        Every detector is on unless its table says `enabled = false`; `[detectors.jump] enabled = false` takes all
        of a kind.

        Raises:
            UsageError: an unknown key, a value out of its range, or nothing left enabled.
        """
        refuse_unknown(table, [*_SINGLE, *_BY_METRIC, "stalled"], "detectors")
        on, silence = _enabled(table.get("stalled", {}), "detectors.stalled")
        return cls(_detectors(table), Stalled.from_mapping(silence) if on else None)

    @cached_property
    def _asked(self) -> tuple[tuple[str, Callable[[Any, Record], tuple[Any, Finding]]], ...]:
        return tuple((d.name, d.step) for d in self.detectors)

    def start(self) -> State:
        """The state before the first record of an attempt: one that was rolled back begins with no past."""
        return {d.name: d.start() for d in self.detectors}

    def step(self, state: State, record: Record) -> tuple[State, Judgement]:
        """Ask every detector about one record. The state that was handed over stays as it is."""
        after: dict[str, Any] = {}
        findings = []
        health, trip = _NO_DATA, None
        for name, ask in self._asked:
            after[name], finding = ask(state[name], record)
            findings.append(finding)
            if finding.health is _SICK:
                health = _SICK
                if trip is None and finding.trips:
                    trip = finding
            elif health is _NO_DATA:
                health = finding.health
        return after, Judgement(record.step, health, tuple(findings), trip)

    def save(self, state: State) -> dict[str, Any]:
        """`state` as JSON data that `restore` takes, with the settings that it belongs to."""
        return {d.name: {"settings": repr(d), "state": state[d.name]} for d in self.detectors}

    def restore(self, saved: object) -> State:
        """The state that was saved. A detector that is new, or whose settings have changed, begins anew.

        Raises:
            DataError: it is not what `save` made.
        """
        if not isinstance(saved, Mapping):
            raise DataError(f"saved detectors: expected a table by name, found {type(saved).__name__}")
        state = {}
        for d in self.detectors:
            found = saved.get(d.name)
            if found is not None and not (isinstance(found, Mapping) and {"settings", "state"} <= set(found)):
                raise DataError(f"saved detectors: {d.name} has no settings and state")
            state[d.name] = found["state"] if found and found["settings"] == repr(d) else d.start()
        return state


def _detectors(table: Mapping[str, Any]) -> tuple[Detector[Any], ...]:
    made: list[Any] = []
    for name, single in _SINGLE.items():
        on, settings = _enabled(table.get(name, {}), f"detectors.{name}")
        if on:
            made.append(single.from_mapping(settings))
    for name, kind in _BY_METRIC.items():
        on, by_metric = _enabled(table.get(name, {}), f"detectors.{name}")
        for metric in dict.fromkeys([*kind.DEFAULTS, *by_metric]) if on else ():
            where = f"detectors.{name}.{metric}"
            if not isinstance(settings := by_metric.get(metric, {}), Mapping):
                raise UsageError(
                    f"[detectors.{name}] {metric} = {settings!r}: no such key, and no table of a metric; "
                    f"write settings below [detectors.{name}.kl], say"
                )
            on, settings = _enabled(settings, where)
            if on:
                made.append(kind.of(metric, settings))
    return tuple(made)


def _enabled(value: object, where: str) -> tuple[bool, Mapping[str, Any]]:
    """Whether a table is switched on, and what else it says."""
    table = dict(table_of(value, where))
    on = table.pop("enabled", True)
    if not isinstance(on, bool):
        raise UsageError(f"[{where}] enabled = {on!r}: must be true or false")
    return on, table
