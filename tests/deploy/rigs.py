"""Each back end with something to split: what the contract of routers is tested on."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from td_loop import files
from td_loop.deploy.names import DECISION_HEADER, DECISION_PREFIX, EPISODE_HEADER, SUBSET_HEADER, SUBSETS, Subset
from td_loop.deploy.routing import envoy_config, envoy_routes
from td_loop.deploy.routing.contract import Router
from td_loop.deploy.routing.embedded import EmbeddedRouter
from td_loop.deploy.routing.envoy import EnvoyRouter
from td_loop.deploy.routing.envoy_process import find_envoy, new_version, started
from td_loop.deploy.routing.istio import IstioRouter, Target
from td_loop.deploy.routing.istio_api import open_istio
from td_loop.deploy.routing.istio_manifests import Release, virtual_service
from td_loop.deploy.server.assignment import Choice, assign
from td_loop.deploy.server.episodes import Known
from td_loop.deploy.traffic import Traffic
from td_loop.errors import UsageError
from tests.deploy.api_server import ApiServer, api_server
from tests.deploy.upstreams import Loop, Upstream, ask_all, ask_until

Headers = Mapping[str, str]


def first(episode: str) -> Headers:
    """Headers of an episode's first request."""
    return {EPISODE_HEADER: episode}


def later(episode: str, subset: Subset) -> Headers:
    """Headers of a request of an episode whose last decision was the subset's."""
    return {EPISODE_HEADER: episode, DECISION_HEADER: DECISION_PREFIX.format(subset=subset) + "some-decision"}


class Rig(Protocol):
    """A back end at work.

    Attributes:
        router: the one under test.
        draws_by_hash: whether an episode is drawn by its id, so that it has a subset without its last decision.
    """

    router: Router
    draws_by_hash: bool

    def ask(self, requests: Sequence[Headers]) -> list[Subset]:
        """Who answers each of them."""
        ...

    def another(self) -> Router:
        """A router of another process."""
        ...

    def edit(self, canary: float) -> None:
        """What somebody does by hand."""
        ...

    def load(self) -> contextlib.AbstractContextManager[list[int]]:
        """Requests all the while the block runs; afterwards the list holds their statuses."""
        ...


class EmbeddedRig:
    """The server's own split, with the draw that servers make of it."""

    draws_by_hash = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.router: Router = EmbeddedRouter(folder)
        self._traffic = Traffic(folder)  # as each server process has it

    def ask(self, requests: Sequence[Headers]) -> list[Subset]:
        return [self._assign(headers) for headers in requests]

    def _assign(self, headers: Headers) -> Subset:
        last = headers.get(DECISION_HEADER, "").partition(".")[0]
        policies: dict[str, int] = {"stable": 1, "canary": 2}
        known = Known(cast(Subset, last), policies[last]) if last else None
        choice = Choice(self._traffic.read().canary_weight_bp, "release", **policies)
        return assign(headers[EPISODE_HEADER], choice, known, None).subset

    def another(self) -> Router:
        return EmbeddedRouter(self._folder)

    def edit(self, canary: float) -> None:
        other = Traffic(self._folder)
        other.set(round(canary * 100))
        other.close()

    @contextlib.contextmanager
    def load(self) -> Iterator[list[int]]:
        statuses: list[int] = []
        yield statuses
        statuses += [200 for _ in self.ask([first("e")])]

    def close(self) -> None:
        self.router.close()
        self._traffic.close()


@contextlib.contextmanager
def embedded_rig(tmp_path: Path) -> Iterator[EmbeddedRig]:
    rig = EmbeddedRig(tmp_path)
    try:
        yield rig
    finally:
        rig.close()


