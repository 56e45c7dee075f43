"""All attempts that a run directory knows of: those on record, those set aside, and the one in progress."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from td_loop.errors import DataError
from td_loop.files import read_json
from td_loop.lock import Holder
from td_loop.loop.layout import BOOTSTRAP_COPY, TRIMMED, AttemptPaths, attempt_of
from td_loop.loop.manifest import IterRecord, Json, Manifest, Status


class Place(StrEnum):
    """Where an attempt stands."""

    RECORDED = "recorded"
    """In the manifest."""
    TRIMMED = "trimmed"
    """A resume set it aside, because it was not promoted."""
    IN_PROGRESS = "in progress"
    """A driver works on it."""
    UNFINISHED = "unfinished"
    """Its driver was killed; the next start sets it aside."""


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    Attributes:
        place: where it stands.
        record: what is known of it. Of one that is not on record: the checks of its validation.json, and
            `interrupted` where that says no status.
        folder: its folder, relative to the run directory.
    """

    place: Place
    record: IterRecord
    folder: str

    @property
    def name(self) -> str:
        """`3`, or `3r1` for the retry."""
        r = self.record
        return f"{r.i}r{r.attempt}" if r.attempt else f"{r.i}"

    @property
    def stage(self) -> str:
        """How far it came: "prepare", "fit", "gate" while its match is played, or "" when all was judged."""
        r = self.record
        if r.stage3_validation is None:
            return "prepare"
        if r.stage4_validation is None:
            return "fit"
        return "gate" if r.gate is not None and r.gate.get("exit_code") is None else ""

    def training(self, run: Path) -> Json:
        """Its weights.training.json; empty where there is none that can be read."""
        return _json_object(AttemptPaths(run, self.folder).training)


def recorded(manifest: Manifest) -> list[Attempt]:
    """The attempts of the manifest, in the order in which they were run.

    Raises:
        DataError: a `previous_attempt` is not a record.
    """
    found = []
    for record in manifest.iters:
        if (before := _retried(record)) is not None:
            found.append(_of_record(before))
        found.append(_of_record(record))
    return found


def _of_record(record: IterRecord) -> Attempt:
    return Attempt(Place.RECORDED, record, record.iter_dir)


def _retried(record: IterRecord) -> IterRecord | None:
    try:
        return record.retried
    except (KeyError, TypeError, ValueError) as e:
        raise DataError(f"manifest.json: previous_attempt is not a record ({e}); see td-loop verify") from e


def unrecorded(run: Path, manifest: Manifest, driver: Holder | None) -> list[Attempt]:
    """Attempts in folders that no record names: what a driver does now, or what a killed one left."""
    named = {attempt.folder for attempt in recorded(manifest)}
    place = Place.UNFINISHED if driver is None else Place.IN_PROGRESS
    found = []
    for folder in sorted(p for p in run.iterdir() if p.is_dir()):
        which = attempt_of(folder.name)
        if which is None or folder.name in named:
            continue
        if driver is None and not {str(p.relative_to(run)) for p in folder.iterdir()} - {BOOTSTRAP_COPY}:
            continue
        found.append(_of_folder(place, run, folder.name, *which))
    return sorted(found, key=lambda a: (a.record.i, a.record.attempt))


def trimmed(run: Path) -> list[Attempt]:
    """Attempts that were set aside, `trimmed/iter3`, `trimmed/iter3.1` and so on, the oldest first."""
    found = []
    aside = run / TRIMMED
    for folder in aside.iterdir() if aside.is_dir() else ():
        name, _, number = folder.name.partition(".")
        which = attempt_of(name)
        if which is not None and folder.is_dir():
            order = (which[0], int(number) if number.isdecimal() else 0, which[1])
            found.append((order, _of_folder(Place.TRIMMED, run, f"{TRIMMED}/{folder.name}", *which)))
    return [attempt for _, attempt in sorted(found, key=lambda pair: pair[0])]


def _of_folder(place: Place, run: Path, folder: str, i: int, attempt: int) -> Attempt:
    seen = _json_object(AttemptPaths(run, folder).validation)
    status = seen.get("status")
    record = IterRecord(
        i,
        attempt,
        folder,
        v_snap="",
        v_snap_sha256="",
        status=Status(status) if status in list(Status) else Status.INTERRUPTED,
        gate=_match(seen.get("gate")),
        stage3_validation=_checks(seen.get("stage3")),
        stage4_validation=_checks(seen.get("stage4")),
        knot_coverage=seen.get("knot_coverage"),
    )
    return Attempt(place, record, folder)


def _checks(validation: object) -> Json | None:
    """What can be shown of a file that nobody answers for: one that was edited must not hide all the others."""
    if not isinstance(validation, dict):
        return None
    keys = {"severity", "passed", "message", "numbers"}
    return {
        check: found
        for check, found in validation.items()
        if not check.startswith("S") or (isinstance(found, dict) and keys <= found.keys())
    }


def _match(found: object) -> Json | None:
    """What can be shown of a match, likewise."""
    if not isinstance(found, dict) or not isinstance(found.get("config"), dict):
        return None
    numbers = ("wall_s", "exit_code", "llr", "rounds", "games", "score")
    return found if all(isinstance(found.get(key), int | float | None) for key in numbers) else None


def _json_object(path: Path) -> Json:
    try:
        content = read_json(path)
    except (DataError, OSError):
        return {}
    return content if isinstance(content, dict) else {}
