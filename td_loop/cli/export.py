"""`td-loop export`: make a Kaggle submission of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("export")(export_command)


def export_command(
    weights: Annotated[Path, typer.Option(help="The value function to play with.")],
    out: Annotated[Path, typer.Option(help="A new folder, or a new file whose name ends in .tar.gz.")],
) -> None:
    """Write a self-contained Orbit Wars agent: main.py, weights, the modules and kernels that it needs.

    It needs nothing but numpy and numba where it plays. It is tried before it is written, through the official
    environment if that is installed and through ours otherwise; one that fails is not written.
    """
    from td_loop.games.orbit_wars.export import export

    export(weights, out, say=lambda line: typer.echo(f"export: {line}"))
