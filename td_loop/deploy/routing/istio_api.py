"""The way to a VirtualService: the official Kubernetes client, with errors that say what was refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from td_loop.deploy.routing.contract import RouterError
from td_loop.deploy.routing.istio import Conflict, IstioRouter, Json, Target
from td_loop.errors import UsageError

INSTALL = "pip install 'td-loop[deploy-istio]'"
ANSWER_S = (2.0, 5.0)
"""Seconds to connect to the API server, and to wait for it."""


class _Api:
    """`VirtualServices` through the official client."""

    def __init__(self, client: Any, target: Target) -> None:
        from kubernetes.client import CustomObjectsApi

        self._api, self._target = CustomObjectsApi(client), target
        self._where = {
            "group": "networking.istio.io",
            "version": target.api,
            "namespace": target.namespace,
            "plural": "virtualservices",
            "name": target.name,
            "_request_timeout": ANSWER_S,
        }

    def get(self) -> Json:
        found: Json = self._call(self._api.get_namespaced_custom_object, "get")
        return found

    def patch(self, operations: list[Json]) -> None:
        self._call(
            self._api.patch_namespaced_custom_object,
            "patch",
            body=operations,
            # The client would call it a merge patch, and the server take the list for a broken one.
            _content_type="application/json-patch+json",
        )

    def _call(self, method: Callable[..., Any], verb: str, **arguments: Any) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        what = f"VirtualService {self._target.name} in namespace {self._target.namespace}"
        try:
            return method(**self._where, **arguments)
        except ApiException as e:
            why = _message(e)
            if verb == "patch" and e.status in (409, 422):  # changed meanwhile; a `test` failed
                raise Conflict(why) from e
            remedy = {
                401: "; log in again",
                403: f"; the account needs the verb {verb!r} on virtualservices",
                404: "; apply what `td-loop deploy manifests` prints, or see the options namespace and name",
            }.get(e.status, "")
            raise RouterError(f"{what}: {verb} was answered with {e.status}: {why}{remedy}") from e
        except (HTTPError, OSError) as e:
            raise RouterError(f"{what}: the API server does not answer: {e}") from e


def _message(e: Any) -> str:
    """What a Kubernetes `Status` says, or the HTTP reason."""
    try:
        return str(json.loads(e.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(e.reason)


def open_istio(target: Target, kubeconfig: Path | None = None, context: str | None = None) -> IstioRouter:
    """A router by way of a kubeconfig (that of `kubectl` if none is named), or of the pod that this runs in.

    Raises:
        UsageError: the client is not installed, or there is no configuration.
    """
    try:
        from kubernetes import config
        from kubernetes.client import ApiClient, Configuration
    except ImportError as e:
        raise UsageError(f"the Istio router needs the Kubernetes client: {INSTALL}") from e
    settings = Configuration()
    try:
        if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=settings)
        else:
            file = None if kubeconfig is None else str(kubeconfig)
            config.load_kube_config(config_file=file, context=context, client_configuration=settings)
    except (config.ConfigException, OSError) as e:
        raise UsageError(
            f"no way to the Kubernetes API: {e}; see the router's options kubeconfig and context"
        ) from e
    client = ApiClient(settings)
    return IstioRouter(_Api(client, target), target, client.close)
