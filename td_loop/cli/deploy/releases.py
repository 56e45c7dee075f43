"""`td-loop deploy status`, `approve`, `abort`, `allow`, `history`: what people ask of a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_Dir = Annotated[Path, typer.Option("--dir", help="The folder of `td-loop deploy canary`.")]
_Json = Annotated[bool, typer.Option("--json", help="The same for programs; NaN and infinities are strings.")]
_Reason = Annotated[str, typer.Option(help="Why, for those who read the history.")]
DIR = Path("deploy")


def register(deploy: typer.Typer) -> None:
    """Add the commands to `deploy`."""
    deploy.command("status")(status)
    deploy.command("history")(history)
    deploy.command("approve")(approve)
    deploy.command("abort")(abort)
    deploy.command("allow")(allow)


def status(folder: _Dir = DIR, as_json: _Json = False) -> None:
    """Show where the release stands, who watches it, and what was counted.

    Reading changes nothing, and does not disturb a controller that is at work.
    """
    from td_loop.deploy.canary import status as report
    from td_loop.files import dumps_json

    found = report.status(folder)
    typer.echo(dumps_json(found, indent=True).decode() if as_json else report.status_text(found))


def history(
    folder: _Dir = DIR,
    as_json: _Json = False,
    everything: Annotated[bool, typer.Option("--all", help="Steps of ramps and notes, too.")] = False,
) -> None:
    """Show every transition of every release, oldest first, with its reason."""
    from td_loop.deploy.canary import status as report
    from td_loop.files import dumps_json

    found = report.history(folder, everything=everything)
    typer.echo(dumps_json(found, indent=True).decode() if as_json else report.history_text(found))


def approve(folder: _Dir = DIR, reason: _Reason = "") -> None:
    """Let a release go on that waits: for the next stage (--gate manual), or with weights changed by hand.

    The controller hears of it within a second; one that does not run, when it is started.
    """
    from td_loop.deploy.canary import store
    from td_loop.errors import UsageError

    release = store.under_way(folder)
    if release is None or not (release.waiting or release.by_hand):
        raise UsageError(f"no release in {folder} waits for anybody; see `td-loop deploy status --dir {folder}`")
    store.ask(folder, store.Request("approve", release.number, reason))
    typer.echo(f"release {release.number} may go on")


def abort(
    folder: _Dir = DIR,
    reason: _Reason = "",
    refuse: Annotated[
        bool, typer.Option("--refuse", help="Give the artefact no traffic ever again, as after a rollback.")
    ] = False,
) -> None:
    """Withdraw the canary that is being released: weights to 100/0, read back.

    The controller does it within a second. If none runs, this command does.
    """
    from td_loop.deploy.canary import store
    from td_loop.deploy.canary.console import Console
    from td_loop.deploy.canary.machine import Stage
    from td_loop.deploy.canary.run import resume
    from td_loop.errors import DataError, RunInUse, UsageError
    from td_loop.lock import holder

    try:
        release = store.under_way(folder)
    except DataError as e:  # a controller that is at work needs no log to take traffic away
        store.ask(folder, store.Request("abort", 0, reason, refuse=refuse))
        raise DataError(f"{e}; a controller that is at work takes the canary's traffic away all the same") from e
    if release is None:
        raise UsageError(f"no release is under way in {folder}")
    store.ask(folder, store.Request("abort", release.number, reason, refuse=refuse))
    try:
        ended = resume(folder, Console())
    except RunInUse:
        at_work = holder(folder / store.LOCK)
        who = "" if at_work is None else f", {at_work.who},"
        typer.echo(f"release {release.number}: the controller{who} has been asked to withdraw it")
    else:
        if ended is Stage.PROMOTED:
            raise UsageError(f"too late: release {release.number} is promoted; serve another policy instead")
        typer.echo(f"release {release.number} is withdrawn")


def allow(
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="The artefact's hash, or how it begins.")],
    reason: Annotated[str, typer.Option(help="Why, for those who read the list.", show_default=False)],
    folder: _Dir = DIR,
) -> None:
    """Let an artefact have traffic again that was rolled back."""
    from td_loop.deploy.canary import store
    from td_loop.errors import UsageError

    if not reason.strip():
        raise UsageError("--reason: say why, for those who read the list")
    typer.echo(f"{store.allow(folder, sha256, reason)} may be released again")
