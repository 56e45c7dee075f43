"""state.json: what a guard that goes on after a kill need not learn again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from td_loop.errors import DataError
from td_loop.files import as_float, read_json, write_json
from td_loop.guard.sources import Position

STATE = "state.json"
SAVE_S = 1.0
"""Seconds between two saves, at least."""


@dataclass(frozen=True)
class Saved:
    """What state.json holds.

    Attributes:
        watch: the attempt (see `watch.restored`).
        telemetry: address of the source of the attempt.
        position: how far it has been read.
        faults: how often each kind of fault was met.
        values: metrics of the last record of this attempt.
        time: when it was saved, Unix seconds.
    """

    watch: Mapping[str, Any]
    telemetry: str
    position: Position
    faults: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    time: float = 0.0


def read_state(folder: Path) -> Saved | None:
    """What a guard of `folder` saved last; None if it saved nothing.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / STATE
    if not path.exists():
        return None
    remedy = "remove it, then run again: snapshots and breaker are whole without it, the detectors begin anew"
    try:
        return _checked(Saved(**read_json(path)))
    except DataError as e:
        raise DataError(f"{path}: is damaged ({e}); {remedy}") from e
    except (TypeError, ValueError, AttributeError) as e:
        raise DataError(f"{path}: is no state of a guard ({e}); {remedy}") from e


def _checked(found: Saved) -> Saved:
    """What was read, if whoever shows it can rely on the kinds of its parts. `watch` is `restored` or refused."""
    for part in (found.watch, found.position, found.watch.get("counts", {}), found.watch.get("steps", {})):
        if not isinstance(part, Mapping):
            raise TypeError(f"{part!r} is no table")
    return replace(
        found,
        faults={kind: int(n) for kind, n in found.faults.items()},
        values={name: as_float(x) for name, x in found.values.items()},
        time=float(found.time),
    )


class StateFile:
    """Saves the state, now and then."""

    def __init__(self, folder: Path) -> None:
        self._path, self._due = folder / STATE, 0.0

    @property
    def due(self) -> bool:
        """Whether the last save is old enough."""
        return time.monotonic() >= self._due

    def save(self, saved: Saved) -> None:
        """Write it.

        Raises:
            StorageError: the disk is full, read-only or failing.
        """
        self._due = time.monotonic() + SAVE_S
        write_json(self._path, vars(saved) | {"time": time.time()})
