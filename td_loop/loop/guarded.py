"""fit under guard: the command line that watches it, and what the guard's log says when it has ended.

The guard is `td-loop guard run`, a child process like the stages. What it did stands in `guard/breaker.jsonl` of
the attempt's folder; a run reads that, and nothing else of the guard's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from td_loop.errors import DataError
from td_loop.loop.config import Guard, RunConfig
from td_loop.loop.layout import AttemptPaths
from td_loop.loop.manifest import Json

LOCKED = 1
"""The guard's exit code when it stopped fit for good."""
NO_SNAPSHOT = 65
"""The same when it had no stable snapshot to go back to; fit's own 65 leaves no trip in the log."""
GRACE_S = 1.0
"""Seconds that fit has after a signal. The driver gives the guard and fit together `signals.GRACE_S`."""
LOG = "breaker.jsonl"


def watched(config: RunConfig, paths: AttemptPaths, argv: Sequence[str]) -> list[str]:
    """The command line of fit, under guard where the run wants that."""
    if config.guard is Guard.NONE:
        return list(argv)
    settings = [] if config.guard_config is None else ["--config", str(config.guard_config)]
    # An abort is a trip without retries: the guard locks at once.
    retries = ["--max-retries", "0"] if config.guard is Guard.ABORT else []
    own = [sys.executable, "-m", "td_loop", "guard", "run", "--dir", str(paths.guard), "--grace", f"{GRACE_S:g}"]
    return [*own, *settings, *retries, "--", *argv]


def outcome(config: RunConfig, paths: AttemptPaths) -> Json | None:
    """What the guard did, for the record of the attempt; None without a guard.

    Returns:
        `mode`; `trips`: attempt, step and reason of each, oldest first; `retries` used; `multiplier` of the rate
        in the end; `locked`: whether it gave up.

    Raises:
        DataError: the guard's log is damaged; the message names it.
    """
    if config.guard is Guard.NONE:
        return None
    lines = _read(paths.guard / LOG)
    last: Json = lines[-1] if lines else {}
    retries = int(last.get("retries", 0))
    return {
        "mode": str(config.guard),
        "trips": [
            {key: line.get(key) for key in ("attempt", "step", "reason")}
            for line in lines
            if line.get("event") == "trip"
        ],
        "retries": retries,
        "multiplier": 0.5**retries,
        "locked": bool(last.get("locked", False)),
    }


def gave_up(exit_code: int, found: Json | None) -> bool:
    """Whether fit was stopped by its guard for good, rather than ended by itself."""
    if found is None or not found["trips"]:
        return False
    return (exit_code == LOCKED and bool(found["locked"])) or exit_code == NO_SNAPSHOT


def _read(path: Path) -> list[Any]:
    """The lines of a guard's log; a last one that is torn does not count."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:  # nothing ever happened
        return []
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}") from e
    try:
        found = [orjson.loads(line) for line in lines]
    except orjson.JSONDecodeError as e:
        raise DataError(f"{path}: is damaged ({e})") from e
    if not all(isinstance(line, dict) for line in found):
        raise DataError(f"{path}: is damaged: a line is no JSON object")
    return found
