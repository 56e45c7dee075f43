"""Write the postmortem of a rollback: Markdown for people, JSON for programs."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from td_loop.deploy.canary.store import Line
from td_loop.deploy.observe.engine import EngineMeter
from td_loop.deploy.postmortem.artefact import Examined, examine_artefact
from td_loop.deploy.postmortem.case import Case, read_case
from td_loop.deploy.postmortem.page import QUESTIONS, markdown
from td_loop.deploy.postmortem.questions import Answer, Outcome, answers
from td_loop.files import dumps_json, write_bytes

FORMAT_VERSION = 1
PAGE, DATA = "postmortem.md", "postmortem.json"


@dataclass(frozen=True)
class Written:
    """What `write_postmortem` left.

    Attributes:
        case: the rollback.
        answers: to the four questions.
        page, data: the Markdown and the JSON.
    """

    case: Case
    answers: tuple[Answer, ...]
    page: Path
    data: Path

    @property
    def failed(self) -> list[Answer]:
        """The questions whose answer may be the cause."""
        return [a for a in self.answers if a.outcome is Outcome.FAIL]


def write_postmortem(folder: Path, number: int | None = None, *, out: Path | None = None) -> Written:
    """Examine a rollback and write the report. Nothing else in the folder changes.

    Args:
        folder: of the canary's releases (`--dir`).
        number: of the release; None: the newest that was rolled back.
        out: where to write; `folder` if not told.

    Raises:
        DataError: no release was rolled back, or the audit log is damaged.
        StorageError: the disk is full, read-only or failing.
    """
    case = read_case(folder, number)
    examined = examine_artefact(Path(case.release.path), case.release.sha256)
    found = answers(case, examined, EngineMeter().read())
    out = out or folder
    write_bytes(out / DATA, dumps_json(as_json(case, examined, found), indent=True) + b"\n")
    write_bytes(out / PAGE, markdown(case, examined, found).encode())
    return Written(case, found, out / PAGE, out / DATA)


def after_rollback(folder: Path, cause: Line) -> None:
    """What the canary's controller calls when it has withdrawn a canary (see `canary.world.Postmortem`)."""
    write_postmortem(folder, cause.release.number)


def as_json(case: Case, examined: Examined, found: tuple[Answer, ...]) -> dict[str, Any]:
    """The report as JSON data."""
    return {
        "format_version": FORMAT_VERSION,
        "release": case.release.number,
        "sha256": case.release.sha256,
        "path": case.release.path,
        "t": case.t,
        "utc": datetime.datetime.fromtimestamp(case.t, datetime.UTC).isoformat(timespec="seconds"),
        "stage": case.stage,
        "weight": case.weight,
        "reason": case.reason,
        "triggers": case.triggers,
        "findings": case.findings,
        "seconds": case.seconds,
        "stable": None if case.stable is None else asdict(case.stable),
        "canary": None if case.canary is None else asdict(case.canary),
        "engine": case.engine,
        "note": case.note,
        "questions": [{**asdict(a), "outcome": str(a.outcome), "question": QUESTIONS[a.name]} for a in found],
        "artefact": {
            "fault": examined.fault,
            "checks": [asdict(c) for c in (examined.checks or {}).values()],
            "not_finite_beyond_training": examined.beyond,
        },
    }
