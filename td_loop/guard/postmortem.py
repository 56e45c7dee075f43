"""Write the postmortem: Markdown, JSON, and a plot where matplotlib is there (extra `guard-plot`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from td_loop.files import dumps_json, write_bytes
from td_loop.guard import plot
from td_loop.guard.audits import Facts
from td_loop.guard.examine import Postmortem, as_json, examine, limits, shown
from td_loop.guard.postmortem_page import markdown

PAGE, DATA, PICTURE = "postmortem.md", "postmortem.json", "postmortem.png"


@dataclass(frozen=True)
class Written:
    """What `write_postmortem` left.

    Attributes:
        found: what there was to say.
        page, data: the Markdown and the JSON.
        picture: the plot; None without matplotlib or telemetry.
    """

    found: Postmortem
    page: Path
    data: Path
    picture: Path | None


def write_postmortem(
    folder: Path, facts: Facts | None = None, *, base: Path | None = None, out: Path | None = None
) -> Written:
    """Examine a guard's folder and write the report. Nothing else in it changes.

    Args:
        folder: the guard's (`--dir`).
        facts: what guard.toml declares in `[audit]`.
        base: what relative paths in `facts` start from: the folder of guard.toml; else the working directory.
        out: the folder to write to; `folder` if not told.

    Raises:
        DataError: there is nothing to examine, or a file is damaged or cannot be read.
        StorageError: the disk is full, read-only or failing.
    """
    found = examine(folder, facts or Facts(), base or Path())
    out = out or folder
    metrics = shown(found)
    image = plot.png(metrics, found.trip.step if found.trip else None, limits(found.trip)) if metrics else None
    if image is not None:
        write_bytes(out / PICTURE, image)
    write_bytes(out / DATA, dumps_json(as_json(found), indent=True) + b"\n")
    write_bytes(out / PAGE, markdown(found, picture=None if image is None else PICTURE).encode())
    return Written(found, out / PAGE, out / DATA, None if image is None else out / PICTURE)
