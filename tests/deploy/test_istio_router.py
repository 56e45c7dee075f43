"""What only Istio's router can get wrong: other people's routes, edits at the same time, an API that says no."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from td_loop.deploy.routing.contract import RouterError
from td_loop.deploy.routing.istio import TRIES, IstioRouter, Target
from td_loop.deploy.routing.istio_api import open_istio
from td_loop.deploy.routing.istio_manifests import EPISODES_ROUTE, SPLIT_ROUTE, Release, virtual_service
from td_loop.errors import UsageError
from tests.deploy.api_server import ApiServer, api_server

Json = dict[str, Any]
NAME = "rl-policy-routing"
RELEASE = Release("image", "stable.onnx", "canary.onnx")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as made:
        made.put(virtual_service(RELEASE))
        yield made


@pytest.fixture
def router(server: ApiServer, tmp_path: Path) -> Iterator[IstioRouter]:
    made = open_istio(Target(), server.kubeconfig(tmp_path))
    yield made
    made.close()


def destination(subset: str, weight: int | None = None, host: str = "rl-infer-service") -> Json:
    entry: Json = {"destination": {"host": host, "subset": subset}}
    return entry if weight is None else entry | {"weight": weight}


def document(*http: Json) -> Json:
    """A VirtualService such as somebody wrote it by hand."""
    return {
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"hosts": ["rl-infer.internal"], "http": list(http)},
    }


def routes(server: ApiServer) -> list[Json]:
    found: list[Json] = server.get("default", NAME)["spec"]["http"]
    return found


def weights(server: ApiServer, number: int = 0) -> dict[str, int]:
    return {entry["destination"]["subset"]: entry["weight"] for entry in routes(server)[number]["route"]}


# --- Which route -----------------------------------------------------------------------------------------


def test_the_example_of_the_requirements(server: ApiServer, router: IstioRouter) -> None:
    """One http route without a name, stable first."""
    server.put(document({"route": [destination("stable", 95), destination("canary", 5)]}))
    assert router.read() == 5.0
    assert router.set(0.0) == 0.0
    assert weights(server) == {"stable": 100, "canary": 0}


def test_the_canary_is_found_by_its_name_wherever_it_stands(server: ApiServer, router: IstioRouter) -> None:
    other = {"match": [{"uri": {"prefix": "/static"}}], "route": [destination("a", 50), destination("b", 50)]}
    split = {"route": [destination("canary", 5), destination("stable", 95)]}
    server.put(document(other, split))
    assert router.set(20.0) == 20.0
    assert weights(server, 1) == {"canary": 20, "stable": 80}
    assert routes(server)[0] == other


def test_a_named_route_is_taken_among_several(server: ApiServer, tmp_path: Path) -> None:
    here, there = ({"name": n, "route": [destination("stable", 95), destination("canary", 5)]} for n in ("a", "b"))
    server.put(document(here, there))
    router = open_istio(Target(route="b"), server.kubeconfig(tmp_path))
    assert router.set(50.0) == 50.0
    assert weights(server, 0) == {"stable": 95, "canary": 5}
    assert weights(server, 1) == {"stable": 50, "canary": 50}
    router.close()


def test_which_of_several_is_not_guessed(server: ApiServer, router: IstioRouter) -> None:
    route = {"route": [destination("stable", 95), destination("canary", 5)]}
    server.put(document(route, copy.deepcopy(route)))
    with pytest.raises(RouterError, match=f"2 http routes .* none is called '{SPLIT_ROUTE}'"):
        router.set(50.0)
    server.put(document({"route": [destination("stable")]}))
    with pytest.raises(RouterError, match="0 http routes"):
        router.read()


def test_a_named_route_with_a_third_destination_is_not_passed_over_for_another(
    server: ApiServer, router: IstioRouter
) -> None:
    three = [destination("stable", 50), destination("canary", 25), destination("next", 25)]
    other = {"name": "other", "route": [destination("stable", 95), destination("canary", 5)]}
    server.put(document({"name": SPLIT_ROUTE, "route": three}, other))
    with pytest.raises(RouterError, match="none is called"):
        router.set(50.0)
    assert weights(server, 1) == {"stable": 95, "canary": 5}


def test_another_services_subsets_are_left_alone(server: ApiServer, tmp_path: Path) -> None:
    mine = {"route": [destination("stable", 95), destination("canary", 5)]}
    theirs = {"route": [destination("stable", 90, "web"), destination("canary", 10, "web")]}
    server.put(document(theirs, mine))
    router = open_istio(Target(service="rl-infer-service"), server.kubeconfig(tmp_path))
    assert router.set(7.0) == 7.0
    assert routes(server)[0] == theirs
    router.close()


def test_a_weight_that_is_not_written_is_0(server: ApiServer, router: IstioRouter) -> None:
    server.put(document({"route": [destination("stable", 100), destination("canary")]}))
    assert router.read() == 0.0
    assert router.set(5.0) == 5.0


# --- What changes ----------------------------------------------------------------------------------------


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shares=st.lists(st.floats(0, 100), min_size=1, max_size=4))
def test_only_weights_change_and_they_add_up_in_every_version(
    server: ApiServer, router: IstioRouter, shares: list[float]
) -> None:
    for share in shares:
        router.set(share)

    def without_weights(service: Json) -> Json:
        service = copy.deepcopy(service)
        service["metadata"].pop("resourceVersion", None)
        for http in service["spec"]["http"]:
            for entry in http["route"]:
                entry.pop("weight", None)
        return service

    versions = server.history["default", NAME]
    assert all(without_weights(v) == without_weights(virtual_service(RELEASE)) for v in versions)
    for version in versions:
        for http in version["spec"]["http"]:
            assert sum(entry.get("weight", 0) for entry in http["route"]) == 100
            if http["name"] not in (SPLIT_ROUTE, EPISODES_ROUTE):
                assert [entry["weight"] for entry in http["route"]] == [100]


def test_begun_episodes_go_with_the_split(server: ApiServer, router: IstioRouter) -> None:
    def begun() -> dict[str, int]:
        [number] = [i for i, http in enumerate(routes(server)) if http["name"] == EPISODES_ROUTE]
        return weights(server, number)

    router.set(5.0)
    assert begun() == {"stable": 0, "canary": 100}
    router.set(0.0)
    assert begun() == {"stable": 100, "canary": 0}


def test_begun_episodes_that_stay_with_a_canary_of_0_are_no_zero(server: ApiServer, router: IstioRouter) -> None:
    router.set(5.0)

    def change(service: Json) -> None:
        split = next(http for http in service["spec"]["http"] if http["name"] == SPLIT_ROUTE)
        split["route"][0]["weight"], split["route"][1]["weight"] = 100, 0

    server.edit(NAME, change)
    with pytest.raises(RouterError, match="begun episodes"):
        router.read()
    assert router.set(0.0) == 0.0


# --- Others at the same time -----------------------------------------------------------------------------


def insert_route(service: Json) -> None:
    service["spec"]["http"].insert(0, {"name": "new", "route": [destination("stable", 100)]})


def swap(service: Json) -> None:
    for http in service["spec"]["http"]:
        http["route"].reverse()


def annotate(service: Json) -> None:
    service["metadata"]["annotations"] = {"touched": "yes"}


def reweigh(service: Json) -> None:
    split = next(http for http in service["spec"]["http"] if http["name"] == SPLIT_ROUTE)
    split["route"][0]["weight"], split["route"][1]["weight"] = 60, 40


@pytest.mark.parametrize("change", [insert_route, swap, annotate, reweigh])
def test_an_edit_between_reading_and_patching_is_kept_and_the_right_route_is_changed(
    server: ApiServer, router: IstioRouter, change: Callable[[Json], None]
) -> None:
    server.before_patch.append(lambda: server.edit(NAME, change))
    assert router.set(20.0) == 20.0
    expected = virtual_service(RELEASE)
    change(expected)
    [split] = [http for http in routes(server) if http["name"] == SPLIT_ROUTE]
    assert {e["destination"]["subset"]: e["weight"] for e in split["route"]} == {"stable": 80, "canary": 20}
    assert [http["name"] for http in routes(server)] == [http["name"] for http in expected["spec"]["http"]]
    assert server.get("default", NAME)["metadata"].get("annotations") == expected["metadata"].get("annotations")


def test_edits_without_end_are_given_up(server: ApiServer, router: IstioRouter) -> None:
    server.before_patch += [lambda: server.edit(NAME, insert_route)] * TRIES
    with pytest.raises(RouterError, match=rf"not what it had just been, {TRIES} times"):
        router.set(20.0)
    assert len(server.patches) == TRIES
    assert router.read() == 0.0


def test_a_patch_that_conflicts_is_made_of_a_fresh_read(server: ApiServer, tmp_path: Path) -> None:
    class Conflicting(ApiServer):
        conflicts = 2

        def patch(self, namespace: str, name: str, kind: str, body: bytes) -> Json:
            if self.conflicts:
                self.conflicts -= 1
                stale = self.get(namespace, name)
                self.put(stale)
                self.put(stale)  # 409
            return super().patch(namespace, name, kind, body)

    busy = Conflicting()
    try:
        busy.put(virtual_service(RELEASE))
        router = open_istio(Target(), busy.kubeconfig(tmp_path))
        assert router.set(20.0) == 20.0
        assert busy.conflicts == 0
        router.close()
    finally:
        busy.close()


def test_somebody_who_sets_at_the_same_time_is_noticed(server: ApiServer, tmp_path: Path) -> None:
    class Overtaken(IstioRouter):
        def read(self) -> float:
            server.edit(NAME, reweigh)
            return super().read()

    real = open_istio(Target(), server.kubeconfig(tmp_path))
    overtaken = Overtaken(real._services, Target())
    with pytest.raises(RouterError, match="has 40 % now: somebody else"):
        overtaken.set(20.0)
    real.close()


# --- An API that says no ---------------------------------------------------------------------------------


def test_what_the_api_says_is_reported(server: ApiServer, tmp_path: Path, router: IstioRouter) -> None:
    server.fail_next.append(500)
    with pytest.raises(RouterError, match="500: made to fail"):
        router.read()
    server.fail_next.append(403)
    with pytest.raises(RouterError, match=r"403.* needs the verb 'get'"):
        router.set(5.0)
    for target, token, said in (
        (Target(name="other"), None, '"other" not found; apply what'),
        (Target(), "wrong", "401: Unauthorized; log in again"),
    ):
        config = server.kubeconfig(tmp_path) if token is None else server.kubeconfig(tmp_path, token)
        refused = open_istio(target, config)
        with pytest.raises(RouterError, match=said):
            refused.read()
        refused.close()
    assert not server.patches


def test_an_api_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with api_server() as gone:
        config = gone.kubeconfig(tmp_path)
    router = open_istio(Target(), config)
    with pytest.raises(RouterError, match="does not answer"):
        router.set(0.0)
    router.close()


def test_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UsageError, match="options kubeconfig"):
        open_istio(Target(), tmp_path / "none")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    with pytest.raises(UsageError, match="no way to the Kubernetes API"):  # no token is mounted here
        open_istio(Target())
