"""`td-loop selfplay`: play games of our own agents and keep them as a replay set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from td_loop.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("selfplay")(selfplay)


def selfplay(
    out: Annotated[Path, typer.Option(help="The npz to write.")],
    games_2p: Annotated[int, typer.Option("--games-2p", min=0, help="Games of 2 seats.")] = 200,
    games_4p: Annotated[int, typer.Option("--games-4p", min=0, help="Games of 4 seats.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="What maps, players and their luck are drawn from.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that play; the games stay the same.")] = 1,
    weights: Annotated[
        Path | None, typer.Option(help="A value function: some games are between searches under it.")
    ] = None,
    search_evals: Annotated[
        int | None,
        typer.Option(min=1, help="The most candidates a move that a search may evaluate; repeats."),
    ] = None,
    search_seconds: Annotated[
        float | None,
        typer.Option(min=0.0, help="The most seconds a move that a search may think; cannot repeat exactly."),
    ] = None,
    search_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Part of the games that is between searches.")
    ] = 0.5,
) -> None:
    """Play Orbit Wars games of our own agents, of mixed styles and strengths, and keep seeds and actions.

    OUT is a replay set, for --replays. The same command makes the same file, byte for byte (unless
    --search-seconds is used). Searches get between an eighth and all of the budget, each seat its own.
    """
    from td_loop.files import sha256
    from td_loop.games.base import Budget
    from td_loop.games.orbit_wars.game import GAME
    from td_loop.games.orbit_wars.replays.bundled import BundledGame, write_bundle
    from td_loop.games.orbit_wars.selfplay import Recipe, play_set
    from td_loop.progress import progress
    from td_loop.value.io import load_weights

    if out.exists() and not force:
        raise UsageError(f"{out} is there already; give --force to replace it, or another --out")
    has_budget = search_evals is not None or search_seconds is not None
    recipe = Recipe(
        games_2p=games_2p,
        games_4p=games_4p,
        seed=seed,
        weights=weights,
        budget=Budget(search_seconds, search_evals) if has_budget else None,
        search_share=search_share,
    )
    if weights is not None:  # a file that cannot be used is found before an hour of games, not after
        load_weights(weights, feature_names=GAME.feature_names)
    games: list[BundledGame] = []
    names: list[list[str]] = []
    wins = {2: [0.0] * 2, 4: [0.0] * 4}
    with progress("games", recipe.n_games) as advance:
        for players, played in play_set(recipe, workers):
            games.append(played.game)
            names.append([str(p) for p in players])
            for seat in range(len(players)):
                wins[len(players)][seat] += float(played.result[seat])
            advance(1)
    about = {
        "made_by": "td-loop selfplay",
        "seed": seed,
        "search": None
        if weights is None
        else {
            "weights_sha256": sha256(weights),
            "evals": search_evals,
            "seconds": search_seconds,
            "share": search_share,
        },
        "players": names,
    }
    write_bundle(out, games, episode_steps=recipe.episode_steps, about=about)
    typer.echo(f"{out}: {len(games)} games, {out.stat().st_size / 1e6:.2f} MB")
    for seats, won in wins.items():
        _describe(sorted(len(g.actions) + 1 for g in games if g.n_players == seats), won)


def _describe(lengths: Sequence[int], won: Sequence[float]) -> None:
    if not lengths:
        return
    typer.echo(
        f"{len(won)} seats: {len(lengths)} games, {sum(lengths)} frames; shortest, median, longest: "
        f"{lengths[0]}, {lengths[len(lengths) // 2]}, {lengths[-1]}"
    )
    typer.echo(f"         wins by seat: {', '.join(f'{w:g}' for w in won)}")
