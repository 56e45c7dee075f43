"""`td-loop deploy from-run`: from the pick of a run to a canary that is watched."""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from td_loop.cli.deploy import options
from td_loop.errors import DataError, UsageError
from td_loop.loop.config import RunConfig
from td_loop.policy.config import PolicyFitConfig

if TYPE_CHECKING:
    from td_loop.arena.picks import Checkpoint
    from td_loop.games.served import Taught

POLICIES = "policies"


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command("from-run", epilog=options.EXITS)(from_run)


def from_run(
    run: Annotated[str, typer.Argument(help="A run directory, or the tag of a run.")],
    runs_dir: Annotated[Path, typer.Option(help="Folder of the run folders, for a tag.")] = RunConfig.runs_dir,
    games: Annotated[int, typer.Option(help="Games of a round of the fit.")] = PolicyFitConfig.games,
    rounds: Annotated[int, typer.Option(help="Rounds of the fit.")] = PolicyFitConfig.rounds,
    teacher_evals: Annotated[
        int, typer.Option(help="Candidates that the search evaluates for a decision.")
    ] = PolicyFitConfig.teacher_evals,
    labelled: Annotated[
        float, typer.Option(help="Part of the decisions that the search is asked about, above 0 to 1.")
    ] = PolicyFitConfig.labelled,
    epochs: Annotated[int, typer.Option(help="Passes over all decisions after a round.")] = PolicyFitConfig.epochs,
    last_epochs: Annotated[int, typer.Option(help="The same after the last round.")] = PolicyFitConfig.last_epochs,
    seed: Annotated[int, typer.Option(help="Of the fit.")] = PolicyFitConfig.seed,
    sla_ms: Annotated[float, typer.Option(min=0.001, help="See `td-loop deploy verify`.")] = 10.0,
    game: Annotated[str, typer.Option(help="The game, or anybody's by package.module:ATTRIBUTE.")] = "orbit_wars",
    folder: options.Dir = options.DIR,
    server: options.Server = None,
    token: options.Token = None,
    router: options.Router = "embedded",
    router_option: options.RouterOption = None,
    prometheus: options.Prometheus = None,
    selector: options.Selector = "",
    config: options.Config = None,
    gate: options.Gate = None,
) -> None:
    """Release the pick of a run: fit a policy to it, verify that, hand it to the server, and watch the canary.

    The pick is what `td-loop picks RUN --deploy` has chosen. The policy is fitted to the search with its value
    function, as `td-loop policy fit` does, and kept as RUN/policies/LABEL-HASH.onnx; the hash is of the pick and
    of all settings of the fit, so that the same command finds it again, and goes on where it was stopped. Then
    come `td-loop deploy verify` and `td-loop deploy canary`: see there.
    """
    from td_loop.deploy.canary import store
    from td_loop.deploy.canary.run import check_apart, check_server, serving_of
    from td_loop.deploy.canary.settings import read_settings
    from td_loop.deploy.routing.choose import open_router
    from td_loop.policy.artefact import import_onnx
    from td_loop.report.find import find_run

    settings = read_settings(config, {"stages": {} if gate is None else {"gate": gate}})
    fit = PolicyFitConfig(
        games=games,
        rounds=rounds,
        teacher_evals=teacher_evals,
        labelled=labelled,
        epochs=epochs,
        last_epochs=last_epochs,
        seed=seed,
    )
    the_game = taught_game(game)
    import_onnx()
    where = find_run(run, runs_dir)
    pick = picked(where)
    # All that could be in the way is looked at before hours of games, not after.
    ends = options.ends_of(folder, server, token, router, router_option, prometheus, selector)
    check_server(serving_of(folder, ends), ends)
    artefact = where / POLICIES / artefact_name(pick, fit)
    under_way = store.under_way(folder)
    if under_way is not None and Path(under_way.path) != artefact.resolve():
        raise UsageError(
            f"release {under_way.number}, of {under_way.path}, has not ended (it is in stage {under_way.stage}); "
            f"see `td-loop deploy status --dir {folder}`, or end it with `td-loop deploy abort --dir {folder}`"
        )
    if under_way is None:
        with contextlib.closing(open_router(ends.router, ends.router_options)) as split:
            check_apart(split, settings, ends)
    fitted(the_game, where / pick.path, artefact, fit)
    admitted(the_game, artefact, sla_ms)
    options.release_it(folder, artefact, settings, ends, config)


