"""`td-loop replays import|verify|info`: recorded games into a store, and what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from td_loop.errors import DataError, UsageError

_SOURCES = "Episode files, folders, globs or zips of .json or .json.gz."
_SOURCES_OR_STORE = "A store, or episode files, folders, globs or zips of .json or .json.gz."
_NAMES_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    replays = typer.Typer(no_args_is_help=True, help="Recorded games of Orbit Wars: import, verify, describe.")
    replays.command("import")(import_command)
    replays.command("verify")(verify_command)
    replays.command("info")(info_command)
    app.add_typer(replays, name="replays")


def import_command(
    sources: Annotated[list[str], typer.Argument(help=_SOURCES, metavar="SOURCE")],
    out: Annotated[Path, typer.Option(help="Folder of the store to make; refused if it exists (see --append).")],
    append: Annotated[bool, typer.Option("--append", help="Add games to the store that is there.")] = False,
    verify: Annotated[
        bool, typer.Option(help="Play each game again with our engine and keep the verdict in the store.")
    ] = True,
) -> None:
    """Read Kaggle episode files into a compact store that gives random access to every frame.

    Every frame is kept as it was observed, whether or not today's rules reproduce it, so games of older module
    versions are welcome. A file that cannot be used is named with the reason and skipped; a game that is there
    already is reported and not added again. A game in which a seat crashed (ERROR, TIMEOUT or INVALID) keeps its
    frames before the crash in use, but not its outcome; a game cut short has no outcome.

    Exits 65 only if nothing could be imported; no store is left behind then.
    """
    from td_loop.games.orbit_wars.replays.importer import import_games
    from td_loop.games.orbit_wars.replays.sources import find_sources

    try:
        report = import_games(
            find_sources(sources),
            out,
            append=append,
            verify=verify,
            say=lambda reason: typer.echo(f"skipped {reason}", err=True),
        )
    except FileExistsError as e:
        raise UsageError(f"--out {out} exists already; add to it with --append, or name another folder") from e
    _list("the same game as another, not added again", [f"{n} = {other}" for n, other in report.duplicates])
    _list("no outcome to learn from", [f"{name}: {why}" for name, why in report.no_outcome])
    _list("not reproduced by our engine (frames kept)", [f"{name}: {why}" for name, why in report.inexact])
    typer.echo(
        f"{out}: {report.imported} games imported ({report.frames} frames, {report.launches} launches), "
        f"{len(report.duplicates)} duplicates, {len(report.skipped)} skipped"
    )


def verify_command(
    sources: Annotated[list[str], typer.Argument(help=_SOURCES_OR_STORE, metavar="STORE|SOURCE")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="List only games that are not exact.")] = False,
) -> None:
    """Play each game again with our engine and compare every frame, bit for bit.

    From its seed if the file has one: map, comets, every turn and the rewards. Without a seed each recorded frame
    is stepped once and compared with the next. The table names the first turn and field that differ; what cannot
    be read is listed too.

    Exits 65 if any game differs or cannot be read.
    """
    from td_loop.games.orbit_wars.replays.summary import verify_lines

    bad = 0
    total = 0
    for line, good in verify_lines(sources):
        total += 1
        bad += not good
        if not (good and quiet):
            typer.echo(line)
    typer.echo(f"{total - bad} of {total} games agree with our engine")
    if bad:
        raise DataError(f"{bad} of {total} games differ or cannot be read (listed above)")


def info_command(
    sources: Annotated[list[str], typer.Argument(help=_SOURCES_OR_STORE, metavar="STORE|SOURCE")],
) -> None:
    """What is in a store or in episode files: seats, versions, frames, launches, winners, crashes, size."""
    from td_loop.games.orbit_wars.replays.summary import describe

    typer.echo(describe(sources))


def _list(title: str, lines: Sequence[str]) -> None:
    """Up to a screenful of names; the rest are counted."""
    if lines:
        typer.echo(f"{title}:")
        for line in lines[:_NAMES_SHOWN]:
            typer.echo(f"  {line}")
        if len(lines) > _NAMES_SHOWN:
            typer.echo(f"  ... and {len(lines) - _NAMES_SHOWN} more")
