"""`td-loop deploy serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command("serve")(serve)


def serve(
    stable: Annotated[
        Path | None,
        typer.Option(
            help="The artefact that answers. [default: what the folder's server had last]", show_default=False
        ),
    ] = None,
    canary: Annotated[
        Path | None, typer.Option(help="Another one, which is tried on part of the episodes.", show_default=False)
    ] = None,
    canary_percent: Annotated[float, typer.Option(help="Percent of new episodes that the canary gets.")] = 0.0,
    folder: Annotated[
        Path, typer.Option("--dir", help="The server's folder: traffic split, keys, counters, refused artefacts.")
    ] = Path("deploy"),
    host: Annotated[str, typer.Option(help="Where to listen; the default is this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 is any that is free.")] = 8080,
    processes: Annotated[int, typer.Option(help="Server processes; the kernel deals connections out.")] = 1,
    deadline_ms: Annotated[float, typer.Option(help="What a policy has before the rule answers for it.")] = 50.0,
    threads: Annotated[int, typer.Option(help="Threads that compute for each policy, in each process.")] = 4,
    runtime: Annotated[str, typer.Option(help="onnxruntime, numpy or torch.")] = "onnxruntime",
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy",
            help="An Envoy or Istio in front splits the traffic: believe the header x-rl-subset, which it sets. "
            "Nobody else must be able to reach the server.",
        ),
    ] = False,
) -> None:
    """Answer decisions over HTTP: POST /v1/decide, rewards at /v1/reward, figures at /metrics.

    Only artefacts that `td-loop deploy verify` has passed are served, and none that was rolled back. When a policy
    has not answered within the deadline, or not with a legal action, a rule answers in its place: with 200 and
    "fallback": true. The server listens once all policies are warm.

    What changes a release (PUT /v1/traffic, PUT /v1/canary, POST /v1/promote) is taken from this machine only,
    with the text of DIR/token as bearer token; `td-loop deploy canary` knows how.

    Exit codes: 130 or 143 after SIGINT or SIGTERM, when requests under way have been answered; 8 an artefact was
    refused; 5 the folder is in use; 64 the port is.
    """
    from td_loop.deploy.server.serve import ServeSettings
    from td_loop.deploy.server.serve import serve as run

    settings = ServeSettings(
        stable, canary, canary_percent, folder, host, port, processes, deadline_ms, runtime, threads, behind_proxy
    )
    run(settings, typer.echo)
