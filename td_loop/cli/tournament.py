"""`td-loop tournament`: contestants play each other; ratings, or a sequential test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from td_loop.errors import UsageError
from td_loop.loop.config import RunConfig

if TYPE_CHECKING:
    from td_loop.arena.tournament import Results, Tournament

ROUNDS, SPRT_ROUNDS, SEARCH_S = 100, 2000, 0.2
_SLICE = re.compile(r"(-?\d*):(-?\d*)(?::(-?\d*))?|(-?\d+)")


class _SliceIsOptional(TyperCommand):
    """`--promoted` alone is `--promoted :`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given: list[str] = []
        for k, word in enumerate(args):
            given.append(word)
            if word == "--promoted" and (k + 1 == len(args) or not _SLICE.fullmatch(args[k + 1])):
                given.append(":")
        return super().parse_args(ctx, given)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(
        "tournament",
        cls=_SliceIsOptional,
        epilog="Exit codes: 0 done, or H1 accepted; 6 H0 accepted; 7 the test ran out of rounds; 5 the store is "
        "in use; 64 usage; 65 a file cannot be used; 130, 143 stopped by a signal: the same command goes on.",
    )(tournament_command)


def tournament_command(
    contestants: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[[LABEL=]WHO[@BUDGET]]...",
            help="WHO is an .npz of weights, an .onnx of a policy, the .py file of an agent (or a folder with its "
            "main.py), a built-in player, or with --run: iterN, bootstrap, latest_good, best_val. BUDGET, for "
            "weights: 0.1s, or 400e for evals.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="A run directory, or the tag of a run: its checkpoints can play.")
    ] = None,
    runs_dir: Annotated[Path, typer.Option(help="Folder of the run folders, for a tag.")] = RunConfig.runs_dir,
    promoted: Annotated[
        str | None,
        typer.Option(
            metavar="[SLICE]",
            help="All promoted checkpoints of --run play, or a slice: -3: or 0::2 or -1.",
        ),
    ] = None,
    seats: Annotated[int, typer.Option(help="2 or 4.")] = 2,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Maps on which each two meet (4 seats: tables of four). With --sprt, the most that it may take.",
            show_default=f"{ROUNDS}, or {SPRT_ROUNDS} with --sprt",
        ),
    ] = None,
    focus: Annotated[
        str | None,
        typer.Option(help="Label of a contestant that plays each other one (4 seats: alone against three)."),
    ] = None,
    budget_s: Annotated[float, typer.Option(help="Seconds that a search may take a move.")] = SEARCH_S,
    budget_evals: Annotated[
        int | None, typer.Option(help="Candidates it may evaluate; replaces --budget-s and repeats exactly.")
    ] = None,
    sprt: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="ELO0 ELO1",
            help="Stop as soon as it is settled whether the first contestant is ELO0 or ELO1 above the second.",
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(help="With --sprt: how often ELO1 may be accepted at ELO0.")] = 0.05,
    beta: Annotated[float, typer.Option(help="With --sprt: how often ELO0 may be accepted at ELO1.")] = 0.05,
    store: Annotated[
        Path | None,
        typer.Option(
            help="File of the games; what is in it is not played again.",
            show_default="arena/2p.games or arena/4p.games in the run's folder, tournament_2p.games without a run",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="What maps, seats and luck are drawn from.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that play.", show_default="physical cores")
    ] = None,
    game: Annotated[str, typer.Option(help="The game, or anybody's by package.module:ATTRIBUTE.")] = "orbit_wars",
    act_timeout_s: Annotated[float, typer.Option(help="Seconds a move of an outside agent.")] = 1.0,
    overage_s: Annotated[float, typer.Option(help="Seconds a game that it has beyond those.")] = 60.0,
    memory_mb: Annotated[int, typer.Option(help="Megabytes of data of its process.")] = 4096,
    as_json: Annotated[bool, typer.Option("--json", help="The result for programs.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write that result to, besides what is said.")] = None,
) -> None:
    """Play contestants against each other, and say who is stronger and how surely.

    The games on one map, with the seats rotated, are a round. 2 seats: each two play a b and b a. 4 seats: four
    contestants sit together in 4 rotations; where there are two or three, one plays alone against three of
    another in every seat, and the other way round. No map comes twice. Every game is stored when it ends: the
    same command goes on where a killed one was, and more rounds or contestants add to what is there.

    An outside agent runs in a process of its own for each game, under the official clock. Running out of time, a
    crash or an invalid action loses it the game, and is counted.
    """
    from td_loop.arena.contestants import line_up, parse
    from td_loop.arena.game import playable
    from td_loop.arena.outside import Limits
    from td_loop.arena.sprt import Sprt
    from td_loop.arena.store import IN_RUN
    from td_loop.arena.tournament import Tournament
    from td_loop.arena.tournament import run as play
    from td_loop.cli.checkpoints import checkpoints, run_aliases
    from td_loop.games.base import Budget
    from td_loop.report.find import find_run, manifest_of

    the_game = playable(game)
    budget = Budget(seconds=budget_s) if budget_evals is None else Budget(evals=budget_evals)
    specs, aliases, folder = list(contestants or []), {}, None
    if run is not None:
        folder = find_run(run, runs_dir)
        manifest = manifest_of(folder)
        aliases = run_aliases(folder, manifest)
        if promoted is not None:
            specs += [c.label for c in _sliced(checkpoints(manifest)[1:], promoted)]
    elif promoted is not None:
        raise UsageError("--promoted needs --run RUN")
    found, notes = line_up([parse(spec, the_game, budget, aliases) for spec in specs])
    for note in notes:
        typer.echo(note, err=True)
    if store is None:
        store = Path(f"tournament_{seats}p.games") if folder is None else folder / IN_RUN.get(seats, "arena/games")
    config = Tournament(
        tuple(found),
        store,
        game=game,
        seats=seats,
        rounds=rounds if rounds is not None else ROUNDS if sprt is None else SPRT_ROUNDS,
        seed=seed,
        focus=focus,
        limits=Limits(act_timeout_s, overage_s, memory_mb),
        workers=workers,
        sprt=None if sprt is None else Sprt(*sprt, alpha, beta),
    )
    results = play(config)
    if config.sprt is None:
        _standings(config, results, as_json, out)
    else:
        _tested(config, results, as_json, out)


