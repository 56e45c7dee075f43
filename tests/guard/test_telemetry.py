from __future__ import annotations

import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import UsageError
from td_loop.guard import Telemetry, sinks
from td_loop.guard.record import OWN_KEYS, Record, encode, parse

names = st.text(min_size=1).filter(lambda s: s not in OWN_KEYS)


@pytest.fixture(autouse=True)
def _no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TD_GUARD_"):
            monkeypatch.delenv(name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.jsonl"


class Clock:
    """Stands in for the time module of the sinks."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    c = Clock()
    monkeypatch.setattr(sinks, "time", c)
    return c


def records(path: Path) -> list[Record]:
    return [parse(line) for line in path.read_bytes().splitlines()]


def test_a_batch_is_one_line(path: Path) -> None:
    with Telemetry(path, attempt=2) as telemetry:
        telemetry.log(7, kl=0.01, entropy=1.5)
        telemetry.checkpoint(7, "ckpt.zip")
        telemetry.checkpoint(0, "start.zip", initial=True)
    first, second, third = records(path)
    assert (first.step, first.attempt, dict(first.values)) == (7, 2, {"kl": 0.01, "entropy": 1.5})
    assert first.time is not None
    assert second.checkpoint == str(Path("ckpt.zip").absolute())
    assert not second.initial
    assert third.initial


@given(st.integers(0, 2**53), st.dictionaries(names, st.floats(), max_size=5), st.none() | st.integers(0, 9))
def test_a_line_means_what_the_record_means(step: int, values: dict[str, float], attempt: int | None) -> None:
    # What waits for a socket that is not there is what was written.
    with Telemetry("unix:/nobody/there", attempt=attempt) as telemetry:
        telemetry.log(step, **values)
        written = parse(telemetry._sink._waiting[0])  # type: ignore[union-attr]
    expected = parse(encode(Record(step, values, attempt, written.time)))
    assert repr(written) == repr(expected)


def test_scalars_of_numpy_and_torch_are_numbers(path: Path) -> None:
    with Telemetry(path) as telemetry:
        telemetry.log(
            np.int64(3),
            a=np.float32(0.5),
            b=torch.tensor(2.0, requires_grad=True) * 2,
            c=np.array([7]),
            d=torch.tensor(float("nan")),
            e=True,
            f=12,
        )
    (r,) = records(path)
    assert r.step == 3
    assert repr(dict(r.values)) == repr({"a": 0.5, "b": 4.0, "c": 7.0, "d": float("nan"), "e": 1.0, "f": 12.0})


def test_what_is_no_number_is_left_out(path: Path) -> None:
    odd: Any = {"a": None, "b": "0.5", "c": [1], "d": np.ones(3), "e": torch.ones(2), "f": object(), "g": 10**400}
    with Telemetry(path) as telemetry:
        telemetry.log(1, kl=0.5, **odd)
        telemetry.log(2, **dict.fromkeys(OWN_KEYS, 9.0))
    assert [dict(r.values) for r in records(path)] == [{"kl": 0.5}, {}]
    assert [r.attempt for r in records(path)] == [None, None]
    assert telemetry.lost == 0


@pytest.mark.parametrize("step", [-1, 1.5, "x", None, float("nan"), 2**70])
def test_a_step_that_is_none_loses_the_line_and_nothing_else(path: Path, step: Any) -> None:
    with Telemetry(path) as telemetry:
        telemetry.log(step, kl=0.5)
        telemetry.log(1, kl=0.5)
        assert telemetry.lost == 1
    assert len(records(path)) == 1


def test_a_line_that_no_reader_would_take_is_lost(path: Path) -> None:
    with Telemetry(path) as telemetry:
        telemetry.log(1, **{f"metric_{i:06d}": 0.1 for i in range(5000)})
        telemetry.log(2, **{"\ud800": 1.0})
        assert telemetry.lost == 2
    assert path.read_bytes() == b""


def test_without_a_guard_it_does_nothing(tmp_path: Path) -> None:
    with Telemetry() as telemetry:
        telemetry.log(1, kl=0.1)
        telemetry.checkpoint(1, tmp_path)
    telemetry.log(2)
    assert telemetry.where is None
    assert telemetry.lost == 0


def test_the_environment_says_where_and_which_attempt(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TD_GUARD_TELEMETRY", str(path))
    monkeypatch.setenv("TD_GUARD_ATTEMPT", "3")
    with Telemetry() as telemetry:
        telemetry.log(1)
    assert records(path)[0].attempt == 3
    monkeypatch.setenv("TD_GUARD_ATTEMPT", "third")
    with pytest.raises(UsageError, match="TD_GUARD_ATTEMPT is 'third'"):
        Telemetry()


def test_a_full_device_costs_lines_and_one_try_a_second(clock: Clock) -> None:
    telemetry = Telemetry("/dev/full")
    for step in range(5):
        telemetry.log(step)
    assert telemetry.lost == 5
    clock.now += sinks.RETRY_S
    telemetry.log(5)
    assert telemetry.lost == 6
    telemetry.close()


def test_a_full_disk_spoils_one_line_and_lets_the_next_ones_in(path: Path, clock: Clock) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    telemetry = Telemetry(path)
    telemetry.log(0, kl=0.5)
    one = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (one + 10, before[1]))  # room for ten bytes of the next line
    try:
        telemetry.log(1, kl=0.5)
        telemetry.log(2, kl=0.5)
        clock.now += sinks.RETRY_S
        telemetry.log(3, kl=0.5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert telemetry.lost == 3
    assert path.stat().st_size == one + 10
    clock.now += sinks.RETRY_S
    telemetry.log(4, kl=0.5)
    telemetry.log(5, kl=0.5)
    telemetry.close()
    lines = path.read_bytes().splitlines()
    assert len(lines[1]) == 10
    assert [parse(line).step for line in (lines[0], *lines[2:])] == [0, 4, 5]


def test_half_a_line_that_a_killed_process_left_spoils_only_itself(path: Path) -> None:
    path.write_bytes(b'{"step": 1, "k')
    with Telemetry(path) as telemetry:
        telemetry.log(2)
    assert path.read_bytes().startswith(b'{"step": 1, "k\n{"step":2')


def test_a_folder_that_comes_late_is_found(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "late" / "telemetry.jsonl"
    telemetry = Telemetry(path)
    telemetry.log(1)
    path.parent.mkdir()
    telemetry.log(2)
    assert telemetry.lost == 2
    clock.now += sinks.RETRY_S
    telemetry.log(3)
    telemetry.close()
    assert [r.step for r in records(path)] == [3]


def test_a_folder_that_cannot_be_written_costs_lines(tmp_path: Path) -> None:
    folder = tmp_path / "read_only"
    folder.mkdir()
    code = (
        "import os, sys; from td_loop.guard import Telemetry\n"
        "os.chdir(sys.argv[1]); os.chmod('.', 0o555)\n"
        "os.geteuid() or os.setuid(65534)  # to root no folder is read-only\n"
        "t = Telemetry('t.jsonl'); t.log(1); t.log(2); t.close(); print(t.lost)"
    )
    found = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "2", found.stderr
    assert list(folder.iterdir()) == []


def test_a_pipe_without_a_reader_stops_nobody(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with Telemetry(pipe) as telemetry:
        telemetry.log(1)
    assert telemetry.lost == 1
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with Telemetry(pipe) as telemetry:
        for step in range(3000):  # more than a pipe holds
            telemetry.log(step, kl=0.1)
        assert 0 < telemetry.lost < 3000
    os.close(reader)


def listening(path: Path) -> socket.socket:
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(path))
    s.listen()
    return s


@pytest.fixture
def sock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    return Path("t.sock")


def read_all(s: socket.socket) -> list[int]:
    with s.makefile("rb") as f:
        return [parse(line).step for line in f]


def test_lines_wait_for_a_socket_that_comes_late(sock: Path, clock: Clock) -> None:
    telemetry = Telemetry(f"unix:{sock}")
    telemetry.log(1)
    telemetry.log(2)
    with listening(sock) as server:
        clock.now += sinks.RETRY_S
        telemetry.log(3)
        telemetry.close()
        peer, _ = server.accept()
        with peer:
            assert read_all(peer) == [1, 2, 3]
    assert telemetry.lost == 0


def test_a_reader_that_has_gone_costs_what_does_not_fit_the_queue(sock: Path, clock: Clock) -> None:
    with listening(sock) as server:
        telemetry = Telemetry(f"unix:{sock}")
        telemetry.log(0)
        server.accept()[0].close()
    for step in range(sinks.MAX_WAITING + 5):
        telemetry.log(step)
    assert telemetry.lost == 5
    telemetry.close()
    assert telemetry.lost == sinks.MAX_WAITING + 5


def test_a_reader_who_does_not_read_stops_nobody_and_gets_whole_lines(sock: Path) -> None:
    with listening(sock) as server:
        telemetry = Telemetry(f"unix:{sock}")
        n = 0
        while telemetry.lost == 0:
            telemetry.log(n, **{f"metric_{i}": 0.1 for i in range(200)})
            n += 1
        peer, _ = server.accept()
        reader = threading.Thread(target=lambda: found.extend(read_all(peer)))
        found: list[int] = []
        reader.start()
        while telemetry._sink is not None and telemetry._sink._waiting:  # type: ignore[attr-defined]
            telemetry.log(n)
            n += 1
        telemetry.close()
        reader.join()
        peer.close()
    assert len(found) + telemetry.lost == n
    assert found == sorted(set(found))


def test_what_a_client_that_nobody_closed_still_holds_is_sent(sock: Path, clock: Clock) -> None:
    telemetry = Telemetry(f"unix:{sock}")
    telemetry.log(1)
    with listening(sock) as server:
        clock.now += sinks.RETRY_S
        del telemetry
        peer, _ = server.accept()
        with peer:
            assert read_all(peer) == [1]


def test_threads_share_a_client(path: Path) -> None:
    with Telemetry(path) as telemetry:
        threads = [
            threading.Thread(target=lambda k=k: [telemetry.log(1000 * k + i, kl=0.1) for i in range(200)])  # type: ignore[misc]
            for k in range(4)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert telemetry.lost == 0
    assert sorted(r.step for r in records(path)) == sorted(1000 * k + i for k in range(4) for i in range(200))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_hangs_up_nothing_of_its_parent(sock: Path) -> None:
    with listening(sock) as server:
        telemetry = Telemetry(f"unix:{sock}")
        telemetry.log(1)
        telemetry._lock.acquire()  # as if another thread were in the middle of a line
        pid = os.fork()
        if pid == 0:
            telemetry.log(10)
            telemetry.close()
            os._exit(telemetry.lost)
        telemetry._lock.release()
        assert os.waitpid(pid, 0)[1] == 0
        telemetry.log(2)
        telemetry.close()
        parent, _ = server.accept()
        child, _ = server.accept()
        with parent, child:
            assert read_all(parent) == [1, 2]
            assert read_all(child) == [10]


def test_a_copy_has_a_connection_of_its_own(path: Path) -> None:
    with Telemetry(path, attempt=4) as telemetry, pickle.loads(pickle.dumps(telemetry)) as copy:
        copy.log(1)
        telemetry.close()
        copy.log(2)
    assert [(r.step, r.attempt) for r in records(path)] == [(1, 4), (2, 4)]


def test_a_signal_handler_may_report_while_a_report_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry = Telemetry(path)
    write = telemetry._sink.write  # type: ignore[union-attr]

    def interrupted(line: bytes) -> None:
        signal.raise_signal(signal.SIGUSR1)
        write(line)

    before = signal.signal(signal.SIGUSR1, lambda *_: telemetry.log(99))
    monkeypatch.setattr(telemetry._sink, "write", interrupted)
    try:
        telemetry.log(1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    telemetry.log(2)
    telemetry.close()
    assert [r.step for r in records(path)] == [1, 2]
    assert telemetry.lost == 1


def test_the_client_brings_nothing_heavy() -> None:
    code = "import sys, td_loop.guard; print(*sorted(m for m in sys.modules if m in set(sys.argv[1:])))"
    heavy = ["numpy", "numba", "torch", "redis", "td_loop.files", "typer", "rich"]
    found = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
