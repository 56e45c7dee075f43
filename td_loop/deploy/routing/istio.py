"""The split of an Istio VirtualService, changed through the Kubernetes API and read back from it.

A change is one JSON Patch (RFC 6902). It finds its routes by name or by destination, never by a number that
somebody once looked up, and its `test` operations hold the server to that: if the route is not where it was a
moment ago, nothing is changed and the object is read again. The weights of a route change together and add up to
100, in every version of the object that the API server ever had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from td_loop.deploy.names import SUBSETS
from td_loop.deploy.routing.contract import RouterError, whole_steps
from td_loop.deploy.routing.istio_manifests import API_VERSION, EPISODES_ROUTE, SPLIT_ROUTE

Json = dict[str, Any]

TRIES = 5
"""How often a change is tried when others change the object at the same time."""


@dataclass(frozen=True)
class Target:
    """Which VirtualService, and which of its routes.

    Attributes:
        name, namespace: of the object.
        service: host of both destinations; "" where the route's name or its subsets tell enough.
        route: name of the http route. Where none has that name it is the one with the two destinations, if that
            is one alone.
        api: version of networking.istio.io.
    """

    name: str = "rl-policy-routing"
    namespace: str = "default"
    service: str = ""
    route: str = SPLIT_ROUTE
    api: str = API_VERSION


class VirtualServices(Protocol):
    """What is needed of the API, bound to one object.

    Both raise RouterError, `patch` also Conflict where the object was not what a patch supposed.
    """

    def get(self) -> Json:
        """The object."""
        ...

    def patch(self, operations: list[Json]) -> None:
        """Change it by a JSON Patch."""
        ...


class Conflict(Exception):
    """Somebody else changed the object between reading and patching."""


@dataclass(frozen=True)
class Route:
    """An http route with the two destinations, where it was found.

    Attributes:
        at: JSON pointer of the route.
        name: "" if it has none.
        index: place of each subset's destination.
        destination: of each subset, as it stands.
        weight: of each subset; 0 where none is given.
    """

    at: str
    name: str
    index: dict[str, int]
    destination: dict[str, Json]
    weight: dict[str, int]

    def patch(self, canary: int) -> Iterator[Json]:
        """Operations that give the canary its weight, and stable the rest."""
        if self.name:
            yield {"op": "test", "path": f"{self.at}/name", "value": self.name}
        for subset in SUBSETS:
            here = f"{self.at}/route/{self.index[subset]}"
            yield {"op": "test", "path": f"{here}/destination", "value": self.destination[subset]}
        for subset, weight in (("stable", 100 - canary), ("canary", canary)):
            # RFC 6902 4.1: an `add` replaces what is there, and a weight of 0 need not be.
            yield {"op": "add", "path": f"{self.at}/route/{self.index[subset]}/weight", "value": weight}


class IstioRouter:
    """The split of a VirtualService.

    What `set` reads back is what the API server holds. Istio hands it on to its proxies within moments, and tells
    nobody when: after `set(0)` a proxy may send a few requests more to the canary.
    """

    step = 1.0
    apart = True

    def __init__(
        self,
        services: VirtualServices,
        target: Target,
        close: Callable[[], None] | None = None,
        tries: int = TRIES,
    ) -> None:
        self._services, self._target, self._close, self._tries = services, target, close, tries

    def read(self) -> float:
        """See `Router.read`."""
        split, begun = self._routes(self._services.get())
        canary = _canary(split)
        if begun is not None and (_canary(begun) > 0) != (canary > 0):
            raise RouterError(
                f"VirtualService {self._target.name}: of begun episodes ({EPISODES_ROUTE}) the canary keeps "
                f"{_canary(begun)} %, which does not go with a split of {canary} %; set a split anew"
            )
        return float(canary)

    def set(self, canary: float) -> float:
        """See `Router.set`. Percentages are whole numbers here (`whole_steps`)."""
        wanted = whole_steps(canary, self.step)
        for _ in range(self._tries):
            split, begun = self._routes(self._services.get())
            operations = list(split.patch(round(wanted)))
            if begun is not None:
                operations += begun.patch(100 if wanted else 0)
            try:
                self._services.patch(operations)
            except Conflict as e:
                reason = str(e)
            else:
                break
        else:
            raise RouterError(
                f"VirtualService {self._target.name} was not what it had just been, {self._tries} times: {reason}"
            )
        got = self.read()
        if got != wanted:
            raise RouterError(
                f"VirtualService {self._target.name} was to give the canary {wanted:g} %, and has {got:g} % now: "
                "somebody else sets it"
            )
        return got

    def close(self) -> None:
        """See `Router.close`."""
        if self._close is not None:
            self._close()

    def _routes(self, service: Json) -> tuple[Route, Route | None]:
        """The route of the split, and the one of begun episodes where there is one."""
        found = list(_routes(service, self._target.service))
        named = {route.name: route for route in found if route.name}
        begun = named.get(EPISODES_ROUTE)
        if (split := named.get(self._target.route)) is not None:
            return split, begun
        others = [route for route in found if route is not begun]
        taken = any(http.get("name") == self._target.route for http in _http(service))
        if len(others) == 1 and not taken:
            return others[0], begun
        raise RouterError(
            f"VirtualService {self._target.name} in namespace {self._target.namespace}: of {len(others)} http "
            f"routes between the subsets stable and canary none is called {self._target.route!r}; give its name, "
            "or apply what `td-loop deploy manifests` prints"
        )


def _http(service: Json) -> list[Json]:
    found: list[Json] = service.get("spec", {}).get("http", [])
    return found


def _routes(service: Json, host: str) -> Iterator[Route]:
    """All http routes with exactly the two destinations."""
    for number, http in enumerate(_http(service)):
        destinations = [entry.get("destination", {}) for entry in http.get("route", [])]
        index = {d.get("subset"): i for i, d in enumerate(destinations) if d.get("host") == host or not host}
        if len(destinations) == 2 and set(index) == set(SUBSETS):
            yield Route(
                at=f"/spec/http/{number}",
                name=http.get("name", ""),
                index=index,
                destination={subset: destinations[i] for subset, i in index.items()},
                weight={subset: http["route"][i].get("weight", 0) for subset, i in index.items()},
            )


def _canary(route: Route) -> int:
    if sum(route.weight.values()) != 100:
        raise RouterError(
            f"http route {route.name or route.at} has weights {route.weight['stable']} (stable) and "
            f"{route.weight['canary']} (canary), which are not 100 together; set a split anew"
        )
    return route.weight["canary"]
