"""`td-loop deploy postmortem`: why was a canary rolled back?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command(
        "postmortem",
        epilog="Exit codes: 0 written, whatever was found; 65 no release was rolled back, or the log is damaged; "
        "74 the report cannot be written.",
    )(postmortem_command)


def postmortem_command(
    folder: Annotated[Path, typer.Option("--dir", help="Folder of the canary's releases.")] = Path("deploy"),
    release: Annotated[
        int | None, typer.Option(min=1, help="Its number.", show_default="the newest that was rolled back")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to.", show_default="that of --dir")] = None,
) -> None:
    """Write postmortem.md and postmortem.json of a rollback: the evidence, and four questions as checks.

    Have live inputs shifted from the training data, feature by feature? Is exploration noise still on? Does
    padding or sequence length change what the network sees? Was the machine short of cores, throttled or hot? Each
    passes, fails or cannot be checked, with figures. Find the cause among them before you train again.

    The controller writes it after every rollback. It can be written again at any time: it rests on the audit log,
    and on the artefact where that still lies where it lay.
    """
    from td_loop.deploy.postmortem.page import QUESTIONS
    from td_loop.deploy.postmortem.write import write_postmortem
    from td_loop.text import table

    written = write_postmortem(folder, release, out=out)
    case = written.case
    typer.echo(f"release {case.release.number}, canary {case.release.sha256[:12]}: {case.reason}")
    rows = [(QUESTIONS[a.name].partition(":")[0], str(a.outcome).replace("_", " ")) for a in written.answers]
    typer.echo("\n".join(table(("question", "answer"), rows, "<<")))
    typer.echo(f"{written.page}\n{written.data}")
