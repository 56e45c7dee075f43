"""On a real server, which each test starts for itself."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from td_loop.errors import UsageError
from td_loop.guard import Telemetry, redis_stream
from td_loop.guard.redis_stream import RedisSource
from td_loop.guard.sources import Source, open_source

redis = pytest.importorskip("redis", reason="the extra guard-redis is not installed")
SERVER = shutil.which("redis-server")
pytestmark = pytest.mark.skipif(
    SERVER is None, reason="no redis-server on this machine (apt-get install redis-server)"
)


@dataclass
class Server:
    """A redis-server that keeps nothing on disk."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    clients: list[Source | Telemetry] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0?stream=train"

    def start(self) -> None:
        if not self.port:
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                self.port = s.getsockname()[1]
        assert SERVER is not None
        self.process = subprocess.Popen(
            [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)],
            stdout=subprocess.DEVNULL,
        )
        wait_for(self.answers)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def answers(self) -> bool:
        with contextlib.suppress(redis.ConnectionError), contextlib.closing(self.client()) as c:
            return bool(c.ping())
        return False

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def telemetry(self, attempt: int | None = None) -> Telemetry:
        self.clients.append(t := Telemetry(self.where, attempt))
        return t

    def source(self, at: object = None) -> RedisSource:
        source = open_source(self.where, at)  # type: ignore[arg-type]
        assert isinstance(source, RedisSource)
        self.clients.append(source)
        return source


def wait_for(condition: Callable[[], object]) -> None:
    """Wait as long as it takes; the test run's own limit is the last resort."""
    while not condition():
        time.sleep(0.01)


def take(source: Source, n: int, but: str | None = None) -> list[int]:
    """The steps of the next `n` records, and no faults, but for those that say `but`."""
    steps: list[int] = []
    while len(steps) < n:
        poll = source.poll()
        assert [fault for fault in poll.faults if but is None or but not in fault] == []
        steps += [r.step for r in poll.records]
        time.sleep(0.005)
    return steps


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(redis_stream, "RETRY_S", 0.05)
    s = Server(tmp_path)
    s.start()
    yield s
    for client in s.clients:
        client.close()
    s.kill()


def test_writers_on_several_machines_are_heard_in_order(server: Server) -> None:
    source = server.source()
    writers = [server.telemetry(k) for k in range(3)]
    for step in range(100):
        for writer in writers:
            writer.log(step, kl=0.1)
    records = []
    while len(records) < 300:
        records += source.poll().records
        time.sleep(0.005)
    for k in range(3):
        assert [r.step for r in records if r.attempt == k] == list(range(100))
    for writer in writers:
        writer.close()
        assert writer.lost == 0


def test_only_what_comes_from_now_on_is_read_without_a_position(server: Server) -> None:
    first = server.telemetry()
    first.log(1)
    first.close()
    source = server.source()
    second = server.telemetry()
    second.log(2)
    second.close()
    assert take(source, 1) == [2]


def test_a_position_is_gone_on_from(server: Server) -> None:
    telemetry, source = server.telemetry(), server.source()
    telemetry.log(1)
    assert take(source, 1) == [1]
    at = source.position()
    source.close()
    telemetry.log(2)
    telemetry.close()
    assert take(server.source(at), 1) == [2]


def test_lines_wait_while_the_server_is_away_and_the_stream_begins_anew(server: Server) -> None:
    telemetry, source = server.telemetry(), server.source()
    telemetry.log(1)
    assert take(source, 1) == [1]
    server.kill()
    telemetry.log(2)
    telemetry.log(3)
    faults: list[str] = []
    while not faults:
        faults += source.poll().faults
        time.sleep(0.005)
    assert "the server does not answer" in faults[0]
    server.start()
    telemetry.log(4)
    # On a busy machine it may notice once more that the server was away.
    assert take(source, 3, but="the server does not answer") == [2, 3, 4]
    assert telemetry.lost == 0


def test_a_stream_whose_clock_went_back_is_read_from_its_start(server: Server) -> None:
    with contextlib.closing(server.client()) as c:
        c.xadd("train", {"lines": '{"step": 1}'}, id="99999999999999-0")
        source = server.source()
        c.delete("train")
        c.xadd("train", {"lines": '{"step": 2}'}, id="5-1")
    steps, faults = [], []
    while not steps:
        poll = source.poll()
        steps += [r.step for r in poll.records]
        faults += poll.faults
        time.sleep(0.005)
    assert steps == [2]
    assert len(faults) == 1
    assert "began anew" in faults[0]


def test_an_entry_that_was_sent_twice_counts_once(server: Server) -> None:
    source = server.source()
    with contextlib.closing(server.client()) as c:
        for n, step in ((0, 1), (0, 1), (1, 2), (0, 1), (2, 3)):
            c.xadd("train", {"lines": f'{{"step": {step}}}\n', "writer": "w", "n": n})
        c.xadd("train", {"lines": '{"step": 4}'})
    assert take(source, 4) == [1, 2, 3, 4]


def test_entries_that_are_no_telemetry_are_faults(server: Server) -> None:
    source = server.source()
    with contextlib.closing(server.client()) as c:
        c.xadd("train", {"x": "1"})
        at = c.xadd("train", {"lines": '{"step": 1}\nbad\n{"step": 2}\n'}).decode()
    steps: list[int] = []
    faults: list[str] = []
    while len(steps) < 2:
        poll = source.poll()
        steps += [r.step for r in poll.records]
        faults += poll.faults
        time.sleep(0.005)
    assert "has no field 'lines'" in faults[0]
    assert f"entry {at}, line 2: is no JSON" in faults[1]


def test_a_server_that_has_gone_costs_what_does_not_fit_the_queue(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_stream, "_MAX_WAITING", 10)
    telemetry = server.telemetry()
    server.kill()
    for step in range(1000):
        telemetry.log(step)
    assert telemetry.lost > 0
    telemetry.close()
    assert telemetry.lost == 1000


def test_a_stream_is_kept_short(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_stream, "MAX_ENTRIES", 100)
    monkeypatch.setattr(redis_stream, "_ENTRY_LINES", 1)
    telemetry = server.telemetry()
    for step in range(1000):
        telemetry.log(step)
    telemetry.close()
    with contextlib.closing(server.client()) as c:
        assert 100 <= c.xlen("train") < 1000


def test_a_server_that_is_not_there_is_refused_without_its_password(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with pytest.raises(UsageError, match="does not answer") as e:
        open_source(f"redis://:secret@127.0.0.1:{port}/0")
    assert "secret" not in str(e.value)
    assert "stream=td_loop:guard" in str(e.value)


def test_an_address_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(UsageError, match="redis://host:port/db"):
        Telemetry("redis://localhost:port/0")
