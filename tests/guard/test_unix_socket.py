from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from td_loop.errors import UsageError
from td_loop.guard import Telemetry
from td_loop.guard.sources import Source, open_source
from td_loop.guard.unix_socket import UnixSource


def drain(source: Source) -> tuple[list[int], list[str]]:
    steps, faults = [], []
    while True:
        poll = source.poll()
        steps += [r.step for r in poll.records]
        faults += poll.faults
        if not poll.more:
            return steps, faults


def test_several_writers_are_heard() -> None:
    source = open_source("unix:")
    writers = [Telemetry(source.address(), attempt=k) for k in range(3)]
    for step in range(4):
        for writer in writers:
            writer.log(step)
    steps, faults = drain(source)
    assert sorted(steps) == sorted([0, 1, 2, 3] * 3)
    assert faults == []
    for writer in writers:
        writer.close()
    assert drain(source) == ([], [])
    assert source.position() == {}
    path = Path(source.address().removeprefix("unix:"))
    assert path.stat().st_mode & 0o777 == 0o600
    source.close()
    assert not path.exists()


def test_what_a_writer_said_before_it_ended_is_heard() -> None:
    source = open_source("unix:")
    code = "from td_loop.guard import Telemetry; t = Telemetry()\nfor i in range(50): t.log(i, kl=0.1)"
    env = {"TD_GUARD_TELEMETRY": source.address(), "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
    assert drain(source) == (list(range(50)), [])
    source.close()


def test_a_writer_that_ends_in_mid_line_is_a_fault() -> None:
    source = open_source("unix:")
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(source.address().removeprefix("unix:"))
        s.send(b'{"step": 1}\nbad\n{"st')
        steps, faults = drain(source)
        assert steps == [1]
        assert "writer 1, byte 12: is no JSON" in faults[0]
    assert "writer 1, byte 16: ends in mid-line" in drain(source)[1][0]
    source.close()


def test_one_flood_does_not_keep_the_others_from_being_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td_loop.guard.unix_socket.MAX_BYTES", 1000)
    monkeypatch.setattr("td_loop.guard.unix_socket._PIECE", 1000)
    source = open_source("unix:")
    loud, quiet = Telemetry(source.address()), Telemetry(source.address())
    for step in range(100):
        loud.log(step, kl=0.5)
    quiet.log(7777)
    first, second = source.poll(), source.poll()
    assert first.more
    assert 7777 in [r.step for poll in (first, second) for r in poll.records]
    steps, faults = drain(source)
    assert steps[-1] == 99
    assert faults == []
    loud.close()
    quiet.close()
    source.close()


def test_a_socket_that_a_killed_guard_left_is_taken_over() -> None:
    old = UnixSource()
    path = old.address().removeprefix("unix:")
    with pytest.raises(UsageError, match="is there already"):
        UnixSource(path)
    old._socket.close()  # as a kill does: the path stays
    new = UnixSource(path)
    with Telemetry(new.address()) as telemetry:
        telemetry.log(1)
    assert drain(new) == ([1], [])
    new.close()
    old.close()


def test_a_file_in_the_place_of_the_socket_stays() -> None:
    other = UnixSource()  # in a folder whose path is short enough
    path = Path(other.address().removeprefix("unix:")).with_name("mine")
    path.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        UnixSource(str(path))
    assert path.read_text() == "mine"
    other.close()


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="may have 107 bytes"):
        UnixSource(str(tmp_path / ("x" * 120)))


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no such folder"):
        UnixSource("/no_such_folder/t.sock")
