"""`td-loop guard`: a training command under a watchdog, and what can be done with a guard's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

DIR = Path("guard")
"""The guard's folder, if none is named."""

_Dir = Annotated[Path, typer.Option("--dir", help="The guard's folder.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    guard = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        help="Watch a training command, stop it when it diverges, roll back, retry with a smaller learning rate.",
    )
    guard.command("run")(run)
    guard.command("status")(status)
    guard.command("history")(history)
    guard.command("reset")(reset)
    guard.command("postmortem")(postmortem)
    app.add_typer(guard, name="guard")


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="The training command, behind --.", show_default=False),
    ] = None,
    folder: _Dir = DIR,
    config: Annotated[
        Path | None, typer.Option(help="guard.toml; a flag goes before what it says.", show_default=False)
    ] = None,
    max_retries: Annotated[
        int | None,
        typer.Option(
            help="Rollbacks before the breaker locks; each halves the learning rate. They add up over the run, "
            "see [guard] forgive_after.  [default: 3]",
            show_default=False,
        ),
    ] = None,
    trial_steps: Annotated[
        int | None,
        typer.Option(
            help="Healthy steps in a row that pass the trial of a retry.  [default: 100]", show_default=False
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            help="TD_GUARD_CHECKPOINT_EVERY for the training.  [default: it decides itself]", show_default=False
        ),
    ] = None,
    promote_after: Annotated[
        int | None,
        typer.Option(
            help="Healthy steps that have to follow a snapshot before it is stable.  [default: 20]",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        int | None, typer.Option(help="Stable snapshots that are kept.  [default: 3]", show_default=False)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="TD_GUARD_SEED of the first attempt; each adds 1.  [default: 0]", show_default=False),
    ] = None,
    grace: Annotated[
        float | None, typer.Option(help="Seconds between SIGTERM and SIGKILL.  [default: 10]", show_default=False)
    ] = None,
    telemetry: Annotated[
        str | None,
        typer.Option(
            help='"file" (one in the guard\'s folder), unix:/path.sock or redis://host:port/db.  [default: file]',
            show_default=False,
        ),
    ] = None,
    on_crash: Annotated[
        str | None,
        typer.Option(
            help="exit or retry: what follows an exit code that is not 0, without a trip.  [default: exit]",
            show_default=False,
        ),
    ] = None,
    on_stall: Annotated[
        str | None,
        typer.Option(help="warn or trip: what follows silent telemetry.  [default: warn]", show_default=False),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve figures for Prometheus at this port.", show_default=False)
    ] = None,
    metrics_file: Annotated[
        str | None, typer.Option(help="Write figures for Prometheus to this file.", show_default=False)
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as a guard.toml, and end.")
    ] = False,
) -> None:
    """Run a training command under guard.

    The training says of every batch what it came to (td_loop.guard.Telemetry, or a JSON line in the file that
    $TD_GUARD_TELEMETRY names), saves checkpoints into $TD_GUARD_STAGING and announces them, loads
    $TD_GUARD_ACTIVE if that is there, and multiplies its learning rate by $LEARNING_RATE_MULTIPLIER. When a
    detector trips it is stopped, with proof that its processes are gone, led back to the newest snapshot that
    proved healthy, and started again with half the rate and another seed. The breaker closes after a trial.

    Exit codes: the command's own (128 + the signal that killed it); 1 when the breaker locks; 65 when a rollback
    is needed and there is no stable snapshot; 74 when the disk refuses one; 5 when the folder is in use, or a
    process does not go; 130 or 143 after SIGINT or SIGTERM, which are passed on. The same command goes on where it
    stopped, after these and after a kill.
    """
    from td_loop.errors import UsageError
    from td_loop.guard.config import read_config
    from td_loop.guard.console import Console
    from td_loop.guard.run import supervise

    flags: dict[str, dict[str, Any]] = {
        "guard": {
            "seed": seed,
            "grace_s": grace,
            "telemetry": telemetry,
            "on_crash": on_crash,
            "on_stall": on_stall,
        },
        "breaker": {"max_retries": max_retries, "trial_steps": trial_steps},
        "snapshots": {"every": checkpoint_every, "promote_after": promote_after, "keep": keep},
        "metrics": {"port": metrics_port, "file": metrics_file},
    }
    settings = read_config(config, {table: _given(values) for table, values in flags.items()})
    if print_config:
        typer.echo(settings.as_toml(), nl=False)
        return
    if not command:
        raise UsageError("no command to guard; give it behind --, as in `td-loop guard run -- python train.py`")
    raise typer.Exit(supervise(folder, settings, command, Console()))


def status(
    folder: _Dir = DIR,
    as_json: Annotated[
        bool, typer.Option("--json", help="The same for programs; NaN and infinities are strings.")
    ] = False,
) -> None:
    """Show where a guarded run stands: breaker, attempt, telemetry, snapshots, and what went wrong.

    Reading changes nothing, and does not disturb a guard that is at work.
    """
    from td_loop.files import dumps_json
    from td_loop.guard import status as report

    found = report.status(folder)
    typer.echo(dumps_json(found, indent=True).decode() if as_json else report.status_text(found))


def history(
    folder: _Dir = DIR,
    as_json: Annotated[bool, typer.Option("--json", help="The same for programs, with all evidence.")] = False,
) -> None:
    """Show every transition of the breaker, oldest first, with its reason."""
    from td_loop.files import dumps_json
    from td_loop.guard import status as report

    found = report.history(folder)
    typer.echo(dumps_json(found, indent=True).decode() if as_json else report.history_text(found))


def reset(
    folder: _Dir = DIR,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Close the breaker by hand, its retries forgotten, so that `guard run` begins a new attempt.

    It begins from the newest stable snapshot, or anew without one. What is not stable goes to quarantine; nothing
    is deleted, and the history is kept.
    """
    from td_loop.guard import run as doors
    from td_loop.guard import status as report

    if not yes:
        typer.echo(report.status_text(report.status(folder)))
        typer.confirm("Close the breaker and forget its retries?", abort=True)
    doors.reset(folder)
    typer.echo("the breaker is closed; `td-loop guard run` begins a new attempt")


def postmortem(
    folder: _Dir = DIR,
    config: Annotated[
        Path | None,
        typer.Option(help="guard.toml: what [audit] declares is checked, too.", show_default=False),
    ] = None,
) -> None:
    """Write postmortem.md, postmortem.json and a plot of the telemetry around the last trip, with five audits.

    An audit passes, fails, or cannot be checked with what is there; it says with which figures, and what to do.
    The plot needs matplotlib (extra guard-plot).
    """
    from td_loop.guard.config import read_config
    from td_loop.guard.postmortem import write_postmortem

    facts = read_config(config, {}).audit
    written = write_postmortem(folder, facts, base=None if config is None else config.parent)
    for audit in written.found.audits:
        typer.echo(f"{audit.outcome.replace('_', ' '):<13}  {audit.name}: {audit.sentence}")
    for path in (written.page, written.data, written.picture):
        if path is not None:
            typer.echo(path)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
