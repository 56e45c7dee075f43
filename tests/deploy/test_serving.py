"""Real server processes: two of them behind one port, asked over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from td_loop import processes
from td_loop.deploy import names
from td_loop.deploy.canary import store
from td_loop.deploy.canary.window import Window
from td_loop.deploy.client import Answer, Client, ServerError
from td_loop.deploy.server.http import MAX_BODY
from td_loop.deploy.traffic import Traffic
from td_loop.policy.artefact import Artefact
from tests.deploy.served_faulty import DIES, GAME, ILLEGAL, NOT_FINITE, RAISES, STALLS, write_faulty
from tests.deploy.serving import ROOT, Server, command, observation, started, wait_until, with_record
from tests.deploy.toy_policy import write_good

CLIENTS = 12  # connections: enough for each process to have some, whatever the kernel's hash says


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> list[Artefact]:
    folder = tmp_path_factory.mktemp("artefacts")
    return [with_record(write_faulty(folder / f"{k}.onnx", k)) for k in range(3)]


@pytest.fixture(scope="module")
def server(artefacts: list[Artefact], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server") / "deploy"
    # Far more than an answer takes, on a machine that does something else too; far less than a stalled call.
    patient = ("--deadline-ms", 400)
    with started(folder, "--stable", artefacts[0].path, "--processes", 2, "--behind-proxy", *patient) as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as found:
        yield found


@pytest.fixture
def canary(client: Client, artefacts: list[Artefact]) -> Iterator[Artefact]:
    """A canary that is loaded, without traffic; gone afterwards."""
    client.set_canary(str(artefacts[1].path))
    yield artefacts[1]
    client.set_canary(None)


def raw(server: Server, method: str, path: str, body: Any = b"", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def counts(server: Server) -> Any:
    return Window(lambda: server.url).observe()


def decide_all(server: Server, episodes: list[str], **of: Any) -> list[Answer]:
    """Decisions over CLIENTS connections at the same time, in the order of `episodes`."""

    def some(k: int) -> list[Answer]:
        with server.client() as client:
            return [client.decide(episode, observation(**of)) for episode in episodes[k::CLIENTS]]

    answers: list[Answer] = [None] * len(episodes)  # type: ignore[list-item]
    with ThreadPoolExecutor(CLIENTS) as pool:
        for k, found in enumerate(pool.map(some, range(CLIENTS))):
            answers[k::CLIENTS] = found
    return answers


def test_decisions_of_both_bodies_are_the_same_and_legal(client: Client) -> None:
    state, seat = GAME.read_observation(observation())
    as_json = client.decide("both", observation())
    as_bytes = client.decide_packed("both", GAME.pack(state, seat), as_json.decision)
    assert as_json.moves == as_bytes.moves
    assert (as_json.fallback, as_bytes.fallback, as_bytes.subset) == (False, False, "stable")
    assert as_json.decision != as_bytes.decision


@pytest.mark.parametrize(
    ("turn", "reason"), [(RAISES, "error"), (NOT_FINITE, "output"), (ILLEGAL, "illegal"), (STALLS, "timeout")]
)
def test_a_fault_of_the_policy_is_answered_with_200_by_the_rule(
    server: Server, client: Client, turn: int, reason: str
) -> None:
    before = counts(server).stable
    shown = observation(turn)
    answer = client.decide(f"fault {turn}", shown)
    assert (answer.fallback, answer.reason, answer.moves) == (
        True,
        reason,
        GAME.rule_of(*GAME.read_observation(shown)),
    )
    body = GAME.pack(*GAME.read_observation(observation(0)))
    assert not client.decide_packed("packed", body).fallback
    now = counts(server).stable.minus(before)
    assert now.fallbacks[reason] == 1
    assert now.errors == 0


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "not valid JSON"),
    "no object": (b"[1]", "must be a JSON object"),
    "nothing": (b"", "not valid JSON"),
    "NaN": (b'{"episode": "e", "observation": NaN}', "not valid JSON"),
    "no episode": ({"observation": {}}, "'episode' must be a text"),
    "a number for an episode": ({"episode": 7, "observation": {}}, "'episode'"),
    "an episode too long": ({"episode": "x" * 201, "observation": {}}, "'episode'"),
    "a number for the last decision": ({"episode": "e", "previous": 3, "observation": {}}, "'previous'"),
    "no observation": ({"episode": "e"}, "no 'observation'"),
    "an empty observation": ({"episode": "e", "observation": {}}, "observation: no 'turn'"),
    "an observation that is none": ({"episode": "e", "observation": {**observation(), "n": 9}}, "9 players"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_malformed_request_is_told_where_its_fault_is(server: Server, what: str) -> None:
    body, message = BAD[what]
    before = counts(server)
    status, answer = raw(server, "POST", "/v1/decide", body if isinstance(body, bytes) else json.dumps(body))
    assert (status, message in answer["error"]) == (400, True), answer
    assert counts(server).stable.requests == before.stable.requests


def test_headers_are_checked_too(server: Server) -> None:
    body = GAME.pack(*GAME.read_observation(observation()))
    octets = "application/octet-stream"
    for headers, message in (
        ({"content_type": octets}, "header x-episode-id"),
        ({"content_type": octets, "x_episode_id": "e" * 300}, "header x-episode-id"),
    ):
        status, answer = raw(server, "POST", "/v1/decide", body, **headers)
        assert (status, message in answer["error"]) == (400, True), answer
    status, answer = raw(server, "POST", "/v1/decide", body[:7], content_type=octets, x_episode_id="e")
    assert (status, "7 bytes" in answer["error"]) == (400, True)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_long_is_refused_whether_its_length_is_declared_or_not(
    server: Server, declared: bool
) -> None:
    body: Any = b"x" * (MAX_BODY + 1)
    status, answer = raw(server, "POST", "/v1/decide", body if declared else iter([body[:-5], body[-5:]]))
    assert (status, "1048576" in answer["error"]) == (413, True)


def test_other_paths_and_methods_are_named(server: Server) -> None:
    assert raw(server, "GET", "/v2/decide")[0] == 404
    status, answer = raw(server, "GET", "/v1/decide")
    assert (status, "POST" in answer["error"]) == (405, True)


def test_health_and_readiness(server: Server) -> None:
    assert raw(server, "GET", "/healthz") == (200, {"alive": True})
    assert raw(server, "GET", "/readyz") == (200, {"ready": True})


def test_stalled_calls_hold_up_nobody_else(server: Server) -> None:
    stop = threading.Event()

    def stall(k: int) -> list[Answer]:
        found = []
        with server.client() as client:
            while not stop.is_set():
                found.append(client.decide(f"stalled {k}", observation(STALLS)))
        return found

    with ThreadPoolExecutor(2) as pool:
        stalling = [pool.submit(stall, k) for k in range(2)]
        quick = decide_all(server, [f"quick {k}" for k in range(240)])
        stop.set()
        stalled = [answer for future in stalling for answer in future.result()]
    assert {answer.reason for answer in stalled} <= {"timeout", "busy"}
    assert stalled
    assert [answer.reason for answer in quick] == [""] * 240


def test_figures_of_both_processes_are_added_up(server: Server) -> None:
    before = counts(server).stable
    answers = decide_all(server, [f"sum {k}" for k in range(120)])
    now = counts(server).stable.minus(before)
    assert now.requests == now.episodes == 120
    assert now.seconds[-1][1] == 120
    assert len({answer.decision for answer in answers}) == 120
    assert sum(now.fallbacks.values()) == 0


def test_a_reward_is_counted_once_whichever_process_takes_it(server: Server) -> None:
    answers = decide_all(server, [f"reward {k}" for k in range(24)])
    before = counts(server).stable

    def report(_: int) -> int:
        with server.client() as client:
            return sum(client.reward(answer.decision, -0.5) for answer in answers)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(report, range(6))) == 24
    now = counts(server).stable.minus(before)
    assert (now.rewards, now.positive, now.negative, now.squares) == (24, 0, 12, 6)


def test_a_reward_that_is_none_is_refused(server: Server, client: Client) -> None:
    name = client.decide("rewarded", observation()).decision
    for reward in (b"NaN", b'"1"', b"true", b"null", b"1e999", b"1e12"):
        status, _ = raw(
            server, "POST", "/v1/reward", b'{"decision": "%b", "reward": %b}' % (name.encode(), reward)
        )
        assert status == 400
    for decision in ("", "stable.", "stable." + "A" * 48, name[:-1] + ("A" if name[-1] != "A" else "B")):
        with pytest.raises(ServerError) as found:
            client.reward(decision, 1.0)
        assert found.value.status == 404
    assert client.reward(name, 1.0)


def test_a_canary_is_loaded_split_and_taken_away_while_requests_go_on(
    server: Server, client: Client, artefacts: list[Artefact]
) -> None:
    stop, failed = threading.Event(), []

    def go_on(k: int) -> int:
        n = 0
        with server.client() as mine:
            while not stop.is_set():
                answer = mine.decide(f"go on {k} {n}", observation())
                failed.extend([answer.reason] * answer.fallback)
                n += 1
        return n

    with ThreadPoolExecutor(4) as pool:
        going_on = [pool.submit(go_on, k) for k in range(4)]
        found = client.set_canary(str(artefacts[1].path))
        assert found["canary"]["sha256"] == artefacts[1].sha256
        assert len(set(found["processes"])) == 1
        assert client.traffic()["canary"] == 0
        client.set_traffic(100)
        assert {a.subset for a in decide_all(server, [f"all {k}" for k in range(24)])} == {"canary"}
        assert client.traffic()["canary"] == 100
        client.set_traffic(0)
        # After a rollback nothing reaches the canary, new episodes and old ones.
        answers = decide_all(server, [f"all {k}" for k in range(24)] + [f"new {k}" for k in range(120)])
        assert {a.subset for a in answers} == {"stable"}
        client.set_canary(None)
        stop.set()
        assert min(future.result() for future in going_on) > 0
    assert failed == []


def test_the_split_of_the_folder_holds_at_once_and_its_episodes_stay(
    server: Server, client: Client, canary: Artefact
) -> None:
    with contextlib.closing(Traffic.open(server.folder)) as traffic:
        traffic.set(5000)
        episodes = [f"split {k}" for k in range(200)]
        first = [answer.subset for answer in decide_all(server, episodes)]
        assert 60 <= first.count("canary") <= 140
        traffic.set(6000)
        assert [answer.subset for answer in decide_all(server, episodes)] == first
        traffic.set(0)
        assert {answer.subset for answer in decide_all(server, episodes)} == {"stable"}


def test_the_word_of_a_router_in_front_goes(server: Server, canary: Artefact) -> None:
    body = json.dumps({"episode": "told", "observation": observation()})
    for subset in ("canary", "stable"):
        status, answer = raw(server, "POST", "/v1/decide", body, x_rl_subset=subset)
        assert (status, answer["subset"]) == (200, subset)


def test_a_canary_in_shadow_is_seen_in_the_figures_alone(
    server: Server, client: Client, artefacts: list[Artefact]
) -> None:
    client.set_canary(str(artefacts[2].path), shadow=True)
    before = counts(server)
    assert {a.subset for a in decide_all(server, [f"shadow {k}" for k in range(48)])} == {"stable"}
    wait_until(lambda: counts(server).canary.requests - before.canary.requests >= 48)
    wait_until(lambda: counts(server).canary.entropies > before.canary.entropies)
    now = counts(server).canary.minus(before.canary)
    assert (now.requests, now.episodes, now.rewards) == (48, 0, 0)
    assert now.sha256 == artefacts[2].sha256
    client.set_canary(None)


def test_a_canary_that_was_not_verified_or_was_rolled_back_is_refused(
    server: Server, client: Client, tmp_path: Path
) -> None:
    for path, status, message in (
        (write_faulty(tmp_path / "unverified.onnx", 8).path, 409, "deploy verify"),
        (tmp_path / "missing.onnx", 422, "no such file"),
        (with_record(write_good(tmp_path / "other.onnx")).path, 422, "is a policy for"),
    ):
        with pytest.raises(ServerError, match=message) as found:
            client.set_canary(str(path))
        assert found.value.status == status
    rolled_back = with_record(write_faulty(tmp_path / "rolled_back.onnx", 9))
    store.refuse(server.folder, rolled_back.sha256, "it lost", 1)
    with pytest.raises(ServerError, match="rolled back before: it lost") as found:
        client.set_canary(str(rolled_back.path))
    assert found.value.status == 409
    assert client.policies()["canary"] is None
    with pytest.raises(ServerError, match="no canary"):
        client.set_traffic(5)


def test_whoever_has_no_token_changes_nothing(server: Server) -> None:
    for method, path, body in (
        ("PUT", "/v1/traffic", {"canary": 100}),
        ("PUT", "/v1/canary", {"path": None}),
        ("POST", "/v1/promote", {}),
    ):
        for authorization in ("", "Bearer wrong"):
            status, answer = raw(server, method, path, json.dumps(body), authorization=authorization)
            assert (status, "token" in answer["error"]) == (401, True)
    assert raw(server, "GET", "/v1/traffic")[0] == 200


@pytest.mark.parametrize("body", [{"canary": -1}, {"canary": 101}, {"canary": "5"}, {"canary": True}, {}])
def test_a_split_that_is_none_is_refused(server: Server, body: Any) -> None:
    token = (server.folder / "token").read_text()
    status, answer = raw(server, "PUT", "/v1/traffic", json.dumps(body), authorization=f"Bearer {token}")
    assert (status, "percentage" in answer["error"]) == (400, True)


def test_all_names_of_the_contract_are_in_the_metrics(client: Client) -> None:
    content = client.metrics()
    constants = [v for k, v in vars(names).items() if k.isupper() and isinstance(v, str) and v.startswith("rl_")]
    for name in constants:
        for subset in names.SUBSETS:
            assert name.format(subset=subset) in content, name


def failed_start(folder: Path, *options: object) -> tuple[int, str]:
    """Exit code and standard error of a server that cannot start."""
    done = subprocess.run(command(folder, *options), capture_output=True, timeout=120, cwd=ROOT, check=False)
    return done.returncode, done.stderr.decode()


# --- servers of their own: they are promoted, killed, stopped ------------------------------------------------


def test_a_server_is_promoted_killed_stopped_and_goes_on_where_it_was(
    artefacts: list[Artefact], tmp_path: Path
) -> None:
    folder = tmp_path / "deploy"
    paths = [artefact.path for artefact in artefacts]
    options = ("--stable", paths[0], "--canary", paths[1], "--canary-percent", 100, "--deadline-ms", 5000)
    with started(folder, *options) as server:
        with server.client() as client:
            before = client.decide("before", observation())
            assert before.subset == "canary"
            with pytest.raises(ServerError, match="the canary is"):
                client.promote("0" * 64)
            found = client.promote(artefacts[1].sha256)
            assert (found["stable"]["sha256"], found["canary"]) == (artefacts[1].sha256, None)
            assert client.promote(artefacts[1].sha256)["stable"] == found["stable"]
            assert client.decide("before", observation()).subset == "stable"

            [worker] = processes.children(server.process.pid)
            with contextlib.suppress(ServerError):
                client.decide("dies", observation(DIES))
            wait_until(lambda: processes.children(server.process.pid) - {worker})
            wait_until(client.ready)
            assert counts(server).stable.errors == 1  # whoever asked got no answer
            assert client.decide("after", observation()).reason == ""
            assert client.reward(before.decision, 1.0)
            assert not client.reward(before.decision, 1.0)
            wait_until(lambda: client.policies()["processes"] == [found["revision"]])
        assert "ended by signal 9" in server.output.read_text()
        assert server.stop() == 128 + signal.SIGTERM
    assert not (folder / "server.json").exists()
    with started(folder) as server, server.client() as client:
        assert client.policies()["stable"]["sha256"] == artefacts[1].sha256
        assert not client.reward(before.decision, 1.0)


def test_requests_under_way_are_answered_when_the_server_is_stopped(
    artefacts: list[Artefact], tmp_path: Path
) -> None:
    options = ("--stable", artefacts[0].path, "--deadline-ms", 20_000)
    with started(tmp_path / "deploy", *options) as server, ThreadPoolExecutor(4) as pool:
        clients = [server.client() for _ in range(4)]
        for client in clients:
            assert client.ready()
        asked = [pool.submit(c.decide, f"slow {k}", observation(STALLS)) for k, c in enumerate(clients)]
        threading.Event().wait(0.1)  # for the requests to be there
        assert server.stop() == 128 + signal.SIGTERM
        assert [future.result().reason for future in asked] == [""] * 4
        for client in clients:
            client.close()


def test_what_cannot_be_served_is_said_in_one_line(artefacts: list[Artefact], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        unverified = write_faulty(tmp_path / "unverified.onnx", 7).path
        stable = ["--stable", artefacts[0].path]
        for options, code, message in (
            ([*stable, "--port", port], 64, f"127.0.0.1:{port} cannot be listened at: Address already in use"),
            (["--stable", unverified], 8, "deploy verify"),
            (["--stable", tmp_path / "missing.onnx"], 65, "missing.onnx: no such file"),
            ([], 64, "give --stable ARTEFACT"),
            ([*stable, "--canary-percent", 5], 64, "--canary-percent without --canary"),
        ):
            found, told = failed_start(tmp_path / "deploy", *options)
            assert (found, message in told, "Traceback" in told) == (code, True, False), told


def test_a_folder_has_one_server(server: Server, artefacts: list[Artefact]) -> None:
    options = ("--stable", artefacts[0].path)
    done = subprocess.run(
        command(server.folder, *options),
        capture_output=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 5
    assert f"in use by process {server.process.pid} " in done.stderr.decode()