def picked(run: Path) -> Checkpoint:
    """The checkpoint that `td-loop picks --deploy` has chosen; its file is as it was promoted.

    Raises:
        DataError: none was chosen, or it is not the run's.
        ManifestError: the manifest cannot be read, or the file is missing or has changed.
    """
    from td_loop.cli.checkpoints import checkpoints
    from td_loop.cli.picks import DEPLOY
    from td_loop.files import pointed
    from td_loop.loop.fault import require_weights
    from td_loop.report.find import manifest_of

    target = pointed(run / DEPLOY)
    if target is None:
        raise DataError(
            f"{run}: nothing was picked; choose with `td-loop picks {run} --deploy`, after some games "
            f"(`td-loop tournament --run {run} --promoted bootstrap`)"
        )
    found = next((c for c in checkpoints(manifest_of(run)) if c.path == target), None)
    if found is None:
        raise DataError(
            f"{run / DEPLOY}: leads to {target}, which is no checkpoint of the run; choose one with "
            f"`td-loop picks {run} --deploy`"
        )
    require_weights(run, found.path, found.sha256)
    return found


def artefact_name(pick: Checkpoint, fit: PolicyFitConfig) -> str:
    """Other weights or other settings are another file: what a server has is never written over."""
    made_of = repr((pick.sha256, sorted(asdict(fit).items())))
    return f"{pick.label}-{hashlib.sha256(made_of.encode()).hexdigest()[:8]}.onnx"


def taught_game(name: str) -> Taught[Any, Any]:
    """The game of that name, if policies for it can be fitted and served.

    Raises:
        UsageError: there is no such game, or it lacks something.
    """
    from td_loop.deploy.served import served_game

    game: Any = served_game(name)
    if missing := [x for x in ("make_search", "options_of", "compact") if not hasattr(game, x)]:
        raise UsageError(f"--game {name}: no policy can be fitted for it, it has no {', '.join(missing)}")
    return game  # type: ignore[no-any-return]


def fitted(game: Taught[Any, Any], weights: Path, artefact: Path, fit: PolicyFitConfig) -> None:
    """Fit a policy to the search with these weights, unless that was done.

    Raises:
        DataError: the artefact that is there was made of others.
    """
    from td_loop.files import make_dir, sha256
    from td_loop.policy.artefact import read_artefact
    from td_loop.policy.fit import run_fit

    if artefact.exists():
        if read_artefact(artefact, game.contract).meta.parents.get("weights") != sha256(weights):
            raise DataError(f"{artefact}: was made of other weights than {weights}; move it away")
        typer.echo(f"{artefact}: fitted before")
        return
    make_dir(artefact.parent)
    command = shlex.join(["td-loop", *sys.argv[1:]])
    run_fit(game, fit, artefact, weights, command=command, say=lambda line: typer.echo(line, err=True))
    typer.echo(f"{artefact}: fitted to the search with {weights}")


def admitted(game: Taught[Any, Any], artefact: Path, sla_ms: float) -> None:
    """Verify an artefact, unless that was done.

    Raises:
        Refused: it failed a check.
    """
    from td_loop.deploy.admission.record import is_verified, keep_record
    from td_loop.deploy.admission.table import verification_text
    from td_loop.deploy.admission.verify import verify
    from td_loop.errors import Refused
    from td_loop.policy.artefact import read_artefact

    if is_verified(artefact):
        typer.echo(f"{artefact}: verified before")
        return
    found = verify(read_artefact(artefact, game.contract), game, sla_ms=sla_ms)
    keep_record(found)
    typer.echo(verification_text(found))
    if found.failed:
        names = ", ".join(check.name for check in found.failed)
        raise Refused(f"{artefact}: failed {names}; it gets no traffic")
