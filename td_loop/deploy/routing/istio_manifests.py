"""Kubernetes and Istio objects for a stable and a canary policy, with a split between them.

Istio draws the split of a VirtualService at random for each request: `consistentHash` of a DestinationRule chooses
a pod inside a subset, after the draw (https://github.com/istio/istio/issues/9764). What Istio can do is match a
header. A client sends the id of its last decision (`x-decision-id`), which begins with the subset, and a route
before the split keeps the episode there. So the first decision of an episode is drawn, and the rest follow it.

References: https://istio.io/latest/docs/reference/config/networking/virtual-service/ and /destination-rule/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from td_loop.deploy.names import DECISION_HEADER, DECISION_PREFIX, EPISODE_HEADER, SUBSET_HEADER, SUBSETS, Subset

Json = dict[str, Any]

SPLIT_ROUTE = "rl-split"
"""Name of the route that draws."""
EPISODES_ROUTE = "rl-canary-episodes"
"""Name of the route of episodes that the canary has begun."""
API_VERSION = "v1"
"""Of networking.istio.io: Istio 1.22 and later. Earlier ones have v1beta1."""


@dataclass(frozen=True)
class Release:
    """What to run, and under which names.

    Attributes:
        image: container image with td-loop and the artefacts in it.
        stable, canary: paths of the artefacts in the image.
        namespace: of all objects.
        name: of the VirtualService.
        service: of the Kubernetes service; also the `app` label.
        hosts: that clients call.
        port: of the service and of the pods.
        replicas: of each subset.
        api: version of networking.istio.io.
    """

    image: str
    stable: str
    canary: str
    namespace: str = "default"
    name: str = "rl-policy-routing"
    service: str = "rl-infer-service"
    hosts: tuple[str, ...] = ("rl-infer.internal",)
    port: int = 8000
    replicas: int = 1
    api: str = API_VERSION


def manifests(release: Release) -> list[Json]:
    """All objects; the canary has a weight of 0."""
    return [
        _service(release),
        *(_deployment(release, subset) for subset in SUBSETS),
        destination_rule(release),
        virtual_service(release),
    ]


def virtual_service(release: Release) -> Json:
    """The routes: begun episodes, the split, rewards for the canary, and all else (rewards, health) to stable."""

    def weighted(*shares: tuple[Subset, int]) -> list[Json]:
        return [
            {
                "destination": {"host": release.service, "subset": subset},
                "weight": weight,
                "headers": {"request": {"set": {SUBSET_HEADER: subset}}},
            }
            for subset, weight in shares
        ]

    def after(subset: Subset, path: str) -> Json:
        """A match of requests that name a decision of the subset."""
        prefix = DECISION_PREFIX.format(subset=subset)
        return {"uri": {"exact": path}, "headers": {DECISION_HEADER: {"prefix": prefix}}}

    def http(name: str, matches: list[Json], *shares: tuple[Subset, int]) -> Json:
        return {"name": name, "match": matches, "route": weighted(*shares), "timeout": "2s"}

    others = [{"uri": {"exact": path}} for path in ("/v1/reward", "/healthz", "/readyz")]
    routes = [
        http(EPISODES_ROUTE, [after("canary", "/v1/decide")], ("stable", 100), ("canary", 0)),
        http("rl-stable-episodes", [after("stable", "/v1/decide")], ("stable", 100)),
        http(SPLIT_ROUTE, [{"uri": {"exact": "/v1/decide"}}], ("stable", 100), ("canary", 0)),
        # Each pod has a key of its own: only who made a decision takes a reward for it.
        http("rl-canary-rewards", [after("canary", "/v1/reward")], ("canary", 100)),
        http("rl-others", others, ("stable", 100)),
    ]
    return _istio(release, "VirtualService", release.name, {"hosts": list(release.hosts), "http": routes})


def destination_rule(release: Release) -> Json:
    """The two subsets, by label; inside a subset an episode stays with one pod while that lives."""
    return _istio(
        release,
        "DestinationRule",
        release.service,
        {
            "host": release.service,
            "trafficPolicy": {"loadBalancer": {"consistentHash": {"httpHeaderName": EPISODE_HEADER}}},
            "subsets": [{"name": subset, "labels": {"version": subset}} for subset in SUBSETS],
        },
    )


def _istio(release: Release, kind: str, name: str, spec: Json) -> Json:
    return {
        "apiVersion": f"networking.istio.io/{release.api}",
        "kind": kind,
        "metadata": {"name": name, "namespace": release.namespace},
        "spec": spec,
    }


def _service(release: Release) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": release.service, "namespace": release.namespace, "labels": {"app": release.service}},
        "spec": {
            "selector": {"app": release.service},
            "ports": [{"name": "http", "port": release.port, "targetPort": "http"}],  # Istio goes by the name
        },
    }


def _deployment(release: Release, subset: Subset) -> Json:
    labels = {"app": release.service, "version": subset}
    args = ["deploy", "serve", "--host", "0.0.0.0", "--port", str(release.port), "--dir", "/state"]
    args += ["--behind-proxy", "--stable", release.stable]
    args += ["--canary", release.canary] if subset == "canary" else []
    container = {
        "name": "policy",
        "image": release.image,
        "command": ["td-loop"],
        "args": args,
        "ports": [{"name": "http", "containerPort": release.port}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "state", "mountPath": "/state"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{release.service}-{subset}", "namespace": release.namespace, "labels": labels},
        "spec": {
            "replicas": release.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": str(release.port),
                        "prometheus.io/path": "/metrics",
                    },
                },
                "spec": {"containers": [container], "volumes": [{"name": "state", "emptyDir": {}}]},
            },
        },
    }
