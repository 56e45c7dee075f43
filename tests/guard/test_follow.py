from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.guard import sources
from td_loop.guard.follow import FileSource
from td_loop.guard.record import MAX_LINE, Record, encode
from td_loop.guard.sources import Batch, Lines, Source, open_source


def lines(*steps: int) -> bytes:
    return b"".join(encode(Record(step, {"kl": 0.5})) for step in steps)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as f:
        f.write(data)


def drain(source: Source) -> tuple[list[int], list[str]]:
    """Steps and faults until there is nothing more."""
    steps, faults = [], []
    while True:
        poll = source.poll()
        steps += [r.step for r in poll.records]
        faults += poll.faults
        if not poll.more:
            return steps, faults


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.jsonl"


def test_a_file_is_followed_from_its_start_as_it_grows(path: Path) -> None:
    source = open_source(path)
    assert source.address() == str(path)
    assert drain(source) == ([], [])  # it need not be there yet
    append(path, lines(1, 2))
    assert drain(source) == ([1, 2], [])
    append(path, lines(3))
    assert drain(source) == ([3], [])
    assert drain(source) == ([], [])
    source.close()


def test_half_a_line_waits_for_its_rest(path: Path) -> None:
    source = FileSource(path)
    line = lines(7)
    append(path, lines(6) + line[:9])
    assert drain(source) == ([6], [])
    append(path, line[9:])
    assert drain(source) == ([7], [])
    source.close()


def test_a_bad_line_is_a_fault_with_file_and_byte(path: Path) -> None:
    good = lines(1)
    append(path, good + b'{"step": 2, "kl": \n\n \n' + lines(3) + b'{"kl": 1}\n')
    source = FileSource(path)
    steps, faults = drain(source)
    assert steps == [1, 3]
    assert len(faults) == 2
    assert faults[0].startswith(f"{path}, byte {len(good)}: is no JSON")
    assert "'step' is None" in faults[1]
    source.close()


def test_a_line_without_an_end_is_thrown_away_and_costs_no_memory(path: Path) -> None:
    source = FileSource(path)
    append(path, lines(1) + b"x" * (5 * MAX_LINE))
    steps, faults = drain(source)
    assert steps == [1]
    assert len(faults) == 1
    assert f"byte {len(lines(1))}: has more than {MAX_LINE} bytes" in faults[0]
    append(path, b"y" * 100)
    assert drain(source) == ([], [])
    assert len(source._lines._half) == 0
    append(path, b"z\n" + lines(2))
    assert drain(source) == ([2], [])
    append(path, b"bad\n")
    assert f"byte {path.stat().st_size - 4}:" in drain(source)[1][0]
    source.close()


def test_a_large_file_is_read_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, lines(*range(5000)))
    monkeypatch.setattr("td_loop.guard.follow.MAX_BYTES", 10_000)
    source = FileSource(path)
    first = source.poll()
    assert first.more
    assert 0 < len(first.records) < 1000
    steps, faults = drain(source)
    assert [r.step for r in first.records] + steps == list(range(5000))
    assert faults == []
    source.close()


def test_faults_are_counted_when_there_are_many(path: Path) -> None:
    append(path, b"bad\n" * 1000)
    source = FileSource(path)
    faults = source.poll().faults
    assert len(faults) == sources.MAX_FAULTS + 1
    assert faults[-1] == f"and {1000 - sources.MAX_FAULTS} more faults"
    source.close()


@given(st.lists(st.integers(0, 99), max_size=30), st.data())
def test_however_a_stream_is_cut_the_records_are_the_same(steps: list[int], data: st.DataObject) -> None:
    stream = lines(*steps) + b"bad\n" + lines(100) + b"half"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    splitter, batch = Lines("stream"), Batch()
    for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        splitter.feed(stream[a:b], batch)
    assert [r.step for r in batch.records] == [*steps, 100]
    assert len(batch.faults) == 1
    assert f"byte {len(lines(*steps))}:" in batch.faults[0]
    assert splitter.start == len(stream) - 4


