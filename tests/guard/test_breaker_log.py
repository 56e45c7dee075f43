from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop import files
from td_loop.errors import DataError, StorageError
from td_loop.guard.breaker import Breaker, Event, State, Transition, replay
from td_loop.guard.breaker_log import BreakerLog, read_log
from td_loop.guard.evidence import evidence
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import Record


def story() -> list[Transition]:
    """A trip, a trial, a recovery."""
    breaker, out = Breaker(), []
    for event in (
        lambda b: b.trip("kl 0.2", {"kl": 0.2, "worst": math.nan}, t=1.5, step=7),
        lambda b: b.stopped({"processes": 0}, t=2.0),
        lambda b: b.restart("from step 5", {}, t=3.0, step=5),
    ):
        breaker, transition = event(breaker)
        out.append(transition)
    return out


def written(path: Path) -> list[Transition]:
    log = BreakerLog(path)
    for transition in story():
        log.append(transition)
    return log.transitions


def test_transitions_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "breaker.jsonl"
    written(path)
    found = read_log(path)
    assert found[1:] == story()[1:]
    assert found[0].evidence == {"kl": 0.2, "worst": "NaN"}
    assert replay(found).state is State.HALF_OPEN
    assert BreakerLog(path).transitions == found


def test_no_file_is_an_empty_log(tmp_path: Path) -> None:
    assert read_log(tmp_path / "breaker.jsonl") == []


def test_every_transition_is_durable_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_size), fsync(fd)))
    log = BreakerLog(tmp_path / "breaker.jsonl")
    for transition in story():
        log.append(transition)
        assert log.path.stat().st_size in synced


@given(cut=st.integers(0, 2000))
def test_a_log_that_was_torn_anywhere_loses_its_last_line_alone(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "breaker.jsonl"
    written(path)
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    assert len(read_log(path)) == whole
    assert path.read_bytes() == content[:cut]  # a reader changes nothing: the writer may be at work
    log = BreakerLog(path)
    for transition in story()[whole:]:
        log.append(transition)
    assert path.read_bytes() == content


def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "breaker.jsonl"
    written(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"t": 1\r}\n' + lines[2])
    with pytest.raises(DataError, match=r"breaker.jsonl, line 2: .*put a sound copy in its place"):
        read_log(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"event": "explode"}, "explode"),
        ({"to": "ajar"}, "ajar"),
        ({"step": "7"}, "'step' is '7'"),
        ({"locked": None}, "'locked' is None"),
        ({"attempt": True}, "'attempt' is True"),
    ],
)
def test_a_line_of_another_kind_is_an_error(change: dict[str, object], why: str) -> None:
    with pytest.raises(DataError, match=why):
        Transition.from_json({**story()[0].as_json(), **change})


@pytest.mark.parametrize("line", [[], "x", None, {}])
def test_what_is_no_transition_is_an_error(line: object) -> None:
    with pytest.raises(DataError):
        Transition.from_json(line)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = BreakerLog(tmp_path / "breaker.jsonl")
    log.append(story()[0])
    before = log.path.read_bytes()
    write = os.write

    def half(fd: int, data: bytes) -> int:
        if len(data) < 50:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[: len(data) - 20])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(StorageError, match="free space"):
        log.append(story()[1])
    assert log.path.read_bytes() == before
    assert [x.event for x in log.transitions] == [Event.TRIP]


def test_the_evidence_of_a_trip_tells_findings_and_the_last_values() -> None:
    findings = [
        Finding("jump.kl", Health.SICK, False, 9.0, 8.0, "far"),
        Finding("kl", Health.SICK, True, 0.2, 0.05, "above"),
    ]
    found = evidence(findings, [Record(n, {"kl": math.nan if n == 11 else 0.01 * n}) for n in range(12)])
    assert [f["detector"] for f in found["findings"]] == ["kl", "jump.kl"]
    assert [r["step"] for r in found["recent"]] == list(range(2, 12))
    assert b'"NaN"' in files.dumps_json(found)
