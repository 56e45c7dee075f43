"""`td-loop deploy canary`: release a policy step by step, and withdraw it when it degrades."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from td_loop.cli.deploy import options
from td_loop.errors import UsageError


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command("canary", epilog=options.EXITS)(canary)


def canary(
    artefact: Annotated[
        Path | None,
        typer.Argument(
            metavar="ARTEFACT", help="A policy that `td-loop deploy verify` has passed.", show_default=False
        ),
    ] = None,
    folder: options.Dir = options.DIR,
    server: options.Server = None,
    token: options.Token = None,
    router: options.Router = "embedded",
    router_option: options.RouterOption = None,
    prometheus: options.Prometheus = None,
    selector: options.Selector = "",
    config: options.Config = None,
    gate: options.Gate = None,
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
    ends = options.ends_of(folder, server, token, router, router_option, prometheus, selector)
    options.release_it(folder, artefact, settings, ends, config)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
