"""Flags of the commands that release a policy: where everything is, and what the release is to be like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from td_loop.errors import CANARY_ROLLED_BACK, UsageError

if TYPE_CHECKING:
    from td_loop.deploy.canary.run import Ends
    from td_loop.deploy.canary.settings import CanarySettings

DIR = Path("deploy")
EXITS = (
    "Exit codes: 0 promoted; 9 rolled back, or aborted; 8 the artefact was not verified, or has been rolled back "
    "before; 5 another controller works in the folder; 1 the router does not answer; 64 usage; 65 a file cannot "
    "be used; 130, 143 stopped by a signal: weights stay as they are, and the same command goes on."
)

Dir = Annotated[Path, typer.Option("--dir", help="The server's folder; the release's files go there, too.")]
Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The server.  [default: the one that works in --dir]", show_default=False),
]
Token = Annotated[
    Path | None, typer.Option(help="File with the server's token.  [default: DIR/token]", show_default=False)
]
Router = Annotated[str, typer.Option(help="Who splits the traffic: embedded (the server itself), envoy or istio.")]
RouterOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Of the router; as often as needed.", show_default=False),
]
Prometheus = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Read the counters here.  [default: the server's /metrics]", show_default=False
    ),
]
Selector = Annotated[
    str,
    typer.Option(help="Label matchers of our servers in Prometheus, as in 'job=\"policy\"'.", show_default=False),
]
Config = Annotated[
    Path | None, typer.Option(help="canary.toml; a flag goes before what it says.", show_default=False)
]
Gate = Annotated[
    str | None,
    typer.Option(help="auto, or manual: each stage waits for `approve`.  [default: auto]", show_default=False),
]


def ends_of(
    folder: Path,
    server: str | None,
    token: Path | None,
    router: str,
    router_option: list[str] | None,
    prometheus: str | None,
    selector: str,
) -> Ends:
    """How everything outside is reached.

    Raises:
        UsageError: no server works in the folder, or a router's option is none.
    """
    from td_loop.deploy.canary.run import Ends, server_of
    from td_loop.deploy.names import TOKEN_FILE

    options = dict(_pair(x) for x in router_option or [])
    if router != "istio":
        options = {"dir": str(folder.resolve()), **options}
    if server is None:
        server_of(folder)
    secret = str((token or folder / TOKEN_FILE).resolve())
    return Ends(server or "", secret, router, options, prometheus or "", selector)


def release_it(
    folder: Path, artefact: Path, settings: CanarySettings, ends: Ends, config: Path | None = None
) -> None:
    """Release an artefact to its end, and say how it ended.

    Raises:
        typer.Exit: it was rolled back.
    """
    from td_loop.deploy.canary.console import Console
    from td_loop.deploy.canary.machine import Stage
    from td_loop.deploy.canary.run import release

    console = Console()
    try:
        ended = release(folder, artefact, settings, ends, console, config)
    finally:
        console.end()
    typer.echo(f"{artefact} is {'promoted' if ended is Stage.PROMOTED else 'rolled back'}")
    if ended is not Stage.PROMOTED:
        raise typer.Exit(CANARY_ROLLED_BACK)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--router-option {text}: must be NAME=VALUE")
    return name, value
