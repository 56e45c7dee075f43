"""`td-loop policy`: fit a fast policy to what the search decides."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from td_loop.errors import UsageError
from td_loop.policy.config import PolicyFitConfig

_WEIGHTS = Path("models/value_spline_v2.npz")


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    policy = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        help="A policy that decides in a fraction of a millisecond, fitted to what the search decides.",
    )
    policy.command("fit")(fit_command)
    app.add_typer(policy, name="policy")


def fit_command(
    out: Annotated[Path, typer.Option(help="The artefact to write, an .onnx file.")],
    weights: Annotated[Path, typer.Option(help="Value function of the search that teaches, an npz.")] = _WEIGHTS,
    games: Annotated[
        int, typer.Option(help="Games of a round, from 1; half of 2 seats, half of 4.")
    ] = PolicyFitConfig.games,
    rounds: Annotated[
        int,
        typer.Option(help="Rounds of data, from 1. The search plays the first, the policy so far the others."),
    ] = PolicyFitConfig.rounds,
    replays: Annotated[
        Path | None, typer.Option(help="A replay set: what its winners did is learnt from, too.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="An artefact to fit on: it plays from the first round on.")
    ] = None,
    teacher_evals: Annotated[
        int, typer.Option(help="Candidates that the search may evaluate for a decision, from 1.")
    ] = PolicyFitConfig.teacher_evals,
    labelled: Annotated[
        float, typer.Option(help="Part of the policy's decisions that the search is asked about, above 0 to 1.")
    ] = PolicyFitConfig.labelled,
    replay_rows: Annotated[
        int, typer.Option(help="The most decisions that are taken from --replays, from 0.")
    ] = PolicyFitConfig.replay_rows,
    epochs: Annotated[
        int, typer.Option(help="Passes over all decisions after a round, from 1.")
    ] = PolicyFitConfig.epochs,
    last_epochs: Annotated[
        int, typer.Option(help="The same after the last round, from 1.")
    ] = PolicyFitConfig.last_epochs,
    batch: Annotated[int, typer.Option(help="Decisions in a step, from 1.")] = PolicyFitConfig.batch,
    launch_weight: Annotated[
        float, typer.Option(help="Weight of a launch beside 1 of staying: more makes a livelier policy.")
    ] = PolicyFitConfig.launch_weight,
    lr: Annotated[float, typer.Option(help="Peak learning rate, above 0.")] = PolicyFitConfig.lr,
    weight_decay: Annotated[float, typer.Option(help="Of the weights, from 0.")] = PolicyFitConfig.weight_decay,
    seed: Annotated[
        int, typer.Option(help="What games, first parameters and batches are drawn from, from 0.")
    ] = PolicyFitConfig.seed,
    game: Annotated[str, typer.Option(help="The game, or anybody's by package.module:ATTRIBUTE.")] = "orbit_wars",
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Fit a policy network and write it as one ONNX file with all that has to be known of it.

    In the first round the search plays games and the policy learns what it did. In each later round the policy
    plays, against built-in players and the search too, and the search says what it would have done where the
    policy has come to. One game in ten is held out; how often the policy agrees there is said after every round
    and kept in the file, beside the hashes of what it was made from, statistics of its inputs, and a few decisions
    that `td-loop deploy verify` repeats.

    The same command makes the same policy. Nothing is written before the end.
    """
    config = PolicyFitConfig(
        games=games,
        rounds=rounds,
        teacher_evals=teacher_evals,
        labelled=labelled,
        replay_rows=replay_rows,
        epochs=epochs,
        last_epochs=last_epochs,
        batch=batch,
        launch_weight=launch_weight,
        lr=lr,
        weight_decay=weight_decay,
        seed=seed,
    )
    if out.suffix != ".onnx":
        raise UsageError(f"--out {out}: must end in .onnx")
    if out.exists() and not force:
        raise UsageError(f"{out} is there already; give --force to replace it, or another --out")

    from td_loop.games import get_game
    from td_loop.policy.fit import run_fit

    the_game = get_game(game)
    if missing := [x for x in ("contract", "policy_inputs", "choose", "options_of") if not hasattr(the_game, x)]:
        raise UsageError(f"--game {game}: no policy can be fitted for it, it has no {', '.join(missing)}")
    result = run_fit(
        the_game,  # type: ignore[arg-type]
        config,
        out,
        weights,
        replays=replays,
        resume=resume,
        command=shlex.join(["td-loop", *sys.argv[1:]]),
        say=lambda text: typer.echo(text, err=True),
    )
    typer.echo(f"{out}: {out.stat().st_size / 1e3:.0f} kB, sha256 {result.artefact.sha256}")
