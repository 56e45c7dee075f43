"""What Envoy is told once: where to listen, which servers there are, how their health is looked at.

The documents are Envoy's own, as JSON (https://www.envoyproxy.io/docs/envoy/v1.40.0/api-v3/api); they can be read
and edited by hand. What changes while it runs is in envoy_routes.py.

A cluster is chosen before health is looked at: the share of a canary that has died would be answered with 503. So
its cluster has stable as a second priority, for when the canary is ill or a request to it failed. The header that
names the subset is set by a filter behind the choice of a server, not by the route: it tells the truth where a
request went to stable in the canary's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from td_loop.deploy.names import SUBSET_HEADER, SUBSETS, Subset
from td_loop.errors import UsageError

Json = dict[str, Any]

ROUTES = "rl"
"""Name of the route table, and prefix of its statistics."""
CANARY_OR_STABLE = "canary_or_stable"
TYPE = "type.googleapis.com/envoy."


@dataclass(frozen=True)
class Upstream:
    """A server's address, of an http:// URL without a path.

    Raises:
        UsageError: it is none.
    """

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Upstream:
        """The upstream of a URL."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as e:  # a port that is none
            raise UsageError(f"{url!r}: {e}; give a server as http://HOST:PORT") from e
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise UsageError(f"{url!r} is no server; give it as http://HOST:PORT, without a path")
        return cls(parts.hostname, 80 if port is None else port)


@dataclass(frozen=True)
class Plan:
    """What an Envoy stands between.

    Attributes:
        upstreams: of each subset; both may be one server that holds both policies.
        host, port: where it listens; port 0 takes a free one.
        salt: of the release; see `assign.subset_of`.
        try_s: after which stable is asked beside a server that has not answered a decision. The own limit of a
            server (50 ms, then the fallback) is far below: this one is for servers that hang.
        health_s: between two looks at the health of a server.
    """

    upstreams: Mapping[Subset, Upstream]
    host: str = "127.0.0.1"
    port: int = 0
    salt: str = ""
    try_s: float = 0.5
    health_s: float = 1.0


def bootstrap(plan: Plan, routes_file: str) -> Json:
    """The bootstrap: admin interface, listener, clusters. The route table is read from `routes_file`, and again
    whenever another file is moved over it.
    """
    connections = {
        "name": "http",
        "typed_config": {
            "@type": TYPE + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": ROUTES,
            "generate_request_id": False,
            "rds": {
                "route_config_name": ROUTES,
                "config_source": {"resource_api_version": "V3", "path_config_source": {"path": routes_file}},
            },
            "http_filters": [
                {"name": "router", "typed_config": {"@type": TYPE + "extensions.filters.http.router.v3.Router"}}
            ],
        },
    }
    listener = {
        "name": ROUTES,
        "address": _address(plan.host, plan.port),
        # With it two Envoys share a port, and each gets some of the connections: without a word to anybody.
        "enable_reuse_port": False,
        "filter_chains": [{"filters": [connections]}],
    }
    return {
        "node": {"id": "td-loop", "cluster": "td-loop"},
        "admin": {"address": _address("127.0.0.1", 0)},
        "static_resources": {
            "listeners": [listener],
            "clusters": [_cluster(plan, CANARY_OR_STABLE, SUBSETS[::-1]), _cluster(plan, "stable", ("stable",))],
        },
    }


def _cluster(plan: Plan, name: str, subsets: Sequence[Subset]) -> Json:
    """A cluster of one server a priority, in this order."""
    name_it = {
        "@type": TYPE + "extensions.filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {
            "request_mutations": [
                {
                    "append": {
                        "header": {"key": SUBSET_HEADER, "value": f"%UPSTREAM_METADATA({ROUTES}:subset)%"},
                        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                    }
                }
            ]
        },
    }
    return {
        "name": name,
        "type": "STRICT_DNS",  # a name or an address
        "connect_timeout": "0.25s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [
                {"priority": priority, "lb_endpoints": [_endpoint(plan.upstreams[subset], subset)]}
                for priority, subset in enumerate(subsets)
            ],
        },
        "health_checks": [
            {
                "timeout": f"{plan.health_s:g}s",
                "interval": f"{plan.health_s:g}s",
                "no_traffic_interval": f"{plan.health_s:g}s",  # a minute otherwise
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "http_health_check": {"path": "/readyz"},
            }
        ],
        # Three retries at once otherwise: the others would be failed when a busy canary dies.
        "circuit_breakers": {"thresholds": [{"max_retries": 1024}]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": TYPE + "extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http_protocol_options": {}},
                "http_filters": [
                    {"name": "subset", "typed_config": name_it},
                    {
                        "name": "codec",
                        "typed_config": {
                            "@type": TYPE + "extensions.filters.http.upstream_codec.v3.UpstreamCodec"
                        },
                    },
                ],
            }
        },
    }


def _endpoint(upstream: Upstream, subset: Subset) -> Json:
    return {
        "endpoint": {"address": _address(upstream.host, upstream.port)},
        "metadata": {"filter_metadata": {ROUTES: {"subset": subset}}},
    }


def _address(host: str, port: int) -> Json:
    return {"socket_address": {"address": host, "port_value": port}}
