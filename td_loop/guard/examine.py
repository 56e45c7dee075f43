"""What happened in a guard's folder, and the five audits: everything that a postmortem says, before it is words.

It reads `breaker.jsonl`, the telemetry of the attempt that tripped, where `stable_checkpoint_latest` leads, and
the facts that guard.toml declares in `[audit]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from td_loop.errors import DataError
from td_loop.files import pointed
from td_loop.guard.audits import (
    Audit,
    Facts,
    Outcome,
    advantage_normalisation,
    gradient_clip,
    rate_decay,
    replay_buffer,
    reward_scale,
)
from td_loop.guard.breaker import Breaker, Event, State, Transition, replay
from td_loop.guard.breaker_log import NAME, read_log
from td_loop.guard.declared import advantages, buffer
from td_loop.guard.history import History, Series, read_history, telemetry_files
from td_loop.guard.record import METRICS

SHOWN = 200
"""Records before the trip that are drawn."""
LISTED = 10
"""Records before the trip that are listed."""

STABLE = "stable_checkpoint_latest"


@dataclass(frozen=True)
class Postmortem:
    """What was found.

    Attributes:
        folder: the guard's.
        breaker: as it stands now.
        transitions: all, oldest first.
        trip: the last one; None if nothing ever tripped.
        history: telemetry of the attempt that tripped, or of the last one; None where there is none.
        stable_step: of the snapshot to roll back to; None where there is none.
        audits: all five.
    """

    folder: Path
    breaker: Breaker
    transitions: Sequence[Transition]
    trip: Transition | None
    history: History | None
    stable_step: int | None
    audits: Sequence[Audit]

    @property
    def failed(self) -> Sequence[Audit]:
        """The audits that did."""
        return [a for a in self.audits if a.outcome is Outcome.FAIL]


def examine(folder: Path, facts: Facts, base: Path) -> Postmortem:
    """Examine a guard's folder; nothing is written.

    Args:
        folder: the guard's (`--dir`).
        facts: what guard.toml declares in `[audit]`.
        base: what relative paths in `facts` start from.

    Raises:
        DataError: there is nothing to examine, or a file is damaged or cannot be read.
    """
    transitions = read_log(folder / NAME)
    paths = telemetry_files(folder)
    if not transitions and not paths:
        raise DataError(
            f"{folder}: holds neither {NAME} nor telemetry: give the folder of 'td-loop guard run' with --dir"
        )
    trip = next((x for x in reversed(transitions) if x.event is Event.TRIP), None)
    breaker = replay(transitions)
    attempt = trip.attempt if trip else max(paths, default=breaker.attempt)
    history = read_history(paths[attempt], attempt, trip.step if trip else None) if attempt in paths else None
    stable_step = _stable_step(folder, transitions)

    def series(metric: str) -> Series | None:
        return history.series(metric) if history else None

    replayed, missing = buffer(facts.replay_buffer, base)
    audits = [
        replay_buffer(
            replayed,
            series("reward"),
            attempt=attempt,
            stable_step=stable_step,
            stopped=breaker.state is State.OPEN,
            missing=missing,
        ),
        gradient_clip(series("grad_norm"), facts.clip_norm),
        advantage_normalisation(series("advantage_std"), advantages(facts.advantages, base), facts.advantage_eps),
        reward_scale(series("reward")),
        rate_decay(history.rate if history else None, facts.total_steps, facts.lr_schedule),
    ]
    return Postmortem(folder, breaker, transitions, trip, history, stable_step, audits)


def _stable_step(folder: Path, transitions: Sequence[Transition]) -> int | None:
    """Of the snapshot that the pointer names, else of the last one that was restarted from."""
    try:
        target = pointed(folder / STABLE)
    except OSError:
        target = None
    if target and (m := re.search(r"step_(\d+)_a\d+", target)):
        return int(m[1])
    return next((x.step for x in reversed(transitions) if x.event is Event.RESTART), None)


def shown(found: Postmortem) -> dict[str, Series]:
    """The end of every metric, those that detectors know first."""
    if found.history is None:
        return {}
    names = found.history.metrics
    ordered = [*(m for m in METRICS if m in names), *(m for m in names if m not in METRICS)]
    all_of_them = {name: found.history.series(name) for name in ordered}
    return {n: Series(s.steps[-SHOWN:], s.values[-SHOWN:]) for n, s in all_of_them.items() if s is not None}


def limits(trip: Transition | None) -> dict[str, float]:
    """Fixed limits that the findings of a trip name, by metric."""
    findings = trip.evidence.get("findings", []) if trip else []
    found = {}
    for f in findings if isinstance(findings, list) else ():
        if isinstance(f, Mapping) and f.get("detector") in METRICS and isinstance(f.get("limit"), int | float):
            found[str(f["detector"])] = float(f["limit"])
    return found


def as_json(found: Postmortem) -> dict[str, Any]:
    """What `postmortem.json` holds."""
    h = found.history
    return {
        "folder": str(found.folder),
        "state": str(found.breaker.state),
        "locked": found.breaker.locked,
        "retries": found.breaker.retries,
        "attempts": found.breaker.attempt + 1,
        "trip": found.trip.as_json() if found.trip else None,
        "stable_step": found.stable_step,
        "transitions": [x.as_json() for x in found.transitions],
        "telemetry": None
        if h is None
        else {
            "file": h.path.name,
            "attempt": h.attempt,
            "records": h.total,
            "examined": len(h.records),
            "bad_lines": h.bad,
            "first_bad_line": h.first_bad,
            "not_counted": h.foreign,
            "last": [{"step": r.step, **r.values} for r in list(h.records)[-LISTED:]],
        },
        "audits": [asdict(a) for a in found.audits],
    }
