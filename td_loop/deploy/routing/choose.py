"""The back ends by name, with options that can be written down: a controller finds its own again after a kill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from td_loop.deploy.routing.contract import Router
from td_loop.errors import UsageError

KINDS = ("embedded", "envoy", "istio")

ENVOY_FOLDER = "envoy"
"""Where below the server's folder `td-loop deploy envoy` works."""

_ISTIO = ("name", "namespace", "service", "route", "api")
_OPTIONS = {"embedded": {"dir"}, "envoy": {"dir"}, "istio": {*_ISTIO, "kubeconfig", "context"}}


def open_router(kind: str, options: Mapping[str, Any]) -> Router:
    """A router.

    Args:
        kind: "embedded" (the server itself), "envoy" or "istio".
        options: JSON data. embedded, envoy: `dir`, the server's folder. istio: `name`, `namespace`, `service`,
            `route` and `api` as in `istio.Target`, `kubeconfig`, `context`. None is as if it were not there.

    Raises:
        UsageError: another kind or option; the back end's library is not installed.
        RouterError: embedded: the folder is no server's.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown router {kind!r}; there are {', '.join(KINDS)}")
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := set(given) - _OPTIONS[kind]:
        raise UsageError(
            f"router {kind} has no option {', '.join(sorted(unknown))}; it has {', '.join(sorted(_OPTIONS[kind]))}"
        )
    if kind == "istio":
        from td_loop.deploy.routing.istio import Target
        from td_loop.deploy.routing.istio_api import open_istio

        kubeconfig = given.get("kubeconfig")
        target = Target(**{name: given[name] for name in _ISTIO if name in given})
        return open_istio(target, None if kubeconfig is None else Path(kubeconfig), given.get("context"))
    if "dir" not in given:
        raise UsageError(f"router {kind} needs the server's folder (dir)")
    folder = Path(given["dir"])
    if kind == "envoy":
        from td_loop.deploy.routing.envoy import EnvoyRouter

        return EnvoyRouter(folder / ENVOY_FOLDER)
    from td_loop.deploy.routing.embedded import EmbeddedRouter

    return EmbeddedRouter(folder)
