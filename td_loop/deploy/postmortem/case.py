"""What is known of a rollback: the lines of the audit log, and what was counted between the first and the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td_loop.deploy.canary import store
from td_loop.deploy.canary.machine import Event, Release
from td_loop.deploy.canary.observation import Counts, Observation
from td_loop.errors import DataError


@dataclass(frozen=True)
class Case:
    """A rollback.

    Attributes:
        release: as it stood when it was decided.
        t: when that was, Unix seconds.
        stage: in which it was.
        weight: percent of the traffic that the canary had.
        reason: a sentence.
        triggers: names of what decided it.
        findings: sentences, that of the deepest cause first.
        seconds: from the first observation that was kept to the last; 0 when there was no first.
        stable, canary: what was counted in that time; None when nothing was observed.
        engine: cumulative counters of the server processes in that time, by the field of `Engine`.
        note: what has to be known of these figures; "" if nothing.
    """

    release: Release
    t: float
    stage: str
    weight: float
    reason: str
    triggers: tuple[str, ...]
    findings: tuple[str, ...]
    seconds: float
    stable: Counts | None
    canary: Counts | None
    engine: Mapping[str, float]
    note: str


def read_case(folder: Path, number: int | None = None) -> Case:
    """The rollback of release `number` (None: of the newest that was rolled back) in a canary's folder.

    Raises:
        DataError: there is none, or the audit log is damaged.
    """
    lines = store.read_audit(folder)
    causes = [x for x in lines if x.event is Event.ROLL_BACK and number in (None, x.release.number)]
    if not causes:
        which = "no release" if number is None else f"release {number}"
        raise DataError(f"{folder / store.AUDIT}: {which} was rolled back; there is nothing to examine")
    cause = causes[-1]
    return case_of([x for x in lines if x.release.number == cause.release.number], cause)


def case_of(lines: Sequence[store.Line], cause: store.Line) -> Case:
    """The rollback that `cause` tells of; `lines` are those of its release.

    Raises:
        DataError: an observation in them is none.
    """
    found: dict[str, Any] = dict(cause.evidence)
    end = _observation(found)
    start = next((o for x in lines if x.event is Event.ADVANCE and (o := _observation(x.evidence))), None)
    note, seconds, engine = "", 0.0, {} if end is None else dict(end.engine)
    stable, canary = (None, None) if end is None else (end.stable, end.canary)
    if end is None:
        note = "nothing had been observed when it was rolled back"
    elif start is None or end.time <= start.time:
        note = "there is no earlier observation: the counters are those since the servers began"
    elif fault := end.fault(start):
        note = f"the counters are those since the servers began: {fault}"
    else:
        stable, canary = end.stable.minus(start.stable), end.canary.minus(start.canary)
        seconds = end.time - start.time
        engine = {k: x - start.engine[k] for k, x in end.engine.items() if x >= start.engine.get(k, x + 1)}
    return Case(
        release=cause.release,
        t=cause.t,
        stage=str(cause.before),
        weight=float(found.get("weight", cause.release.weight)),
        reason=cause.reason,
        triggers=tuple(map(str, found.get("triggers", ()))),
        findings=tuple(str(f.get("sentence", f)) for f in found.get("findings", ())),
        seconds=seconds,
        stable=stable,
        canary=canary,
        engine=engine,
        note=note,
    )


def _observation(evidence: Mapping[str, Any]) -> Observation | None:
    found = evidence.get("observation")
    return None if found is None else Observation.from_json(found)


def p99_s(counts: Counts) -> float | None:
    """The least bound of the histogram that 99 of 100 requests were not above, seconds; None without requests."""
    total = counts.seconds[-1][1] if counts.seconds else 0.0
    return next((bound for bound, n in counts.seconds if total > 0 and n >= 0.99 * total), None)


def mean_reward(counts: Counts) -> float | None:
    """Mean of the rewards; None without any."""
    return (counts.positive - counts.negative) / counts.rewards if counts.rewards > 0 else None
