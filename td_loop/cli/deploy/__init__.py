"""`td-loop deploy`: admission, the server, and the canary. One command, one module of this folder."""

from __future__ import annotations

import typer

from td_loop.cli.deploy import canary, envoy, from_run, manifests, postmortem, releases, serve, simulate, verify


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    deploy = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        help="Release a policy to a few percent of traffic, watch it, and withdraw it when it degrades.",
    )
    verify.register(deploy)
    serve.register(deploy)
    canary.register(deploy)
    from_run.register(deploy)
    releases.register(deploy)
    postmortem.register(deploy)
    envoy.register(deploy)
    manifests.register(deploy)
    simulate.register(deploy)
    app.add_typer(deploy, name="deploy")
