"""`td-loop prepare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from td_loop.errors import StorageError, UsageError
from td_loop.prepare.config import SEARCH_S, PrepareConfig

DEFAULT_GAMMA = 0.97


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("prepare")(prepare_command)


def prepare_command(
    weights: Annotated[
        Path | None, typer.Option(help="V_snap: the weights npz whose values become targets.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The branch_data npz to write.")] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the run, from 0. Rows are drawn with seed + iter-index.")
    ] = PrepareConfig.seed,
    iter_index: Annotated[int, typer.Option(help="Index of the iteration, from 0.")] = PrepareConfig.iter_index,
    n: Annotated[int, typer.Option(help="Rows, of both branches together.")] = PrepareConfig.n,
    k: Annotated[
        float, typer.Option(help="Share of agent rows (searched), 0..1; the rest are replay rows.")
    ] = PrepareConfig.k,
    budget_s: Annotated[float, typer.Option(help="Seconds that one search may take, above 0.")] = SEARCH_S,
    budget_evals: Annotated[
        int | None,
        typer.Option(help="Candidates that one search may evaluate; replaces --budget-s and repeats exactly."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes, from 1.", show_default="physical cores of this machine")
    ] = None,
    partial_input_p: Annotated[
        float, typer.Option(help="Share of rows, 0..1, whose input is a half-built turn of the focal seat.")
    ] = PrepareConfig.partial_input_p,
    mc_target_p: Annotated[
        float, typer.Option(help="Share of rows, 0..1, that carry the game's outcome too.")
    ] = PrepareConfig.mc_target_p,
    replays: Annotated[
        Path | None,
        typer.Option(help="Replay set: a store, or what the game can import.", show_default="bundled set"),
    ] = None,
    game: Annotated[str, typer.Option(help="A built-in game, or package.module:ATTRIBUTE.")] = PrepareConfig.game,
    cache_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for what can be made again.", show_default="$TD_LOOP_CACHE or ~/.cache/td_loop"),
    ] = None,
    mc_rows: Annotated[
        Path | None,
        typer.Option(
            help="Outcome rows npz: written where there is none, kept if of the same replays, gamma and features, "
            "else refused."
        ),
    ] = None,
    mc_only: Annotated[bool, typer.Option("--mc-only", help="Write --mc-rows and nothing else.")] = False,
    gamma: Annotated[
        float | None,
        typer.Option(
            help="With --mc-only: discount of the production forecast, 0..1. Otherwise it comes from --weights.",
            show_default=str(DEFAULT_GAMMA),
        ),
    ] = None,
) -> None:
    """Prepare targets: sample rows of replays, value the states they lead to, write branch_data.

    A replay row (Branch R) takes the next state of the replay, an agent row (Branch A) the state that a search
    under V_snap leads to. Time: about n * k * budget-s / workers seconds, plus seconds for the rest. Memory: about
    16 bytes * features * n here, and 0.2 GB a worker.

    A worker that dies, hangs or takes too much memory costs its rows a retry, then the replay's action stands in;
    the closing line counts these fallbacks. What is finished is kept beside OUT, in a file that ends in .chunks,
    until OUT is there: after a kill, the same command goes on from it.
    """
    if mc_only:
        if mc_rows is None:
            raise UsageError("--mc-only needs --mc-rows PATH, the file to write")
    elif weights is None or out is None:
        raise UsageError("--weights and --out are needed (only --mc-only does without them)")
    elif gamma is not None:
        raise UsageError(
            "--gamma goes with --mc-only; here it comes from --weights, and targets must agree with it"
        )

    from td_loop.machine import physical_cores
    from td_loop.prepare.config import probability, search_budget
    from td_loop.prepare.run import gather_only, prepare

    if mc_rows is not None and mc_only:
        discount = DEFAULT_GAMMA if gamma is None else gamma
        probability("--gamma", discount, "the discount of the production forecast a turn")
        cache = _cache(cache_dir)
        mc = gather_only(mc_rows, game_name=game, replays=replays, cache=cache, gamma=discount)
        typer.echo(_mc_line(mc.path, mc.rows, written=mc.written))
        return
    assert weights is not None
    assert out is not None
    config = PrepareConfig(
        weights=weights,
        out=out,
        seed=seed,
        iter_index=iter_index,
        n=n,
        k=k,
        budget=search_budget(budget_s, budget_evals),
        workers=physical_cores() if workers is None else workers,
        partial_input_p=partial_input_p,
        mc_target_p=mc_target_p,
        replays=replays,
        game=game,
        cache=_cache(cache_dir),
        mc_rows=mc_rows,
    )
    report = prepare(config)
    if report.mc:
        typer.echo(_mc_line(report.mc.path, report.mc.rows, written=report.mc.written))
    share = f" ({report.fallbacks / report.n_a:.1%})" if report.n_a else ""
    typer.echo(
        f"prepare: {report.n_r + report.n_a} rows ({report.n_r} replay, {report.n_a} agent), "
        f"{report.fallbacks} engine fallbacks{share}, {report.retries} retries, {report.wall_s:.1f} s -> {out}"
    )


def _mc_line(path: Path, rows: int, *, written: bool) -> str:
    return f"prepare: {rows} outcome rows {'->' if written else 'kept in'} {path}"


def _cache(named: Path | None) -> Path:
    """The cache folder, made if need be."""
    from td_loop.files import make_dir
    from td_loop.kernels import cache_dir

    folder = named or cache_dir()
    try:
        make_dir(folder)
    except StorageError as e:
        raise StorageError(f"{e}; it is the cache folder, which --cache-dir or $TD_LOOP_CACHE names") from e
    return folder
