"""`td-loop explain`: why an iteration ended as it did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from td_loop.loop.config import RunConfig


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("explain")(explain_command)


def explain_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or the tag of a run.")],
    which: Annotated[str, typer.Argument(metavar="ITER", help="3: iteration 3; 3_retry1: its retry alone.")],
    runs_dir: Annotated[Path, typer.Option(help="Folder of the run folders, for a tag.")] = RunConfig.runs_dir,
) -> None:
    """Say why an iteration was promoted, reverted, aborted or interrupted.

    Every attempt of the iteration is shown: the first one and its retry, those that a resume set aside in
    trimmed/, and the one in progress. For each: the reason, what the stages took, and every check with what was
    measured, what was allowed, and the verdict. A hard check that fails aborts the run; of the soft ones only
    S4.3 costs anything: it reverts the iteration. The others warn.
    """
    from td_loop.report.explain import explain
    from td_loop.report.find import find_run

    typer.echo(explain(find_run(run, runs_dir), which))
