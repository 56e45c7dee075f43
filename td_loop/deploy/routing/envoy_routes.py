"""The route table that Envoy works by: it holds the weights, and is replaced while Envoy runs.

A table is a pure function of a `Plan`, a weight and a version (RouteConfiguration, in the DiscoveryResponse that
Envoy reads from a file). Three things are worth knowing about Envoy's weighted clusters (v1.36 and later):

- `use_hash_policy` draws by the hash of a header in place of a random number: hash modulo the sum of the weights
  falls into the first cluster's interval, or the next one's. The canary stands first, so that its interval is
  [0, weight) and a larger weight only ever adds episodes, as in `assign.py`.
- Without the header there is no hash, and the draw is random for each request.
- The hash (xxHash64) knows no salt. A rewrite of the header's value, for the hash alone, puts the release's name
  in front of it, so that each release draws anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from td_loop.deploy.names import DECISION_HEADER, DECISION_PREFIX, EPISODE_HEADER, FULL_BP, SUBSETS, Subset
from td_loop.deploy.routing.contract import RouterError
from td_loop.deploy.routing.envoy_config import CANARY_OR_STABLE, ROUTES, TYPE, Json, Plan

SPLIT_ROUTE = "rl-split"
"""Name of the route that draws a subset."""
EPISODES_ROUTE = "rl-canary-episodes"
"""Name of the route of episodes that the canary has begun."""
VERSION_PATH = "/-/rl-routes"
"""Answered by Envoy itself, with the version of the route table that the worker at hand works by."""
PATHS = ("/v1/decide", "/v1/reward", "/healthz", "/readyz")
"""All that Envoy lets through: a server takes orders from its own machine, and so would take them from Envoy."""

_PATIENCE = 10
"""What both tries together may take, in times of one."""


def routes(plan: Plan, canary_bp: int, version: str) -> Json:
    """The route table at a weight, as the file that Envoy reads (a DiscoveryResponse)."""
    decide = {
        "timeout": f"{_PATIENCE * plan.try_s:g}s",
        "retry_policy": _retry(plan),
        # The first try goes on beside the second, and the first answer counts: on a machine that is late with
        # everything, the second would be no sooner.
        "hedge_policy": {"hedge_on_per_try_timeout": True},
    }
    split = {
        "name": SPLIT_ROUTE,
        "match": {"path": "/v1/decide"},
        "route": {
            **decide,
            "weighted_clusters": {
                "use_hash_policy": True,
                "clusters": [{"name": CANARY_OR_STABLE, "weight": 0}, {"name": "stable", "weight": FULL_BP}],
            },
            "hash_policy": [
                {
                    "header": {
                        "header_name": EPISODE_HEADER,
                        "regex_rewrite": {"pattern": {"regex": "^"}, "substitution": _literal(plan.salt) + ":"},
                    }
                }
            ],
        },
    }
    kept = [
        {"name": name, "match": _after(subset, "/v1/decide"), "route": {**decide, "cluster": "stable"}}
        for subset, name in zip(SUBSETS, ("rl-stable-episodes", EPISODES_ROUTE), strict=True)
    ]
    # Who made a decision knows it again: where the two servers are not one, a reward has to go to the right one.
    rewards = {
        "name": "rl-canary-rewards",
        "match": _after("canary", "/v1/reward"),
        "route": {"timeout": decide["timeout"], "cluster": CANARY_OR_STABLE},
    }
    others = [
        {
            "name": f"rl-{path.rpartition('/')[2]}",
            "match": {"path": path},
            "route": {"timeout": decide["timeout"], "cluster": "stable"},
        }
        for path in PATHS[1:]
    ]
    which = {
        "name": "rl-version",
        "match": {"path": VERSION_PATH},
        "direct_response": {"status": 200, "body": {"inline_string": ""}},
    }
    host = {"name": ROUTES, "domains": ["*"], "routes": [*kept, split, rewards, *others, which]}
    table = {"@type": TYPE + "config.route.v3.RouteConfiguration", "name": ROUTES, "virtual_hosts": [host]}
    return with_split(table, canary_bp, version)


def _after(subset: Subset, path: str) -> Json:
    """A match of requests that name a decision of the subset."""
    prefix = DECISION_PREFIX.format(subset=subset)
    return {"path": path, "headers": [{"name": DECISION_HEADER, "string_match": {"prefix": prefix}}]}


def with_split(table: Json, canary_bp: int, version: str) -> Json:
    """A route table (RouteConfiguration, changed in place) at another weight, as the file that Envoy reads.

    All else in it stays as it is: somebody may have edited it.

    Raises:
        RouterError: the routes are not there.
    """
    found = _named(table)
    clusters = _weights(found)
    clusters[CANARY_OR_STABLE]["weight"], clusters["stable"]["weight"] = canary_bp, FULL_BP - canary_bp
    found[EPISODES_ROUTE]["route"]["cluster"] = CANARY_OR_STABLE if canary_bp else "stable"
    found["rl-version"]["direct_response"]["body"] = {"inline_string": version}
    return {"version_info": version, "resources": [table]}


def split_of(table: Json) -> int:
    """The canary's weight in a route table, in basis points.

    Raises:
        RouterError: the routes are not those of `routes`, the weights do not add up to all traffic, or 0 would not
            be 0 because begun episodes still go to the canary.
    """
    found = _named(table)
    clusters = _weights(found)
    canary = int(clusters[CANARY_OR_STABLE].get("weight", 0))  # Envoy leaves out what is 0 at times
    stable = int(clusters["stable"].get("weight", 0))
    if canary + stable != FULL_BP:
        raise RouterError(
            f"Envoy's route {SPLIT_ROUTE!r} has weights {canary} and {stable}, which are not {FULL_BP} together; "
            "somebody edited it by hand: set a split anew"
        )
    begun = found[EPISODES_ROUTE]["route"].get("cluster")
    if begun != (CANARY_OR_STABLE if canary else "stable"):
        raise RouterError(
            f"Envoy's route {EPISODES_ROUTE!r} leads to {begun!r}, which does not go with a weight of {canary}; "
            "somebody edited it by hand: set a split anew"
        )
    return canary


def _named(table: Json) -> dict[str, Json]:
    try:
        found = {r["name"]: r for h in table["virtual_hosts"] for r in h["routes"] if "name" in r}
        for name, action in ((SPLIT_ROUTE, "route"), (EPISODES_ROUTE, "route"), ("rl-version", "direct_response")):
            found[name][action]
    except (KeyError, TypeError) as e:
        raise RouterError(
            f"Envoy's route table has lost the part {e}; somebody edited it by hand: "
            "start `td-loop deploy envoy` anew, which writes it anew"
        ) from e
    return found


def _weights(found: Mapping[str, Json]) -> dict[str, Json]:
    clusters = {
        c.get("name"): c for c in found[SPLIT_ROUTE]["route"].get("weighted_clusters", {}).get("clusters", [])
    }
    if set(clusters) != {CANARY_OR_STABLE, "stable"}:
        raise RouterError(
            f"Envoy's route {SPLIT_ROUTE!r} splits between {sorted(map(str, clusters))}, not between "
            f"{CANARY_OR_STABLE!r} and 'stable'; somebody edited it by hand: start `td-loop deploy envoy` anew"
        )
    return clusters


def _retry(plan: Plan) -> Json:
    """Once more, at the other priority (stable), where a server gave no answer at all, or none in time.

    A decision may be asked for twice: what counts is the one whose id the client reports a reward for.
    """
    return {
        "retry_on": "connect-failure,refused-stream,reset",
        "num_retries": 1,
        "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.005s"},
        "per_try_timeout": f"{plan.try_s:g}s",
        "retry_priority": {
            "name": "envoy.retry_priorities.previous_priorities",
            "typed_config": {
                "@type": TYPE + "extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
                "update_frequency": 1,
            },
        },
    }


def _literal(text: str) -> str:
    """Text as a substitution of RE2, in which a backslash leads in a group's number."""
    return text.replace("\\", "\\\\")
