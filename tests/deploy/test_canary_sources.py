"""Observations from a real Prometheus and from a server's own metrics: one contract."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from td_loop.deploy.canary.observation import Observation, Source, SourceError
from td_loop.deploy.canary.prometheus import Prometheus
from td_loop.deploy.canary.window import Window
from td_loop.errors import UsageError
from tests.deploy.canary_exporter import HINT, PROMETHEUS, Exporter, await_, expected, free_port, prometheus

real = pytest.mark.skipif(PROMETHEUS is None, reason=HINT)


@pytest.fixture(scope="module")
def exporting() -> Iterator[Exporter]:
    started = Exporter()
    yield started
    started.close()


@pytest.fixture
def exporter(exporting: Exporter) -> Exporter:
    """The module's one, as good as new."""
    exporting.reset()
    return exporting


@pytest.fixture(scope="module", params=["window", pytest.param("prometheus", marks=real)])
def asked(
    request: pytest.FixtureRequest, exporting: Exporter, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Source]:
    if request.param == "window":
        yield Window(lambda: exporting.url)
        return
    with prometheus(tmp_path_factory.mktemp("prometheus"), [exporting.port]) as url:
        yield Prometheus(url)


@pytest.fixture
def source(asked: Source, exporter: Exporter) -> Source:
    until(asked, lambda o: o.canary == replace(expected(100.0), choice_entropy=1.5))
    return asked


def until(source: Source, wanted: Callable[[Observation], bool]) -> Observation:
    """The first observation that is as wanted: a Prometheus scrapes once a second."""

    def look() -> Observation:
        found = source.observe()
        if not wanted(found):
            raise SourceError(f"not yet: {found}")
        return found

    return await_(look)


def test_both_sources_tell_the_same(source: Source, exporter: Exporter) -> None:
    exporter.drift = {"ships": 0.4, "planets": math.nan}
    found = until(source, lambda o: bool(o.canary.drift))
    assert found.canary == replace(expected(100.0), drift={"ships": 0.4}, choice_entropy=1.5)
    assert found.stable == expected(1000.0)
    assert found.engine["cpu_s"] == 12.5
    assert 0 <= found.age < 30
    assert len(found.instances) == 1
    assert found.fault() == ""
    exporter.values["n"] = 200.0
    later = until(source, lambda o: o.canary.requests == 200.0)
    assert later.time > found.time
    assert later.fault(found) == ""
    assert later.canary.minus(found.canary).fallbacks["timeout"] == pytest.approx(0.2)
    source.close()


def test_both_tell_of_what_is_no_number(source: Source, exporter: Exporter) -> None:
    exporter.values["positive"] = math.nan
    found = until(source, lambda o: math.isnan(o.canary.positive))
    assert found.fault() == "stable: positive is no count (NaN, say)"


def test_both_refuse_an_answer_that_lacks_a_counter(source: Source, exporter: Exporter) -> None:
    exporter.body = lambda content: b"".join(
        line for line in content.splitlines(keepends=True) if b"rl_reward_canary_squares" not in line
    )

    def refuses() -> bool:
        with pytest.raises(SourceError, match="there is no rl_reward_canary_squares_sum of the subset canary"):
            source.observe()
        return True

    assert await_(refuses, pytest.fail.Exception)


def test_both_tell_a_server_that_began_anew(source: Source, exporter: Exporter) -> None:
    before = source.observe()
    exporter.values["n"] = 50.0
    after = until(source, lambda o: o.canary.requests == 50.0)
    assert "went backwards: a server was restarted" in after.fault(before)


def test_a_server_that_is_away_is_no_observation(source: Source, exporter: Exporter) -> None:
    exporter.body = lambda content: b"\xff\xfe{"

    def refuses() -> bool:
        with pytest.raises(SourceError):
            source.observe()
        return True

    assert await_(refuses, pytest.fail.Exception)


def test_a_port_where_nobody_listens_is_an_error_of_the_source() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for source in (Window(lambda: url), Prometheus(url)):
        with pytest.raises(SourceError, match="does not"):
            source.observe()


def test_a_server_is_found_again_where_it_is_now(exporter: Exporter) -> None:
    at = [f"http://127.0.0.1:{free_port()}"]
    window = Window(lambda: at[0])
    with pytest.raises(SourceError, match="does not tell"):
        window.observe()
    at[0] = exporter.url
    assert window.observe().canary.requests > 0


@real
def test_prometheus_adds_up_its_servers_through_a_restart_and_notices_when_they_change(
    tmp_path: Path, exporter: Exporter
) -> None:
    other, port = Exporter(), free_port()
    with prometheus(tmp_path, [exporter.port, other.port], port) as url:
        source = Prometheus(url, 'job="policy"')
        both = until(source, lambda o: len(o.instances) == 2)
        assert both.canary == replace(expected(200.0), choice_entropy=1.5)
    with pytest.raises(SourceError, match="does not answer"):
        source.observe()
    exporter.values["n"], begun = 150.0, time.time()
    with prometheus(tmp_path, [exporter.port, other.port], port):
        # Of those that this Prometheus has seen itself: what another one had seen it keeps for minutes.
        later = until(source, lambda o: o.canary.requests == 250.0 and o.time - o.age > begun)
        assert later.fault(both) == ""
        other.close()
        one = until(source, lambda o: len(o.instances) == 1)
        assert one.canary == replace(expected(150.0), choice_entropy=1.5)
        same = replace(later, stable=one.stable, canary=one.canary)
        assert "other servers are counted than before" in one.fault(same)
        with pytest.raises(SourceError, match="it scrapes no server of ours"):
            Prometheus(url, 'job="another"').observe()


@contextmanager
def answering(*answers: Any) -> Iterator[str]:
    """A server that gives these answers, one a request, and the last of them from then on."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = left.pop(0) if len(left) > 1 else left[0]
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(500 if answer == b"oops" else 200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


TIME = {"status": "success", "data": {"resultType": "scalar", "result": [1000.0, "1000.0"]}}
NOTHING = {"status": "success", "data": {"resultType": "vector", "result": []}}


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([{**TIME, "warnings": ["store 3 did not answer"]}], "not whole: store 3 did not answer"),
        ([{"status": "error", "error": "query timed out"}], "query timed out"),
        ([b"oops"], "answers 500: oops"),
        ([b"<html>"], "does not answer"),
        ([TIME, TIME], "a scalar where a vector was asked for"),
        ([TIME, NOTHING, NOTHING], "it scrapes no server of ours"),
        ([{"status": "success"}], "another kind than expected"),
        ([["success"]], "another kind than expected"),
        (
            [TIME, {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}],
            "another kind",
        ),
    ],
)
def test_what_is_no_whole_answer_is_an_error_of_the_source(answers: list[Any], words: str) -> None:
    with answering(*answers) as url, pytest.raises(SourceError, match=words):
        Prometheus(url).observe()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="must begin with http"):
        Prometheus("127.0.0.1:9090")


def test_observations_survive_as_json(exporter: Exporter) -> None:
    exporter.drift = {"ships": 0.4}
    found = Window(lambda: exporter.url, lambda: 12.0).observe()
    assert Observation.from_json(json.loads(json.dumps(found.as_json()))) == found
    assert found.time == 12.0
