"""`td-loop deploy simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command("simulate")(simulate)


def simulate(
    url: Annotated[
        str | None,
        typer.Option(
            help="The server, or a router in front of it.  [default: the server of --dir]", show_default=False
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="The server's folder.")] = Path("deploy"),
    game: Annotated[str, typer.Option(help="What is played: a name, or package.module:ATTRIBUTE.")] = "orbit_wars",
    episodes: Annotated[int, typer.Option(help="Games, in all.")] = 20,
    clients: Annotated[int, typer.Option(help="Games at the same time.")] = 4,
    opponent: Annotated[str, typer.Option(help="The built-in player in all other seats.")] = "starter",
    players: Annotated[int, typer.Option(help="Seats of a game.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the first game.")] = 0,
    maps: Annotated[int, typer.Option(help="Different games, played over and over; 0: no two are the same.")] = 0,
    packed: Annotated[bool, typer.Option("--packed", help="Ask with binary bodies.")] = False,
    every: Annotated[
        bool, typer.Option("--every", help="Report the outcome for every decision, not the last.")
    ] = False,
    pace_ms: Annotated[float, typer.Option(help="Between two turns of a client.")] = 0.0,
) -> None:
    """Play whole games through a server and report their outcomes as rewards: traffic to try a release with.

    Each game is an episode. Its reward is 1 for a win and 0 for a loss, for the game's last decision. With --maps
    states come again, and a policy that answers one in two ways is found out.

    Exit codes: 1 when a request failed (said at once, and counted at the end); 130 or 143 after SIGINT or SIGTERM,
    with what was played so far.
    """
    from td_loop.deploy.client import Client
    from td_loop.deploy.served import served_game
    from td_loop.deploy.simulate import Simulation, table
    from td_loop.deploy.simulate import simulate as run
    from td_loop.signals import Signals

    where = url if url is not None else Client.of_folder(folder).url
    pace_s = pace_ms / 1000.0
    simulation = Simulation(where, episodes, clients, opponent, players, seed, maps, packed, every, pace_s)
    with Signals() as signals:
        played = run(
            served_game(game),
            simulation,
            lambda: signals.received is not None,
            lambda why: typer.echo(f"failed: {why}", err=True),
        )
        typer.echo("\n".join(table(played)))
        signals.check()
    if played.failures:
        raise typer.Exit(1)
