"""What one record of telemetry means for the attempt that runs: judged, counted, and what follows of it.

There are no files and no clock here.

A healthy step counts towards promoting the pending snapshots and towards closing the breaker. A step counts once,
however many records tell of it; a sick one sets the counts of all pending snapshots to 0; one without data does
neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from td_loop.errors import DataError
from td_loop.guard import snapshots as rules
from td_loop.guard.health import Health
from td_loop.guard.panel import Judgement, Panel, State
from td_loop.guard.record import Record
from td_loop.guard.snapshots import Snapshot


@dataclass(frozen=True)
class Watch:
    """What is known of an attempt.

    Attributes:
        attempt: its number, from 0.
        state: of the detectors.
        counts: healthy steps that followed each pending snapshot, by its name.
        last: step of the last record; None before the first of a process.
        counted: step that was last counted as healthy.
        furthest: largest step so far, over all attempts, that was healthy; -1 for none.
        health: of the last step.
        steps: how many were healthy, sick, without data, in this attempt.
    """

    attempt: int
    state: State
    counts: Mapping[str, int] = field(default_factory=dict)
    last: int | None = None
    counted: int | None = None
    furthest: int = -1
    health: Health = Health.NO_DATA
    steps: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(Health, 0))

    def as_json(self, panel: Panel) -> dict[str, Any]:
        """JSON data that `restored` takes."""
        return {
            "attempt": self.attempt,
            "detectors": panel.save(self.state),
            "counts": dict(self.counts),
            "last": self.last,
            "counted": self.counted,
            "furthest": self.furthest,
            "health": self.health,
            "steps": dict(self.steps),
        }


@dataclass(frozen=True)
class Seen:
    """What a record came to.

    Attributes:
        judgement: of the detectors; None if the record was not for this attempt.
        counted: whether a healthy step is to be counted.
        due: snapshots to promote now, oldest first.
        faults: kinds of what was wrong with it, and a sentence each.
    """

    judgement: Judgement | None = None
    counted: bool = False
    due: Sequence[Snapshot] = ()
    faults: Sequence[tuple[str, str]] = ()


def begun(panel: Panel, attempt: int, furthest: int = -1) -> Watch:
    """An attempt that begins."""
    return Watch(attempt, panel.start(), furthest=furthest)


def resumed(watch: Watch, attempt: int) -> Watch:
    """An attempt that goes on from another one in which nothing tripped, at the step of an earlier checkpoint."""
    return replace(watch, attempt=attempt, last=None, counted=None, steps=dict.fromkeys(Health, 0))


def restored(found: Any, panel: Panel) -> Watch:
    """The attempt that `Watch.as_json` described.

    Raises:
        DataError: it is something else.
    """
    try:
        return Watch(
            attempt=int(found["attempt"]),
            state=panel.restore(found["detectors"]),
            counts={str(name): int(n) for name, n in found["counts"].items()},
            last=_step(found["last"]),
            counted=_step(found["counted"]),
            furthest=int(found["furthest"]),
            health=Health(found["health"]),
            steps={kind: int(found["steps"][kind]) for kind in Health},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise DataError(f"holds no attempt ({type(e).__name__}: {e})") from e


def _step(found: Any) -> int | None:
    return None if found is None else int(found)


def look(
    panel: Panel, watch: Watch, record: Record, snapshots: Sequence[Snapshot], promote_after: int
) -> tuple[Watch, Seen]:
    """Judge and count one record.

    Args:
        snapshots: those of the store, before what this record announces.
        promote_after: healthy steps that make a pending snapshot stable.
    """
    if record.attempt is not None and record.attempt != watch.attempt:
        why = f"a record of attempt {record.attempt} came in attempt {watch.attempt}; it is left out"
        return watch, Seen(faults=(("foreign", why),))
    faults = []
    if watch.last is not None and record.step < watch.last:
        faults.append(("backwards", f"steps went back from {watch.last} to {record.step}"))
    state, judgement = panel.step(watch.state, record)
    counted = judgement.health is Health.HEALTHY and record.step != watch.counted
    counts = watch.counts
    if counted or judgement.health is Health.SICK:
        counts = rules.counted(watch.counts, rules.pending(snapshots), record.step, healthy=counted)
    after = replace(
        watch,
        state=state,
        counts=counts,
        last=record.step,
        counted=record.step if counted else watch.counted,
        furthest=max(watch.furthest, record.step) if counted else watch.furthest,
        health=judgement.health if judgement.health is not Health.NO_DATA else watch.health,
        steps={**watch.steps, judgement.health: watch.steps[judgement.health] + 1},
    )
    due = rules.due(snapshots, counts, promote_after) if counted else ()
    return after, Seen(judgement, counted, due, faults)
