"""What only Envoy can get wrong: processes, ports, files that it reads or refuses, servers that die behind it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop import files, processes
from td_loop.deploy.names import SUBSETS, Subset
from td_loop.deploy.routing import envoy_config, envoy_process, envoy_routes
from td_loop.deploy.routing.contract import RouterError
from td_loop.deploy.routing.envoy import EnvoyRouter
from td_loop.deploy.routing.envoy_config import Plan
from td_loop.deploy.routing.envoy_process import Running, find_envoy, started
from td_loop.deploy.routing.envoy_routes import split_of, with_split
from td_loop.errors import RunInUse, UsageError
from tests.deploy.rigs import first, later, two_servers
from tests.deploy.upstreams import Loop, Upstream, ask_all

NOWHERE: dict[Subset, envoy_config.Upstream] = dict.fromkeys(SUBSETS, envoy_config.Upstream("127.0.0.1", 9))
PLAN = Plan(NOWHERE)


def has_envoy() -> str:
    """Why the tests with a process are skipped; "" if they are not."""
    try:
        find_envoy()
    except UsageError as e:
        return str(e)
    return ""


needs_envoy = pytest.mark.skipif(bool(has_envoy()), reason=has_envoy())


class Bench:
    """An Envoy in front of two servers."""

    def __init__(self, folder: Path, loop: Loop, servers: dict[Subset, Upstream], where: Running) -> None:
        self.folder, self.loop, self.servers, self.where = folder, loop, servers, where
        self.router = EnvoyRouter(folder)

    def ask(self, *requests: dict[str, str]) -> Counter[tuple[int, str]]:
        return Counter(self.loop.run(ask_all(self.where.port, requests)))


@contextlib.contextmanager
def bench(folder: Path, salt: str = "", try_s: float = 0.5) -> Iterator[Bench]:
    with two_servers() as (loop, servers):
        upstreams = {subset: envoy_config.Upstream.of(servers[subset].url) for subset in SUBSETS}
        with started(folder, Plan(upstreams, salt=salt, try_s=try_s, health_s=0.2)) as envoy:
            yield Bench(folder, loop, servers, envoy.where)


def episodes(n: int) -> list[dict[str, str]]:
    return [dict(first(f"game-{i}")) for i in range(n)]


def wait_for(what: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    status = processes.status(pid)
    return status is None or status.ended


# --- The documents ---------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.text(max_size=20))
def test_a_weight_that_was_written_is_read(before: int, bp: int, salt: str) -> None:
    table = envoy_routes.routes(Plan(NOWHERE, salt=salt), before, "1")["resources"][0]
    assert split_of(table) == before
    changed = with_split(table, bp, "2")
    assert changed["version_info"] == "2"
    assert split_of(changed["resources"][0]) == bp


def test_a_change_of_weights_keeps_what_somebody_edited() -> None:
    table = envoy_routes.routes(PLAN, 500, "1")["resources"][0]
    [host] = table["virtual_hosts"]
    host["routes"].insert(0, {"name": "mine", "match": {"path": "/mine"}, "redirect": {"path_redirect": "/"}})
    split = next(r for r in host["routes"] if r["name"] == envoy_routes.SPLIT_ROUTE)
    split["route"]["timeout"] = "7s"
    [host] = with_split(table, 1000, "2")["resources"][0]["virtual_hosts"]
    assert host["routes"][0]["name"] == "mine"
    assert next(r for r in host["routes"] if r["name"] == envoy_routes.SPLIT_ROUTE)["route"]["timeout"] == "7s"


@pytest.mark.parametrize(
    "url", ["127.0.0.1:80", "https://a", "http://", "http://a/path", "http://a:port", "http://a?b"]
)
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="http://HOST:PORT"):
        envoy_config.Upstream.of(url)


def test_servers_by_url() -> None:
    assert envoy_config.Upstream.of("http://localhost:8001/") == envoy_config.Upstream("localhost", 8001)
    assert envoy_config.Upstream.of("http://rl.internal") == envoy_config.Upstream("rl.internal", 80)


def test_where_there_is_no_envoy_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envoy", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match=r"deploy-envoy"):
        find_envoy()


def test_a_folder_where_none_was_started(tmp_path: Path) -> None:
    with pytest.raises(RouterError, match="td-loop deploy envoy"):
        EnvoyRouter(tmp_path).read()


# --- Starting and stopping -------------------------------------------------------------------------------


@needs_envoy
def test_a_port_in_use_is_reported_in_envoys_words_even_if_another_envoy_has_it(tmp_path: Path) -> None:
    with (
        started(tmp_path / "a", PLAN) as one,
        pytest.raises(RouterError, match=f"cannot bind '127.0.0.1:{one.where.port}': Address already in use"),
        started(tmp_path / "b", Plan(NOWHERE, port=one.where.port)),
    ):
        pass
    assert not (tmp_path / "b" / "envoy.json").exists()


@needs_envoy
def test_a_configuration_that_envoy_refuses_is_reported_in_its_words(tmp_path: Path) -> None:
    with (
        pytest.raises(RouterError, match="malformed IP address: nowhere"),
        started(tmp_path, Plan(NOWHERE, "nowhere")),
    ):
        pass


@needs_envoy
def test_two_envoys_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        started(tmp_path, PLAN),
        pytest.raises(RunInUse, match=f"process {os.getpid()}"),
        started(tmp_path, PLAN),
    ):
        pass


@needs_envoy
def test_one_that_dies_is_reported_and_its_successor_has_the_split_that_was_asked_for(tmp_path: Path) -> None:
    with started(tmp_path, PLAN):
        EnvoyRouter(tmp_path).set(12.34)
    with pytest.raises(RouterError, match="ended by itself with -9"), started(tmp_path, PLAN) as envoy:
        router = EnvoyRouter(tmp_path)
        assert router.read() == 12.34
        os.kill(envoy.where.pid, signal.SIGKILL)
        with pytest.raises(RouterError, match="does not answer"):
            while True:
                router.read()
        with pytest.raises(RouterError, match="does not answer"):
            router.set(0.0)
        envoy.wait()
    with started(tmp_path, PLAN):
        assert EnvoyRouter(tmp_path).read() == 0.0


@needs_envoy
def test_requests_under_way_are_answered_before_it_stops(tmp_path: Path) -> None:
    with two_servers() as (loop, servers):
        servers["stable"].delay_s = 0.4
        upstreams = {subset: envoy_config.Upstream.of(servers[subset].url) for subset in SUBSETS}
        with started(tmp_path, Plan(upstreams, try_s=2.0)) as envoy:
            asked = loop.begin(ask_all(envoy.where.port, episodes(4), connections=4))
            wait_for(lambda: servers["stable"].asked == 4)
        assert Counter(asked.result(10)) == {(200, "stable"): 4}


# --- Changing weights ------------------------------------------------------------------------------------


@needs_envoy
def test_one_that_hangs_is_an_error_and_goes_on_with_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envoy_process, "ANSWER_S", 0.3)
    with started(tmp_path, PLAN) as envoy:
        router = EnvoyRouter(tmp_path)
        router.set(50.0)
        os.kill(envoy.where.pid, signal.SIGSTOP)
        try:
            with pytest.raises(RouterError, match="does not answer"):
                router.set(0.0)
        finally:
            os.kill(envoy.where.pid, signal.SIGCONT)
        monkeypatch.setattr(envoy_process, "ANSWER_S", 5.0)
        wait_for(lambda: router.read() == 0.0)


@needs_envoy
def test_a_table_that_envoy_does_not_take_up_is_an_error(tmp_path: Path) -> None:
    with started(tmp_path / "here", PLAN):
        shutil.copytree(tmp_path / "here", tmp_path / "there")
        with pytest.raises(RouterError, match="does not work by the new weights"):
            EnvoyRouter(tmp_path / "there", effective_s=0.2).set(5.0)
        assert EnvoyRouter(tmp_path / "here").read() == 0.0


@needs_envoy
def test_a_table_that_envoy_refuses_leaves_the_old_one_at_work(tmp_path: Path) -> None:
    with started(tmp_path, PLAN) as envoy:
        router = EnvoyRouter(tmp_path)
        router.set(5.0)
        files.write_bytes(tmp_path / "routes.json", b'{"resources": [')
        name = f"http.{envoy_config.ROUTES}.rds.{envoy_config.ROUTES}.update_"
        wait_for(
            lambda: any(envoy_process.stat(envoy.where.admin, name + end) for end in ("rejected", "failure")),
        )
        assert router.read() == 5.0
        assert router.set(6.0) == 6.0


@needs_envoy
@pytest.mark.parametrize("what", ["sum", "begun", "clusters", "gone"])
def test_an_edit_by_hand_that_makes_no_split_is_no_split(tmp_path: Path, what: str) -> None:
    with started(tmp_path, PLAN):
        router = EnvoyRouter(tmp_path)
        router.set(5.0)
        table = files.read_json(tmp_path / "routes.json")
        routes = {r["name"]: r for r in table["resources"][0]["virtual_hosts"][0]["routes"]}
        clusters = routes[envoy_routes.SPLIT_ROUTE]["route"]["weighted_clusters"]["clusters"]
        if what == "sum":
            clusters[0]["weight"] = 501
        elif what == "begun":
            clusters[0]["weight"], clusters[1]["weight"] = 0, 10_000
        elif what == "clusters":
            clusters[0]["name"] = "stable"
        else:
            routes[envoy_routes.SPLIT_ROUTE]["name"] = "other"
        files.write_json(tmp_path / "routes.json", table)

        def refused() -> bool:
            try:
                router.read()
            except RouterError as e:
                return "by hand" in str(e)
            return False

        wait_for(refused)
        if what in ("sum", "begun"):
            assert router.set(7.0) == 7.0


@needs_envoy
def test_somebody_who_sets_at_the_same_time_is_noticed(tmp_path: Path) -> None:
    class Overtaken(EnvoyRouter):
        def _await(self, version: str) -> None:
            super()._await(version)
            EnvoyRouter(tmp_path).set(30.0)

    with started(tmp_path, PLAN), pytest.raises(RouterError, match="has 30 % now: somebody else"):
        Overtaken(tmp_path).set(5.0)


# --- Traffic ---------------------------------------------------------------------------------------------


@needs_envoy
def test_the_server_is_told_the_subset_whatever_the_client_says(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.router.set(50.0)
        b.ask(*(r | {"x-rl-subset": "canary"} for r in episodes(100)))
        assert {name: set(server.subsets) for name, server in b.servers.items()} == {s: {s} for s in SUBSETS}


@needs_envoy
def test_of_a_canary_that_dies_stable_answers_the_requests(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.router.set(50.0)
        b.ask(*episodes(50))
        b.loop.run(b.servers["canary"].stop())
        begun = [dict(later(f"game-{i}", "canary")) for i in range(300)]
        assert b.ask(*episodes(300), *begun) == {(200, "stable"): 600}
        assert set(b.servers["stable"].subsets) == {"stable"}
        b.loop.run(b.servers["canary"].start())
        wait_for(lambda: (200, "canary") in b.ask(*episodes(50)))


@needs_envoy
def test_of_a_canary_that_hangs_stable_answers_the_requests(tmp_path: Path) -> None:
    with bench(tmp_path, try_s=0.1) as b:
        b.router.set(50.0)
        b.servers["canary"].delay_s = 30.0
        assert b.ask(*episodes(40)) == {(200, "stable"): 40}


@needs_envoy
def test_what_controls_a_server_is_not_let_through(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        for path in ("/v1/traffic", "/v1/canary", "/v1/policies", "/metrics", "/", "/v1/decide/../traffic"):
            [(status, _)] = b.loop.run(ask_all(b.where.port, [{}], path=path))
            assert status == 404, path
        for path in ("/v1/decide", "/v1/reward", "/healthz", "/readyz", "/v1/decide?trace=1"):
            [(status, _)] = b.loop.run(ask_all(b.where.port, [{}], path=path))
            assert status == 200, path


@needs_envoy
def test_rewards_go_to_the_server_that_made_the_decision(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        rewards = [dict(later(f"game-{i}", subset)) for i, subset in enumerate(SUBSETS * 5)]
        answers = b.loop.run(ask_all(b.where.port, rewards, path="/v1/reward"))
        assert [body for _, body in answers] == list(SUBSETS * 5)
        assert b.loop.run(ask_all(b.where.port, [{}], path="/v1/reward")) == [(200, "stable")]


@needs_envoy
def test_another_release_draws_anew(tmp_path: Path) -> None:
    drawn = []
    for salt in ("one", "two\\1"):
        with bench(tmp_path / salt[:3], salt) as b:
            b.router.set(50.0)
            answers = b.loop.run(ask_all(b.where.port, episodes(400)))
            drawn.append([body for _, body in answers])
    same = sum(a == b for a, b in zip(*drawn, strict=True))
    assert 150 < same < 250  # 200 +- 5 standard deviations


@needs_envoy
def test_requests_without_an_episode_are_drawn_one_by_one(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.router.set(50.0)
        count = b.ask(*({} for _ in range(400)))
        assert 150 < count[200, "canary"] < 250


# --- The command -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def command(tmp_path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`td-loop deploy envoy`, once it has said where it listens."""
    line = [sys.executable, "-m", "td_loop", "deploy", "envoy", "--dir", str(tmp_path), "--port", "0", *arguments]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@needs_envoy
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_the_command_takes_its_envoy_with_it(tmp_path: Path, signum: signal.Signals, code: int) -> None:
    with two_servers() as (loop, servers):
        urls = ("--stable", servers["stable"].url, "--canary", servers["canary"].url)
        with command(tmp_path, *urls) as (process, said):
            found = re.match(
                rf"envoy: http://127.0.0.1:(\d+): stable {servers['stable'].url}, .* with 0 %\n", said
            )
            assert found, said
            where = envoy_process.running(tmp_path / "envoy")
            assert where.port == int(found[1])
            assert loop.run(ask_all(where.port, [{}])) == [(200, "stable")]
            assert EnvoyRouter(tmp_path / "envoy").set(100.0) == 100.0
            assert loop.run(ask_all(where.port, [{}])) == [(200, "canary")]
            process.send_signal(signum)
            assert process.wait(20) == code
            wait_for(lambda: gone(where.pid))


@needs_envoy
def test_the_command_ends_when_its_envoy_does(tmp_path: Path) -> None:
    with command(tmp_path, "--stable", "http://127.0.0.1:9", "--canary", "http://127.0.0.1:9") as (process, _):
        os.kill(envoy_process.running(tmp_path / "envoy").pid, signal.SIGKILL)
        assert process.wait(20) == 1
        assert process.stdout is not None
        assert "Envoy ended by itself with -9" in process.stdout.read()
