"""`td-loop run`: the outer loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from td_loop.loop.config import (
    DEFAULT_BOOTSTRAP,
    CheckConfig,
    FitConfig,
    Gate,
    MatchConfig,
    PrepareConfig,
    RunConfig,
)
from td_loop.loop.presets import with_preset


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(
        "run",
        epilog="Exit codes: 0 done, 3 reverted, 4 hard abort, 5 in use, 64 usage, 65 data, 74 storage, "
        "130/143 interrupted. A stage's own 64, 65 or 74 is passed on.",
    )(run)


def run(
    ctx: typer.Context,
    tag: Annotated[str, typer.Option(help="Name of the run; it lives in RUNS_DIR/td_loop_TAG.")] = RunConfig.tag,
    iters: Annotated[
        int, typer.Option(help="Iterations in all, those of earlier invocations included; 1 or more.")
    ] = RunConfig.iters,
    preset: Annotated[
        Literal["quick"] | None,
        typer.Option(
            help="Other defaults; flags that you give win. 'quick': 3 small iterations in a few minutes."
        ),
    ] = None,
    n: Annotated[int, typer.Option(help="Rows that prepare makes an iteration; 1 or more.")] = PrepareConfig.n,
    k: Annotated[
        float, typer.Option(help="Probability that a row is an agent row (Branch A), 0..1.")
    ] = PrepareConfig.k,
    budget_s: Annotated[
        float, typer.Option(help="Seconds a search may take for an agent row; more than 0.")
    ] = PrepareConfig.budget_s,
    budget_evals: Annotated[
        int | None,
        typer.Option(help="Candidates a search may evaluate, in place of --budget-s; such a run repeats exactly."),
    ] = PrepareConfig.budget_evals,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; 1 or more.", show_default="physical cores")
    ] = None,
    partial_input_p: Annotated[
        float, typer.Option(help="Probability that a row's input is a half-built turn, 0..1.")
    ] = PrepareConfig.partial_input_p,
    mc_target_p: Annotated[
        float, typer.Option(help="Probability that a row also carries the game's outcome, 0..1.")
    ] = PrepareConfig.mc_target_p,
    epochs: Annotated[int, typer.Option(help="Epochs of fit an iteration; 1 or more.")] = FitConfig.epochs,
    batches_per_epoch: Annotated[
        int, typer.Option(help="Optimizer steps an epoch; 1 or more.")
    ] = FitConfig.batches_per_epoch,
    batch_size: Annotated[int, typer.Option(help="Rows an optimizer step; 1 or more.")] = FitConfig.batch_size,
    lambda_mc: Annotated[
        float, typer.Option(help="Weight of the loss against outcomes; 0 or more.")
    ] = FitConfig.lambda_mc,
    lambda_td: Annotated[
        float, typer.Option(help="Weight of the loss against V_snap's targets; 0 or more.")
    ] = FitConfig.lambda_td,
    lr_peak: Annotated[
        float, typer.Option(help="Learning rate between warmup and decay; more than 0.")
    ] = FitConfig.lr_peak,
    lr_warmup_frac: Annotated[
        float, typer.Option(help="Share of the steps that warm up linearly, 0..1.")
    ] = FitConfig.lr_warmup_frac,
    lr_hold_frac: Annotated[
        float, typer.Option(help="Share of the steps at the peak, 0..1; the rest decays by a cosine.")
    ] = FitConfig.lr_hold_frac,
    lr_floor_frac: Annotated[
        float,
        typer.Option(help="The decay ends at this share of the peak, 0..1; the warmup always starts at 0.1."),
    ] = FitConfig.lr_floor_frac,
    on_fail: Annotated[
        Literal["abort", "retry-then-abort"],
        typer.Option(help="After a reverted iteration: stop, or retry once with half the rate and another seed."),
    ] = "abort",
    val_blowup_tau: Annotated[
        float,
        typer.Option(help="Fit stops itself when val_mc_nll exceeds its baseline times 1 + this; 0 or more."),
    ] = FitConfig.val_blowup_tau,
    val_regression_tau: Annotated[
        float,
        typer.Option(help="S4.3 reverts when the final val_mc_nll exceeds the best times 1 + this; 0 or more."),
    ] = CheckConfig.val_regression_tau,
    seg_uniform_tau: Annotated[
        float, typer.Option(help="S3.6 warns when a seat's mean target is further from 1/P than this; 0 or more.")
    ] = CheckConfig.seg_uniform_tau,
    max_fallback_rate: Annotated[
        float,
        typer.Option(help="S3.5 warns when the search gave no decision in a larger share of agent rows, 0..1."),
    ] = CheckConfig.max_fallback_rate,
    knot_above_top_tau: Annotated[
        float, typer.Option(help="Warn when a larger share of a feature lies above its top knot, 0..1.")
    ] = CheckConfig.knot_above_top_tau,
    knot_below_first_tau: Annotated[
        float, typer.Option(help="Warn when a larger share of a feature lies below its first interior knot, 0..1.")
    ] = CheckConfig.knot_below_first_tau,
    bootstrap: Annotated[Path, typer.Option(help="Weights that iteration 0 starts from.")] = DEFAULT_BOOTSTRAP,
    seed: Annotated[int, typer.Option(help="Seed of the run; 0 or more.")] = RunConfig.seed,
    runs_dir: Annotated[Path, typer.Option(help="Folder of the run folders.")] = RunConfig.runs_dir,
    game: Annotated[str, typer.Option(help="Game that the replays are of.")] = RunConfig.game,
    replays: Annotated[
        Path | None,
        typer.Option(
            help="Replays: a store, an npz of selfplay, or episode files.", show_default="the bundled set"
        ),
    ] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where stages keep what can be made again.", show_default="$TD_LOOP_CACHE or ~/.cache/td_loop"
        ),
    ] = None,
    prepare_cmd: Annotated[
        str | None,
        typer.Option(help="Your own program in place of 'td-loop prepare': same flags, files and exit codes."),
    ] = None,
    fit_cmd: Annotated[
        str | None,
        typer.Option(help="Your own program in place of 'td-loop fit': same flags, files and exit codes."),
    ] = None,
    gate: Annotated[
        Literal["none", "sprt"],
        typer.Option(help="What a promotion needs besides the checks. sprt: winning a match against latest_good."),
    ] = "none",
    gate_elo: Annotated[
        tuple[float, float],
        typer.Option(
            metavar="ELO0 ELO1",
            help="With --gate sprt: promote when the candidate is ELO1 rather than ELO0 above latest_good.",
        ),
    ] = MatchConfig.gate_elo,
    gate_rounds: Annotated[
        int, typer.Option(help="Rounds, of two games on a map, that a match may take; 1 or more.")
    ] = MatchConfig.gate_rounds,
    gate_budget: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET",
            help="What a move may take in it: 0.1s, or 400e for evaluations.",
            show_default="as the search of an agent row",
        ),
    ] = MatchConfig.gate_budget,
    guard: Annotated[
        Literal["none", "abort", "continue"],
        typer.Option(
            help="Run fit under guard. When it diverges in mid-run, abort: stop it (S4.2); continue: roll it back "
            "to its last healthy snapshot and go on with half the learning rate, a few times."
        ),
    ] = "none",
    guard_config: Annotated[
        Path | None, typer.Option(help="guard.toml of that guard.", show_default="its defaults")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan, and why each stage would run; change nothing."),
    ] = False,
) -> None:
    """Run fitted policy iteration: prepare targets, check, fit, check, promote or revert, repeat.

    The run lives in a folder of its own and can be killed at any moment: the same command resumes it, and sets
    aside what was not promoted. `latest_good.npz` there always is the last promoted value function.
    """
    given = {name: value for name, value in locals().items() if name not in ("ctx", "preset", "dry_run")}
    explicit = {name for name in given if _is_explicit(ctx, name)}
    config = RunConfig.from_flags(with_preset(given, preset, explicit))

    if config.gate is not Gate.NONE:
        from td_loop.arena.game import playable

        playable(config.game)  # before hours of work, not after them

    if dry_run:
        from td_loop.loop.preview import preview

        for line in preview(config):
            typer.echo(line)
        return

    from td_loop.loop.driver import drive

    forecast = (
        [] if preset is None else [RunConfig.from_flags(given | {"tag": RunConfig.tag, "iters": RunConfig.iters})]
    )
    drive(config, forecast=forecast)


def _is_explicit(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"
