"""`td-loop deploy canary`: release a policy step by step, and withdraw it when it degrades."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from td_loop.errors import CANARY_ROLLED_BACK, UsageError

_EPILOG = (
    "Exit codes: 0 promoted; 9 rolled back, or aborted; 8 the artefact was not verified, or has been rolled back "
    "before; 5 another controller works in the folder; 64 usage; 65 a file cannot be used; 130, 143 stopped by a "
    "signal: weights stay as they are, and the same command goes on."
)


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command("canary", epilog=_EPILOG)(canary)


def canary(
    artefact: Annotated[
        Path | None,
        typer.Argument(
            metavar="ARTEFACT", help="A policy that `td-loop deploy verify` has passed.", show_default=False
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--dir", help="The server's folder; the release's files go there, too.")
    ] = Path("deploy"),
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The server.  [default: the one that works in --dir]", show_default=False
        ),
    ] = None,
    token: Annotated[
        Path | None, typer.Option(help="File with the server's token.  [default: DIR/token]", show_default=False)
    ] = None,
    router: Annotated[
        str, typer.Option(help="Who splits the traffic: embedded (the server itself), envoy or istio.")
    ] = "embedded",
    router_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the router; as often as needed.", show_default=False),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Read the counters here.  [default: the server's /metrics]", show_default=False
        ),
    ] = None,
    selector: Annotated[
        str,
        typer.Option(
            help="Label matchers of our servers in Prometheus, as in 'job=\"policy\"'.", show_default=False
        ),
    ] = "",
    config: Annotated[
        Path | None, typer.Option(help="canary.toml; a flag goes before what it says.", show_default=False)
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(help="auto, or manual: each stage waits for `approve`.  [default: auto]", show_default=False),
    ] = None,
    shadow: Annotated[
        float | None, typer.Option(help="Seconds in shadow; 0: none.  [default: 300]", show_default=False)
    ] = None,
    percent: Annotated[
        float | None,
        typer.Option(
            help="Percent of new episodes in the first stage with traffic.  [default: 5]", show_default=False
        ),
    ] = None,
    hold_at: Annotated[
        float | None, typer.Option(help="Seconds at that percentage.  [default: 600]", show_default=False)
    ] = None,
    ramp: Annotated[
        float | None, typer.Option(help="Seconds of the linear ramp.  [default: 1800]", show_default=False)
    ] = None,
    poll: Annotated[
        float | None, typer.Option(help="Seconds between two observations.  [default: 5]", show_default=False)
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", help="POST each transition there, as JSON.", show_default=False),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as a canary.toml, and end.")
    ] = False,
) -> None:
    """Release a policy to a few percent of the traffic, watch it, and promote it or withdraw it.

    Stages: in shadow the canary answers beside the stable policy, for nobody. Then it gets 5 % of new episodes,
    then a share that grows linearly; at the end the server makes it the stable policy. A stage's clock stands
    still (HOLD) while anything is odd or cannot be seen: no traffic, no rewards, counters that are old, damaged
    or out of reach, weights that somebody changed. No data is never taken for good news.

    It is withdrawn when a limit of canary.toml is broken and there is evidence, valid at every look, that the
    stable policy does better: mean reward, the fallback's share, invalid outputs, 5xx answers, p99, answers
    that differ for identical states, collapsed entropy, episodes that get lost. First the weights are set to
    100/0 and read back; then the artefact is refused from now on (see `td-loop deploy allow`), and a postmortem
    is written.

    Everything is in DIR: canary.json, audit.jsonl, refused.jsonl. A controller that was killed goes on with the
    same command; settings of a release hold to its end. Quiet unless on a terminal, but for events.
    """
    from td_loop.deploy.canary.console import Console
    from td_loop.deploy.canary.machine import Stage
    from td_loop.deploy.canary.run import TOKEN_FILE, Ends, release, server_of
    from td_loop.deploy.canary.settings import read_settings

    flags: dict[str, dict[str, Any]] = {
        "stages": {
            "gate": gate,
            "shadow_s": shadow,
            "canary_percent": percent,
            "canary_s": hold_at,
            "ramp_s": ramp,
        },
        "watch": {"poll_s": poll},
        "webhook": {"url": webhook},
    }
    settings = read_settings(config, {table: _given(values) for table, values in flags.items()})
    if print_config:
        typer.echo(settings.as_toml(), nl=False)
        return
    if artefact is None:
        raise UsageError("which policy is to be released? give ARTEFACT")
    options = dict(_pair(x) for x in router_option or [])
    if router != "istio":
        options = {"dir": str(folder.resolve()), **options}
    ends = Ends(
        server or server_of(folder),
        str((token or folder / TOKEN_FILE).resolve()),
        router,
        options,
        prometheus or "",
        selector,
    )
    console = Console()
    try:
        ended = release(folder, artefact, settings, ends, console, config)
    finally:
        console.end()
    typer.echo(f"{artefact} is {'the stable policy now' if ended is Stage.PROMOTED else 'rolled back'}")
    if ended is not Stage.PROMOTED:
        raise typer.Exit(CANARY_ROLLED_BACK)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--router-option {text}: must be NAME=VALUE")
    return name, value
