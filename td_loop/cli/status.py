"""`td-loop status`: where a run stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from td_loop.loop.config import RunConfig


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("status")(status_command)


def status_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or the tag of a run.")],
    runs_dir: Annotated[Path, typer.Option(help="Folder of the run folders, for a tag.")] = RunConfig.runs_dir,
    as_json: Annotated[
        bool, typer.Option("--json", help="The same for programs; NaN and infinities are strings.")
    ] = False,
) -> None:
    """Show where a run stands: how each iteration ended, what it took, and whether a driver works on it now.

    A row is an attempt of an iteration. val_nll is its final val_mc_nll, the loss on the validation rows;
    baseline is that of the weights it started from; KL is how far the targets moved since the iteration before;
    fallback is the share of agent rows in which the search gave no decision; knots counts features that drifted
    off their knots. val_mc_nll only tells that nothing broke: which weights play best, games decide.

    Reading changes nothing, and does not disturb a driver that is at work.
    """
    from td_loop.files import dumps_json
    from td_loop.report.find import find_run, sound_records
    from td_loop.report.status import status, status_text

    folder = find_run(run, runs_dir)
    found = status(folder)
    with sound_records(folder):
        shown = dumps_json(found, indent=True).decode() if as_json else status_text(found)
    typer.echo(shown)
