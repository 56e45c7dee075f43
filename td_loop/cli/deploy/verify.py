"""`td-loop deploy verify`: may this artefact have traffic?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_EPILOG = (
    "Exit codes: 0 passed; 8 a check failed (named); 64 usage; 65 the file is no artefact of this game; "
    "74 the record cannot be written."
)


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command("verify", epilog=_EPILOG)(verify_command)


def verify_command(
    artefact: Annotated[Path, typer.Argument(metavar="ARTEFACT", help="What `td-loop policy fit` made.")],
    game: Annotated[str, typer.Option(help="The game, or anybody's by package.module:ATTRIBUTE.")] = "orbit_wars",
    sla_ms: Annotated[
        float, typer.Option(min=0.001, help="Milliseconds that a decision may take on one core, p50 and p99.")
    ] = 10.0,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Folder of the record.", show_default="that of the artefact"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The record for programs, passed or not.")] = False,
) -> None:
    """Examine a policy before it gets any traffic.

    The checks: the shape of its output, and finite numbers; the same logits from onnxruntime, numpy and torch, and
    as stored when it was made; the same bits for the same state, call after call and from several threads; no
    random numbers in its graph; legal actions in games of the game's own players; masked padding that changes
    nothing, and every length that may come; how soon it is warm; latency. It takes some seconds.

    One that passes all of them gets a record, ARTEFACT.verified.json, which holds for these bytes alone. Without
    it `td-loop deploy serve` and `td-loop deploy canary` refuse the artefact.
    """
    import time

    from td_loop.deploy.admission.record import as_json as record
    from td_loop.deploy.admission.record import keep_record
    from td_loop.deploy.admission.table import verification_text
    from td_loop.deploy.admission.verify import verify
    from td_loop.deploy.served import served_game
    from td_loop.errors import Refused
    from td_loop.files import dumps_json
    from td_loop.policy.artefact import read_artefact

    of = served_game(game)
    found = verify(read_artefact(artefact, of.contract), of, sla_ms=sla_ms)
    kept = keep_record(found, folder)
    if as_json:
        typer.echo(dumps_json(record(found, time.time()), indent=True).decode())
    else:
        typer.echo(verification_text(found))
        if kept is not None:
            typer.echo(f"passed; the record is {kept}")
    if found.failed:
        names = ", ".join(check.name for check in found.failed)
        raise Refused(f"{artefact}: failed {names}; it gets no traffic")
