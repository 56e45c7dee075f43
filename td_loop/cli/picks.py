"""`td-loop picks`: which checkpoint of a run to deploy, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from td_loop.errors import DataError
from td_loop.loop.config import RunConfig

if TYPE_CHECKING:
    from td_loop.arena.picks import Pick
    from td_loop.loop.manifest import Manifest

DEPLOY = "deploy.npz"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("picks")(picks_command)


def picks_command(
    run: Annotated[str, typer.Argument(help="A run directory, or the tag of a run.")],
    runs_dir: Annotated[Path, typer.Option(help="Folder of the run folders, for a tag.")] = RunConfig.runs_dir,
    store: Annotated[
        list[Path] | None,
        typer.Option(help="File of games; can be given twice.", show_default="arena/2p.games, arena/4p.games"),
    ] = None,
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help=f"Point {DEPLOY} in the run's folder at the pick."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same for programs.")] = False,
) -> None:
    """Say which checkpoint to deploy, by the games of `td-loop tournament --run RUN`.

    Picked is the strongest by Elo: the mean over 2 and 4 seats, where both were played. Checkpoints that these
    games do not tell from it are named: play more rounds to know. val_mc_nll decides nothing: the best of it is
    only a floor, which says that nothing broke.
    """
    from td_loop.arena.picks import pick
    from td_loop.arena.store import IN_RUN, read_store
    from td_loop.cli.checkpoints import checkpoints
    from td_loop.files import dumps_json, point
    from td_loop.loop.fault import require_weights
    from td_loop.report.find import find_run, manifest_of

    folder = find_run(run, runs_dir)
    manifest = manifest_of(folder)
    paths = store or [path for name in IN_RUN.values() if (path := folder / name).exists()]
    if not paths:
        raise DataError(
            f"{folder}: no games of its checkpoints were played, and only games tell; play some with "
            f"`td-loop tournament --run {run} --promoted bootstrap`"
        )
    games = {}
    for path in paths:
        setting, found = read_store(path)
        if setting["seats"] in games:
            raise DataError(f"{path}: a second store of {setting['seats']} seats; give one of each")
        games[setting["seats"]] = found
    picked = pick(checkpoints(manifest), games)
    chosen = picked.candidates[0].checkpoint
    if deploy:
        require_weights(folder, chosen.path, chosen.sha256)
        point(folder / DEPLOY, chosen.path)
    if as_json:
        best = None if manifest.best_val is None else f"iter{manifest.best_val.iter}"
        content = {
            **picked.as_json(),
            "pick": chosen.label,
            "path": chosen.path,
            "tied": [c.checkpoint.label for c in picked.candidates if c.tied],
            "best_val_floor": best,
            "latest_good": manifest.latest_good,
            "deployed": deploy,
        }
        typer.echo(dumps_json(content, indent=True).decode())
        return
    typer.echo(picks_text(picked, manifest))
    if deploy:
        typer.echo(f"{folder / DEPLOY} -> {chosen.path}")


def picks_text(picked: Pick, manifest: Manifest) -> str:
    """The pick and its reasons, in at most 80 columns."""
    from td_loop.report.text import indented, number
    from td_loop.text import table

    first, *others = picked.candidates
    tied = [c.checkpoint.label for c in others if c.tied]
    played = " and ".join(f"{n} maps with {seats} seats" for seats, n in sorted(picked.rounds.items()))
    lines = indented(
        "",
        f"deploy {first.checkpoint.label} ({first.checkpoint.path}): the strongest of {len(picked.candidates)} "
        f"checkpoints by {played}, at {picked.budget} a move",
    )
    if tied:
        lines += indented("", f"tied with it, as far as these games tell (95 %): {', '.join(tied)}")
    if picked.unplayed:
        lines += indented("", f"not in every tournament, and therefore not compared: {', '.join(picked.unplayed)}")
    seats = sorted(picked.rounds)
    best = None if manifest.best_val is None else f"iter{manifest.best_val.iter}"
    head = ("checkpoint", *(f"{s} seats" for s in seats), "Elo", "behind", "95 % interval", "val_nll", "")
    rows = []
    for c in picked.candidates:
        floor = "best_val: a floor only" if c.checkpoint.label == best else ""
        rows.append(
            (
                c.checkpoint.label,
                *(f"{c.elo[s]:+.0f}" for s in seats),
                f"{c.mean:+.0f}",
                f"{c.behind:.0f}",
                "" if c is first else f"{c.low:+.0f} .. {c.high:+.0f}",
                number(c.checkpoint.val_mc_nll),
                floor,
            )
        )
    return "\n".join([*lines, "", *table(head, rows, "<" + ">" * len(seats) + ">>>><")])
