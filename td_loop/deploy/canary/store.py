"""The folder of releases: state, audit log, refused artefacts, and what a person asks of a controller at work.

audit.jsonl     every transition, appended before it takes effect; the only authority
canary.json     where the release stands and what was counted; written after each observation
refused.jsonl   artefacts that get no traffic, and who said otherwise
approve.json, abort.json    what a person asked for; the controller takes them away
lock            who is at work
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td_loop.deploy.canary.machine import Event, Release, Stage
from td_loop.errors import DataError, Refused
from td_loop.files import read_json, remove, sweep_temporaries, write_json
from td_loop.jsonl import append_line, cut_torn, read_lines

AUDIT, STATE, REFUSED, LOCK = "audit.jsonl", "canary.json", "refused.jsonl", "lock"
_REMEDY = "put a sound copy in its place, or give another --dir"
REQUESTS = ("approve", "abort")


@dataclass(frozen=True)
class Line:
    """One line of the audit log.

    Attributes:
        seq: its number in the folder's transitions; notes have that of the transition before them.
        t: Unix seconds.
        event: what it tells of.
        before: the stage before.
        release: as it stands after.
        reason: a sentence.
        evidence: JSON data.
    """

    seq: int
    t: float
    event: Event
    before: Stage
    release: Release
    reason: str
    evidence: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The line, before it is text."""
        return {
            "seq": self.seq,
            "t": self.t,
            "event": str(self.event),
            "from": str(self.before),
            "to": str(self.release.stage),
            "weight": self.release.weight,
            "reason": self.reason,
            "evidence": dict(self.evidence),
            "release": self.release.as_json(),
        }

    @classmethod
    def from_json(cls, found: Any) -> Line:
        """The inverse of `as_json`.

        Raises:
            DataError: it is no such line.
        """
        try:
            return cls(
                int(found["seq"]),
                float(found["t"]),
                Event(found["event"]),
                Stage(found["from"]),
                Release.from_json(found["release"]),
                str(found["reason"]),
                dict(found["evidence"]),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(f"is no line of an audit log ({e!r})") from e


@dataclass(frozen=True)
class Request:
    """What a person asked for.

    Attributes:
        what: approve or abort.
        release: number of the release that was meant.
        reason: in the person's words.
        by: the person's login.
        refuse: abort: whether the artefact is to be refused from now on.
    """

    what: str
    release: int
    reason: str = ""
    by: str = ""
    refuse: bool = False


def read_audit(folder: Path) -> list[Line]:
    """All lines, oldest first.

    Raises:
        DataError: a line is damaged; the message names it.
    """
    return read_lines(folder / AUDIT, Line.from_json, f"the release's state rests on this file: {_REMEDY}")


def under_way(folder: Path) -> Release | None:
    """The release that has not ended, as the audit log knows it; None if there is none.

    Raises:
        DataError: a line is damaged.
    """
    lines = read_audit(folder)
    return None if not lines or lines[-1].release.stage.over else lines[-1].release


def append_audit(folder: Path, line: Line, *, durable: bool = True) -> None:
    """Add a line (see `append_line`)."""
    append_line(folder / AUDIT, line.as_json(), durable=durable)


def repair(folder: Path) -> None:
    """Remove what a kill left of half-written lines and files; for whoever holds the lock."""
    for name in (AUDIT, REFUSED):
        cut_torn(folder / name)
    sweep_temporaries(folder, [STATE, AUDIT, REFUSED])


def read_state(folder: Path) -> dict[str, Any] | None:
    """What canary.json holds; None if there is none.

    Raises:
        DataError: it is damaged.
    """
    path = folder / STATE
    if not path.exists():
        return None
    found = read_json(path)
    if not isinstance(found, dict) or not {"release", "weighed", "config", "evidence"} <= set(found):
        raise DataError(f"{path}: is no state of a release; {_REMEDY}")
    return found


def write_state(folder: Path, value: Mapping[str, Any]) -> None:
    """Replace canary.json."""
    write_json(folder / STATE, value)


# --- refused artefacts -----------------------------------------------------------------------------------------


def refusal(folder: Path, sha256: str) -> str:
    """Why an artefact is refused; "" if it is not.

    Raises:
        DataError: the list is damaged.
    """
    last = None
    for entry in _refused(folder):
        if entry["sha256"] == sha256:
            last = entry
    return "" if last is None or last["allowed"] else str(last["reason"]) or "no reason given"


def check_not_refused(folder: Path, sha256: str) -> None:
    """Object to an artefact that has been rolled back.

    Raises:
        Refused: it has, and nobody has said otherwise since.
        DataError: the list is damaged.
    """
    if reason := refusal(folder, sha256):
        raise Refused(
            f"{sha256[:12]} has been rolled back before: {reason}; make another artefact, or "
            f"'td-loop deploy allow {sha256[:12]} --dir {folder} --reason ...'"
        )


def refuse(folder: Path, sha256: str, reason: str, release: int) -> None:
    """Put an artefact on the list, unless it is refused already."""
    if not refusal(folder, sha256):
        entry = {"sha256": sha256, "allowed": False, "reason": reason or "rolled back", "release": release}
        append_line(folder / REFUSED, entry | {"t": time.time()})


def allow(folder: Path, sha256: str, reason: str) -> str:
    """Take an artefact off the list; return its full hash.

    Args:
        folder: of the releases.
        sha256: or the first letters of it (6 at least).
        reason: why, for those who come later.

    Raises:
        DataError: it is not on the list, several begin so, or the list is damaged.
    """
    known = {entry["sha256"] for entry in _refused(folder)}
    meant = {sha for sha in known if sha.startswith(sha256) and refusal(folder, sha)}
    if len(meant) != 1 or len(sha256) < 6:
        which = ", ".join(sorted(sha[:12] for sha in known if refusal(folder, sha))) or "none"
        raise DataError(f"{sha256}: names no one artefact that is refused; there are: {which}")
    found = str(meant.pop())
    entry = {"sha256": found, "allowed": True, "reason": reason, "by": _login(), "t": time.time()}
    append_line(folder / REFUSED, entry)
    return found


def _refused(folder: Path) -> list[dict[str, Any]]:
    def parse(found: Any) -> dict[str, Any]:
        if isinstance(found, dict) and {"sha256", "allowed", "reason"} <= set(found):
            return found
        raise DataError("is no entry of a list of refused artefacts")

    return read_lines(folder / REFUSED, parse, _REMEDY)


# --- what people ask for ---------------------------------------------------------------------------------------


def ask(folder: Path, request: Request) -> None:
    """Leave a request for the controller."""
    write_json(folder / f"{request.what}.json", vars(request) | {"by": _login()})


def asked(folder: Path, what: str) -> Request | None:
    """The request that was left, if any. One that cannot be read counts as none, but for an abort, which is
    meant."""
    path = folder / f"{what}.json"
    if not path.exists():
        return None
    try:
        return Request(**read_json(path))
    except (DataError, TypeError):
        return Request("abort", 0, f"{path.name} is there, and cannot be read") if what == "abort" else None


def forget(folder: Path, what: str) -> None:
    """Take a request away."""
    remove(folder / f"{what}.json")


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for the user
        return str(os.getuid())