def test_a_position_is_gone_on_from(path: Path) -> None:
    append(path, lines(1, 2) + b'{"step": 3')
    source = FileSource(path)
    assert drain(source) == ([1, 2], [])
    at = source.position()
    source.close()
    assert source.position() == at
    append(path, b"}\n" + lines(4))
    source = FileSource(path, at)
    assert drain(source) == ([3, 4], [])
    source.close()


def test_a_position_of_another_file_is_noticed(path: Path) -> None:
    append(path, lines(1, 2))
    source = FileSource(path)
    drain(source)
    at = source.position()
    source.close()
    path.write_bytes(lines(5, 6, 7))  # the same inode, but other bytes
    source = FileSource(path, at)
    steps, faults = drain(source)
    assert steps == [5, 6, 7]
    assert "is another file than the one read before" in faults[0]
    source.close()


@pytest.mark.parametrize(
    "damage", [{"offset": "far"}, {"offset": -1}, {"crc32": None}, {"inode": None}, {"offset": 10**9}], ids=str
)
def test_a_damaged_position_is_one_of_another_file(path: Path, damage: dict[str, object]) -> None:
    append(path, lines(1, 2))
    source = FileSource(path)
    drain(source)
    at = {**source.position(), **damage}
    source.close()
    for position in (at, {k: v for k, v in at.items() if k not in damage}):
        source = FileSource(path, position)
        steps, faults = drain(source)
        assert steps == [1, 2]
        assert "is another file than the one read before" in faults[0]
        source.close()


@pytest.mark.parametrize("again", [lines(8), lines(8, 9, 10, 11)], ids=["shorter", "longer"])
def test_a_file_that_is_written_anew_is_read_from_its_start(path: Path, again: bytes) -> None:
    append(path, lines(1, 2))
    source = FileSource(path)
    drain(source)
    path.write_bytes(again)
    steps, faults = drain(source)
    assert steps == [8, 9, 10, 11][: len(steps)]
    assert len(steps) == again.count(b"\n")
    assert len(faults) == 1
    assert "was cut short or written anew" in faults[0]
    source.close()


def test_a_replaced_file_is_read_to_its_end_and_then_the_new_one(path: Path) -> None:
    append(path, lines(1))
    source = FileSource(path)
    drain(source)
    append(path, lines(2) + b'{"ste')
    new = path.with_name("new")
    append(new, lines(3))
    new.replace(path)
    assert drain(source) == ([2], [])  # the old one may still grow
    steps, faults = drain(source)
    assert steps == [3]
    assert len(faults) == 2
    assert "ends in mid-line; 5 bytes" in faults[0]
    assert "was replaced" in faults[1]
    source.close()


def test_a_deleted_file_is_said_once_and_waited_for(path: Path) -> None:
    append(path, lines(1))
    source = FileSource(path)
    drain(source)
    path.unlink()
    assert len(drain(source)[1]) == 1
    assert drain(source) == ([], [])
    append(path, lines(2))
    steps, faults = drain(source)
    assert steps == [2]
    assert "was replaced" in faults[0]
    source.close()


def test_what_is_no_file_is_said_once(tmp_path: Path) -> None:
    source = FileSource(tmp_path)
    assert "cannot be read" in drain(source)[1][0]
    assert drain(source) == ([], [])
    source.close()


def test_steps_may_go_backwards(path: Path) -> None:
    append(path, lines(5, 6, 3, 4))
    source = FileSource(path)
    assert drain(source) == ([5, 6, 3, 4], [])
    source.close()


def test_interleaved_writers_cost_the_lines_that_they_mixed(path: Path) -> None:
    a, b = lines(1), lines(2)
    append(path, a[:5] + b[:9] + a[5:] + b[9:] + lines(3))
    source = FileSource(path)
    steps, faults = drain(source)
    assert steps == [3]
    assert len(faults) == 2
    source.close()


def test_a_pipe_does_not_stop_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    source = FileSource(tmp_path / "pipe")
    assert "cannot be read" in drain(source)[1][0]
    source.close()
