"""guard.toml: every key has a default, a flag overrides it, and a key that nothing reads is refused."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from td_loop.errors import UsageError
from td_loop.files import read_toml
from td_loop.guard.audits import Facts
from td_loop.guard.breaker import BreakerSettings
from td_loop.guard.detectors.settings import Settings, choice, number, refuse_unknown, table_of, whole
from td_loop.guard.panel import Panel

FILE = "file"
"""The telemetry address that means a file in the guard's folder, one an attempt."""
PLACES = {"from_step": 0, "to_step": 0, "from_time": 0.0, "to_time": 0.0}
"""What stands in braces in the purge command, with an example each."""


@dataclass(frozen=True)
class RunSettings(Settings):
    """How the worker is run, stopped and started again."""

    TABLE: ClassVar[str] = "guard"

    forgive_after: int = whole(0, 0)
    """Healthy steps in a row, of a closed breaker, that give back all retries; 0: never, they add up."""
    seed: int = whole(0, 0)
    """TD_GUARD_SEED of attempt 0; that of each later one is one larger."""
    on_crash: str = choice("exit", ("exit", "retry"))
    """What an exit code that is not 0 does without a trip: end the guard, too, or roll back and retry."""
    on_stall: str = choice("warn", ("warn", "trip"))
    """What telemetry that stalls does ([detectors.stalled] says when)."""
    grace_s: float = number(10.0, 0.0)
    """Seconds between SIGTERM and SIGKILL."""
    telemetry: str = FILE
    """"file": one in the guard's folder; unix:/path.sock, unix: or redis://host:port/db?stream=NAME."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = self.telemetry
        if not isinstance(where, str) or not (
            where == FILE or where.startswith(("unix:", "redis://", "rediss://"))
        ):
            self._refuse("telemetry", 'must be "file", or begin with unix: or redis://', FILE)


@dataclass(frozen=True)
class SnapshotSettings(Settings):
    """Which checkpoints are kept."""

    TABLE: ClassVar[str] = "snapshots"

    every: int = whole(0, 0)
    """TD_GUARD_CHECKPOINT_EVERY: steps between two checkpoints; 0: the trainer decides."""
    promote_after: int = whole(20, 1)
    """Healthy steps that have to follow a snapshot before it is stable."""
    keep: int = whole(3, 1)
    """Stable snapshots that are kept."""


@dataclass(frozen=True)
class PurgeSettings(Settings):
    """What is run in a rollback, to clean a replay buffer of what was gathered after the snapshot."""

    TABLE: ClassVar[str] = "purge"

    command: tuple[str, ...] = ()
    """Words; {from_step}, {to_step}, {from_time} and {to_time} are filled in. It may run twice. Empty: nothing."""
    timeout_s: float = number(600.0, 0.0, above=True)
    """Seconds after which it is stopped, and has failed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        words: Any = self.command  # what TOML has may be anything
        if isinstance(words, str):
            try:
                words = shlex.split(words)
            except ValueError as e:
                self._refuse("command", f"{e}; write a list of words")
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            self._refuse("command", 'must be a list of words, as in ["python", "purge.py", "{from_step}"]')
        object.__setattr__(self, "command", tuple(words))
        for word in self.command:
            try:
                word.format(**PLACES)
            except (LookupError, ValueError, AttributeError, TypeError) as e:
                must = f"{word!r}: in braces may stand {', '.join(PLACES)}; double a brace that is meant as such"
                raise UsageError(f"[purge] command: {must}") from e


@dataclass(frozen=True)
class MetricsSettings(Settings):
    """Figures for Prometheus."""

    TABLE: ClassVar[str] = "metrics"

    port: int = whole(0, 0, 65535)
    """Serve them at http://127.0.0.1:PORT/metrics; 0: do not."""
    address: str = "127.0.0.1"
    """The address to serve them at; 0.0.0.0 for all."""
    file: str = ""
    """Write them to this file, for the textfile collector; empty: do not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("address", "file"):
            if not isinstance(getattr(self, key), str):
                self._refuse(key, "must be text")


@dataclass(frozen=True)
class GuardConfig:
    """All settings of a guard."""

    run: RunSettings = field(default_factory=RunSettings)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    purge: PurgeSettings = field(default_factory=PurgeSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    audit: Facts = field(default_factory=Facts)
    panel: Panel = field(default_factory=Panel)

    def as_toml(self) -> str:
        """What `read_config` makes the same of."""
        lines: list[str] = []
        for settings in (self.run, self.breaker, self.snapshots, self.purge, self.metrics, self.audit):
            lines += [f"[{settings.table}]", *_keys(settings), ""]
        tables = {d.table: list(_keys(d)) for d in _detectors(self.panel)}
        for missing in (d.table for d in _detectors(Panel()) if d.table not in tables):
            tables[missing] = ["enabled = false"]
        for name, keys in tables.items():
            lines += [f"[{name}]", *keys, ""]
        return "\n".join(lines)


def read_config(path: Path | None, flags: Mapping[str, Mapping[str, Any]]) -> GuardConfig:
    """The settings of a file and of flags.

    Args:
        path: guard.toml; None for the defaults.
        flags: values by table and key, which go before the file's.

    Raises:
        DataError: the file is missing or no TOML; the message names the line.
        UsageError: a key or table that there is not, or a value out of its range.
    """
    tables = {} if path is None else read_toml(path)
    try:
        every = (RunSettings, BreakerSettings, SnapshotSettings, PurgeSettings, MetricsSettings, Facts)
        kinds: dict[str, type[Settings]] = {s.TABLE: s for s in every}
        refuse_unknown(tables, [*kinds, "detectors"], "top level")
        run, breaker, snapshots, purge, metrics, audit = (
            kind.from_mapping({**table_of(tables.get(name, {}), name), **flags.get(name, {})})
            for name, kind in kinds.items()
        )
        panel = Panel.from_mapping(table_of(tables.get("detectors", {}), "detectors"))
    except UsageError as e:
        raise UsageError(str(e) if path is None else f"{path}: {e}") from e
    return GuardConfig(run, breaker, snapshots, purge, metrics, audit, panel)  # type: ignore[arg-type]


def _detectors(panel: Panel) -> list[Settings]:
    return [d for d in (*panel.detectors, panel.stalled) if isinstance(d, Settings)]


def _keys(settings: Settings) -> Iterator[str]:
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if value is not None and f.name != "metric":  # that is the name of the table; and TOML knows no null
            yield f"{f.name} = {json.dumps(value)}"
