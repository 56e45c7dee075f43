"""`td-loop deploy envoy`: a real Envoy in front of the servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command("envoy")(envoy)


def envoy(
    folder: Annotated[
        Path,
        typer.Option("--dir", help="The server's folder; Envoy's files go into DIR/envoy.", show_default=False),
    ],
    stable: Annotated[
        str, typer.Option(metavar="URL", help="The stable server, http://HOST:PORT.", show_default=False)
    ],
    canary: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The canary's; the same one where one server has both policies.",
            show_default=False,
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where clients connect. 0 takes a free one.")] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    salt: Annotated[
        str, typer.Option(help="Of the release: another one draws the episodes anew.", show_default=False)
    ] = "",
) -> None:
    """Run an Envoy in front of a stable and a canary server, until SIGINT or SIGTERM.

    It begins with nothing for the canary, or with the split that it had when it was stopped. What changes the
    split is `td-loop deploy canary ... --router envoy`, while Envoy runs. Clients give the header
    x-episode-id, and x-decision-id with the id of their last decision: then an episode stays with one policy. The
    requests of a canary server that is ill or hangs go to stable. Needs pip install 'td-loop[deploy-envoy]'.

    Exit codes: 1 when Envoy does not start, with its own words, or ends by itself; 5 when one runs in the folder.
    """
    from td_loop.deploy.names import Subset
    from td_loop.deploy.routing.choose import ENVOY_FOLDER
    from td_loop.deploy.routing.envoy import EnvoyRouter
    from td_loop.deploy.routing.envoy_config import Plan, Upstream
    from td_loop.deploy.routing.envoy_process import started

    upstreams: dict[Subset, Upstream] = {"stable": Upstream.of(stable), "canary": Upstream.of(canary)}
    place = folder / ENVOY_FOLDER
    with started(place, Plan(upstreams, host, port, salt)) as running:
        share = EnvoyRouter(place).read()
        typer.echo(f"envoy: {running.where.url}: stable {stable}, canary {canary} with {share:g} %")
        running.wait()
