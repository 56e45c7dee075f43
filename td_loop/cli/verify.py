"""`td-loop verify`: is a run directory what it must be?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from td_loop.errors import DataError
from td_loop.loop.config import RunConfig


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("verify", epilog="Exit codes: 0 nothing wrong, 64 usage, 65 faults (listed), or no such run.")(
        verify_command
    )


def verify_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or the tag of a run.")],
    runs_dir: Annotated[Path, typer.Option(help="Folder of the run folders, for a tag.")] = RunConfig.runs_dir,
) -> None:
    """Check every hash and every invariant of a run directory, and say what is wrong.

    Looked at are the manifest (does it agree with itself?), the promoted weights (is every byte as it was?), the
    links, and of every attempt the checks, the report of fit and, where retention left it, the cache. Each fault
    comes with the file, what was found, what was expected, and what to do about it. The invariants I1 to I11 stand
    in docs/architecture.md; all but I10, which takes a second run, are checked as far as a folder can show them.

    Nothing is changed, ever. It may be called while a driver works on the run: the attempt in progress is left
    alone.
    """
    from td_loop.loop.verify import examine
    from td_loop.report.find import find_run
    from td_loop.report.verify import verify_text

    folder = find_run(run, runs_dir)
    examination = examine(folder)
    typer.echo(verify_text(folder, examination))
    if (n := len(examination.faults)) > 0:
        raise DataError(f"{folder}: {n} fault{'s' if n > 1 else ''} (listed above)")
