"""`td-loop deploy manifests`: what to apply to a Kubernetes cluster with Istio."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from td_loop.deploy.routing.istio_manifests import Release

_DEFAULT = Release("", "", "")


def register(deploy: typer.Typer) -> None:
    """Add the command to `deploy`."""
    deploy.command("manifests")(manifests)


def manifests(
    image: Annotated[
        str, typer.Option(help="Container image with td-loop and both artefacts in it.", show_default=False)
    ],
    stable: Annotated[str, typer.Option(help="Path of the stable artefact in the image.", show_default=False)],
    canary: Annotated[str, typer.Option(help="Path of the canary's artefact in the image.", show_default=False)],
    namespace: Annotated[str, typer.Option(help="Of all objects.")] = _DEFAULT.namespace,
    name: Annotated[str, typer.Option(help="Of the VirtualService.")] = _DEFAULT.name,
    service: Annotated[str, typer.Option(help="Of the Kubernetes service.")] = _DEFAULT.service,
    host: Annotated[
        list[str] | None,
        typer.Option(help="That clients call; may be repeated.  [default: rl-infer.internal]", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the service and the pods.")] = _DEFAULT.port,
    replicas: Annotated[int, typer.Option(min=1, help="Pods of each subset.")] = _DEFAULT.replicas,
    api: Annotated[
        str, typer.Option(help="Version of networking.istio.io: v1, or v1beta1 before Istio 1.22.")
    ] = _DEFAULT.api,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file.  [default: the terminal]", show_default=False)
    ] = None,
) -> None:
    """Print a Service, two Deployments, a DestinationRule and a VirtualService, for `kubectl apply -f -`.

    The canary has a weight of 0; `td-loop deploy canary --router istio` moves it. The output is a List in JSON,
    which kubectl reads as it reads YAML.
    """
    from td_loop import files
    from td_loop.deploy.routing.istio_manifests import manifests as objects

    hosts = tuple(host or _DEFAULT.hosts)
    release = Release(image, stable, canary, namespace, name, service, hosts, port, replicas, api)
    listed = {"apiVersion": "v1", "kind": "List", "items": objects(release)}
    if out is None:
        typer.echo(files.dumps_json(listed, indent=True).decode())
    else:
        files.write_json(out, listed)
        typer.echo(f"written to {out}; next: kubectl apply -f {out}")