def _sliced(found: list[Any], text: str) -> list[Any]:
    match = _SLICE.fullmatch(text)
    if match is None:
        raise UsageError(f"--promoted {text}: not a slice; give -3: for the last three, or -1 for the last")
    if match[4] is not None:
        k = int(match[4])
        return found[k:][:1] if k >= 0 or -k <= len(found) else []
    start, stop, step = (int(x) if x else None for x in match.groups()[:3])
    if step == 0:
        raise UsageError(f"--promoted {text}: the step must not be 0")
    return found[start:stop:step]


def _header(config: Tournament, results: Results) -> dict[str, Any]:
    return {
        **config.setting,
        "store": str(config.store),
        "games_played": results.played,
        "games_known": results.known,
    }


def _standings(config: Tournament, results: Results, as_json: bool, out: Path | None) -> None:
    from td_loop.arena.standings import standings
    from td_loop.arena.tables import standings_text

    found = standings(results.rounds, config.contestants, config.seats, seed=config.seed)
    content = {**_header(config, results), "standings": found.as_json()}
    _tell(content, standings_text(found), as_json, out)


def _tested(config: Tournament, results: Results, as_json: bool, out: Path | None) -> None:
    """Say how the test ended, and end with its exit code."""
    from dataclasses import asdict

    from td_loop.arena.standings import pair
    from td_loop.arena.tables import sprt_text

    test, state = config.sprt, results.sprt
    assert test is not None
    assert state is not None
    a, b = config.contestants
    sprt = {**asdict(test), "bounds": test.bounds, **asdict(state)}
    met = pair(results.rounds, a, b)
    content = {**_header(config, results), "sprt": sprt, "pair": None if met is None else asdict(met)}
    _tell(content, sprt_text(test, state, a.label, b.label), as_json, out)
    raise typer.Exit(state.verdict.exit_code)


def _tell(content: dict[str, Any], text: str, as_json: bool, out: Path | None) -> None:
    """Say the result, as `content` or as `text`, and write the content to `out`, if there is one."""
    from td_loop.files import dumps_json, write_json

    if out is not None:
        write_json(out, content)
    typer.echo(dumps_json(content, indent=True).decode() if as_json else text)
