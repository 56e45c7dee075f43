"""Which snapshots to trust, to fence off and to let go: rules without files.

A snapshot is *pending* until enough healthy steps have followed it, then it is *stable*. The order of snapshots is
that of their arrival, not of their steps: after a restart steps may go backwards, and a trainer that ignores
`active` begins again at 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from td_loop.errors import DataError, UsageError


@dataclass(frozen=True, slots=True)
class Promotion:
    """Why a snapshot is trusted.

    Attributes:
        healthy_steps: how many followed it, without a sick one between; 0 for an initial one.
        time: when it was promoted, Unix seconds.
    """

    healthy_steps: int
    time: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint that the guard keeps; what `snapshot.json` says of it.

    Attributes:
        name: of its folder.
        number: order of arrival, from 1.
        step: after which it was saved.
        attempt: of the process that saved it.
        payload: name of the checkpoint, a file or folder, in the snapshot's folder.
        sha256: of each file, by its path in the snapshot's folder, with `/`.
        bytes: of all files together.
        time: when it was announced, Unix seconds.
        initial: what training started from, which no batch has touched.
        promoted: None while it is pending.
        source: where the trainer had saved it.
    """

    name: str
    number: int
    step: int
    attempt: int
    payload: str
    sha256: Mapping[str, str]
    bytes: int
    time: float
    initial: bool = False
    promoted: Promotion | None = None
    source: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(name: str, found: Any) -> Snapshot:
    """The snapshot that a `snapshot.json` tells of.

    Raises:
        DataError: it is not what `Snapshot.as_json` makes.
    """
    try:
        promoted = found["promoted"]
        return Snapshot(
            name=name,
            number=int(found["number"]),
            step=int(found["step"]),
            attempt=int(found["attempt"]),
            payload=_plain_name(found["payload"]),
            sha256={str(path): str(digest) for path, digest in found["sha256"].items()},
            bytes=int(found["bytes"]),
            time=float(found["time"]),
            initial=bool(found["initial"]),
            promoted=None
            if promoted is None
            else Promotion(int(promoted["healthy_steps"]), float(promoted["time"])),
            source=str(found["source"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise DataError(f"is no snapshot.json ({type(e).__name__}: {e})") from e


def _plain_name(text: str) -> str:
    if not text or "/" in text or text in (".", ".."):
        raise ValueError(f"payload {text!r} is no name")
    return text


def folder_name(step: int, attempt: int, taken: Collection[str]) -> str:
    """A name for the folder of a new snapshot, beside those that are taken."""
    name = f"step_{step:09d}_a{attempt}"
    return free_name(name, taken)


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, or `name.2`, `name.3` ... where that is taken."""
    found, k = name, 1
    while found in taken:
        k += 1
        found = f"{name}.{k}"
    return found


def newest(snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """The one that arrived last; None without any."""
    return max(snapshots, key=lambda s: s.number, default=None)


def stable(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Those that were promoted, newest first."""
    return sorted((s for s in snapshots if s.promoted is not None), key=lambda s: -s.number)


def pending(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Those that were not, oldest first."""
    return sorted((s for s in snapshots if s.promoted is None), key=lambda s: s.number)


def counted(counts: Mapping[str, int], waiting: Iterable[Snapshot], step: int, *, healthy: bool) -> dict[str, int]:
    """How many healthy steps have followed each pending snapshot, after one more step.

    Args:
        counts: before the step, by the snapshot's name; one that is not named has 0.
        waiting: the pending snapshots.
        step: its number. One that is not larger than a snapshot's does not follow it, however late it is told.
        healthy: whether the step was healthy; otherwise it was sick, and all begin again at 0. A step without
            data is no step here.
    """
    return {s.name: counts.get(s.name, 0) + (step > s.step) if healthy else 0 for s in waiting}


def due(snapshots: Sequence[Snapshot], counts: Mapping[str, int], after: int) -> list[Snapshot]:
    """Those to promote now, oldest first: `after` healthy steps have followed, or it is the first and initial."""
    first = not stable(snapshots)
    return [s for s in pending(snapshots) if counts.get(s.name, 0) >= after or (s.initial and first)]


def beyond(snapshots: Iterable[Snapshot], target: Snapshot | None) -> list[Snapshot]:
    """Those to fence off in a rollback to `target`, newest first: what arrived after it, and all that is pending.

    With no target these are all.
    """
    number = 0 if target is None else target.number
    return sorted((s for s in snapshots if s.number > number or s.promoted is None), key=lambda s: -s.number)


def outdated(snapshots: Iterable[Snapshot], keep: int, pointed: Collection[str]) -> list[Snapshot]:
    """Stable ones that may be deleted, oldest first: beyond the `keep` newest, and named by no pointer."""
    if keep < 1:
        raise UsageError(f"keep is {keep}, must be 1 or more: the snapshot to roll back to")
    return [s for s in reversed(stable(snapshots)[keep:]) if s.name not in pointed]
