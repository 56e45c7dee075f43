"""`td-loop fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from td_loop.errors import UsageError
from td_loop.fit.config import FitConfig

BOOTSTRAP_WARMUP_STEPS = 64
"""Knot-requantize warmup of a fit that derives its knots, unless --warmup-steps says otherwise."""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("fit")(fit_command)


def fit_command(
    mc_rows: Annotated[
        Path, typer.Option(help="mc_rows npz of `td-loop prepare`: the fixed validation rows, and outcomes.")
    ],
    output: Annotated[Path, typer.Option(help="Weights npz to write; <stem>.training.json goes beside it.")],
    resume: Annotated[
        Path | None,
        typer.Option(help="V_snap: weights to fit on from, knots kept.", show_default="bootstrap from outcomes"),
    ] = None,
    td_cache: Annotated[
        Path | None, typer.Option(help="branch_data npz to fit on; needed with --resume, and only there.")
    ] = None,
    lr: Annotated[float, typer.Option(help="Peak learning rate, above 0.")] = FitConfig.lr,
    lr_warmup_frac: Annotated[
        float, typer.Option(help="Share of the steps that rise linearly from 0.1 * peak to the peak, 0..1.")
    ] = FitConfig.lr_warmup_frac,
    lr_hold_frac: Annotated[
        float, typer.Option(help="Share of the steps at the peak, 0..1. What remains is cosine decay.")
    ] = FitConfig.lr_hold_frac,
    lr_floor_frac: Annotated[
        float, typer.Option(help="The decay ends at this share of the peak, 0..1.")
    ] = FitConfig.lr_floor_frac,
    epochs: Annotated[
        int, typer.Option(help="Epochs, from 1; losses are measured after each.")
    ] = FitConfig.epochs,
    batches_per_epoch: Annotated[
        int, typer.Option(help="Optimizer steps in an epoch, from 1.")
    ] = FitConfig.batches_per_epoch,
    batch_size: Annotated[int, typer.Option(help="Rows in a step, from 1.")] = FitConfig.batch_size,
    lambda_mc: Annotated[
        float | None,
        typer.Option(
            help="Weight of the loss to outcomes, from 0. Only with --resume.",
            show_default=str(FitConfig.lambda_mc),
        ),
    ] = None,
    lambda_td: Annotated[
        float | None,
        typer.Option(
            help="Weight of the loss to V_snap's targets, from 0. Only with --resume.",
            show_default=str(FitConfig.lambda_td),
        ),
    ] = None,
    val_blowup_tau: Annotated[
        float, typer.Option(help="Abort, exit code 2, once val_mc_nll > baseline * (1 + tau); from 0.")
    ] = FitConfig.val_blowup_tau,
    warmup_steps: Annotated[
        int | None,
        typer.Option(
            help="Knot-requantize warmup: steps at 0.1 * peak before the schedule. Only without --resume.",
            show_default=f"{BOOTSTRAP_WARMUP_STEPS}, or 0 with --resume",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the batch order, from 0.")] = FitConfig.seed,
    n_knots: Annotated[
        int | None,
        typer.Option(
            help="Knots per feature, 3..32. Only without --resume, which keeps its knots.",
            show_default=str(FitConfig.n_knots),
        ),
    ] = None,
    smoothness: Annotated[
        float, typer.Option(help="Weight of the squared second differences along a curve, from 0.")
    ] = FitConfig.smoothness,
    l2: Annotated[float, typer.Option(help="Weight of the squared coefficients, from 0.")] = FitConfig.l2,
    telemetry: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Tell of every step: a file, unix:/path/of.sock, or redis://host:port/db?stream=NAME.",
            show_default="TD_GUARD_TELEMETRY, if a guard has set it",
        ),
    ] = None,
) -> None:
    """Fit a value function and write it with its training history.

    With --resume and --td-cache: one iteration's fit, from V_snap on the rows of a branch_data cache. Without: the
    bootstrap fit from the outcomes in --mc-rows, where the knots are derived as quantiles and the epoch with the
    best val_mc_nll is kept.

    Exit code 2 means that the fit stopped itself because val_mc_nll blew up. It then writes only the
    training.json, with the reason under `aborted`, and no weights.
    """
    _check_paths(resume, td_cache, mc_rows, output)
    if resume is not None:
        if warmup_steps:
            raise UsageError(f"--warmup-steps {warmup_steps}: must be 0 with --resume, which keeps its knots")
        if n_knots is not None:
            raise UsageError("--n-knots makes no sense with --resume, which keeps its knots; leave it out")
    elif lambda_mc is not None or lambda_td is not None:
        raise UsageError(
            "--lambda-mc and --lambda-td make no sense without --resume: a bootstrap fit has outcomes alone; "
            "leave them out"
        )
    config = FitConfig(
        lr=lr,
        lr_warmup_frac=lr_warmup_frac,
        lr_hold_frac=lr_hold_frac,
        lr_floor_frac=lr_floor_frac,
        epochs=epochs,
        batches_per_epoch=batches_per_epoch,
        batch_size=batch_size,
        lambda_mc=FitConfig.lambda_mc if lambda_mc is None else lambda_mc,
        lambda_td=FitConfig.lambda_td if lambda_td is None else lambda_td,
        val_blowup_tau=val_blowup_tau,
        warmup_steps=warmup_steps if warmup_steps is not None else 0 if resume else BOOTSTRAP_WARMUP_STEPS,
        seed=seed,
        n_knots=FitConfig.n_knots if n_knots is None else n_knots,
        smoothness=smoothness,
        l2=l2,
    )

    from td_loop.guard import Telemetry

    client = Telemetry(telemetry)  # what is wrong with its address is said before anything is read

    from td_loop.fit.problem import bootstrap_problem, resume_problem
    from td_loop.progress import progress

    if resume is not None and td_cache is not None:
        problem = resume_problem(config, resume=resume, td_cache=td_cache, mc_rows=mc_rows)
    else:
        problem = bootstrap_problem(config, mc_rows=mc_rows)
    for warning in problem.warnings:
        typer.echo(f"warning: {warning}", err=True)

    from td_loop.fit.run import run_fit, schedule_of  # torch: a second or two
    from td_loop.fit.watch import Watch

    with client, progress("fit", schedule_of(config).n_steps) as advance:
        watch = Watch(config, problem, client) if Watch.wanted(client) else None
        s = run_fit(config, problem, output, advance, watch)
    typer.echo(
        f"fit: val_mc_nll {s.final:.4f} (start {s.baseline:.4f}, constant predictor {s.constant:.4f}), "
        f"{epochs} epochs in {s.seconds:.1f} s -> {output}"
    )


def _check_paths(resume: Path | None, td_cache: Path | None, mc_rows: Path, output: Path) -> None:
    if (resume is None) != (td_cache is None):
        raise UsageError(
            "--resume and --td-cache go together; give both to fit on from weights, or neither to bootstrap"
        )
    if output.suffix != ".npz":
        raise UsageError(f"--output {output}: must end in .npz")
    for path in (resume, td_cache, mc_rows):
        if path is not None and path.resolve() == output.resolve():
            raise UsageError(
                f"--output {output} is also an input; choose another name, inputs are never overwritten"
            )