class EnvoyRig:
    """A real Envoy in front of two servers."""

    draws_by_hash = True

    def __init__(self, folder: Path, port: int, loop: Loop) -> None:
        self.folder, self.port = folder, port
        self.router: Router = EnvoyRouter(folder)
        self._loop = loop

    def ask(self, requests: Sequence[Headers]) -> list[Subset]:
        answers = self._loop.run(ask_all(self.port, [dict(headers) for headers in requests]))
        assert {status for status, _ in answers} <= {200}
        return [cast(Subset, body) for _, body in answers]

    def another(self) -> Router:
        return EnvoyRouter(self.folder)

    def edit(self, canary: float) -> None:
        file = self.folder / "routes.json"
        table = files.read_json(file)["resources"][0]
        files.write_json(file, envoy_routes.with_split(table, round(canary * 100), new_version()))
        time.sleep(0.2)  # for Envoy to see it; nobody waits for somebody else's edit

    @contextlib.contextmanager
    def load(self) -> Iterator[list[int]]:
        statuses: list[int] = []
        stop = False
        asked = self._loop.begin(ask_until(self.port, lambda: stop))
        try:
            yield statuses
        finally:
            stop = True
            statuses += [status for status, _ in asked.result(30)]


@contextlib.contextmanager
def envoy_rig(tmp_path: Path) -> Iterator[EnvoyRig]:
    try:
        find_envoy()
    except UsageError as e:
        pytest.skip(str(e))
    with two_servers() as (loop, servers):
        upstreams = {subset: envoy_config.Upstream.of(servers[subset].url) for subset in SUBSETS}
        with started(tmp_path, envoy_config.Plan(upstreams)) as envoy:
            yield EnvoyRig(tmp_path, envoy.where.port, loop)


@contextlib.contextmanager
def two_servers() -> Iterator[tuple[Loop, dict[Subset, Upstream]]]:
    """A loop, and servers that answer with the subset's name."""
    loop = Loop()
    servers = {subset: Upstream(subset) for subset in SUBSETS}
    try:
        for server in servers.values():
            loop.run(server.start())
        yield loop, servers
    finally:
        for server in servers.values():
            loop.run(server.stop())
        loop.close()


class IstioRig:
    """An API server's VirtualService, and a proxy that works by it as Istio's do."""

    draws_by_hash = False

    def __init__(self, server: ApiServer, kubeconfig: Path) -> None:
        self.server = server
        self._kubeconfig = kubeconfig
        self.router: Router = self.another()
        self._rng = random.Random(5)

    def ask(self, requests: Sequence[Headers]) -> list[Subset]:
        return [self._route(headers) for headers in requests]

    def another(self) -> IstioRouter:
        return open_istio(Target(), self._kubeconfig)

    def edit(self, canary: float) -> None:
        def change(service: Any) -> None:
            for http in service["spec"]["http"]:
                if len(http["route"]) == 2:
                    begun = http["name"] == "rl-canary-episodes"
                    weight = 100 * (canary > 0) if begun else canary
                    http["route"][0]["weight"], http["route"][1]["weight"] = int(100 - weight), int(weight)

        self.server.edit("rl-policy-routing", change)

    @contextlib.contextmanager
    def load(self) -> Iterator[list[int]]:
        statuses: list[int] = []
        yield statuses
        statuses += [200 for _ in self.ask([first("e")])]

    def _http(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.history["default", "rl-policy-routing"][-1]["spec"]["http"]
        return found

    def _route(self, headers: Headers) -> Subset:
        """The first http route with a match, then a draw by weight."""
        for http in self._http():
            if any(_matches(match, headers) for match in http.get("match", [{}])):
                shares = [entry.get("weight", 100 if len(http["route"]) == 1 else 0) for entry in http["route"]]
                [entry] = self._rng.choices(http["route"], shares)
                assert entry["headers"]["request"]["set"] == {SUBSET_HEADER: entry["destination"]["subset"]}
                return cast(Subset, entry["destination"]["subset"])
        raise AssertionError("404")


def _matches(match: Mapping[str, Any], headers: Headers) -> bool:
    wanted = match.get("headers", {})
    return match.get("uri") == {"exact": "/v1/decide"} and all(
        headers.get(name, "").startswith(rule["prefix"]) for name, rule in wanted.items()
    )


@contextlib.contextmanager
def istio_rig(tmp_path: Path) -> Iterator[IstioRig]:
    with api_server() as server:
        server.put(virtual_service(Release("image", "stable.onnx", "canary.onnx")))
        rig = IstioRig(server, server.kubeconfig(tmp_path))
        try:
            yield rig
        finally:
            rig.router.close()


RIGS = {"embedded": embedded_rig, "envoy": envoy_rig, "istio": istio_rig}
