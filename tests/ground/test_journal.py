"""journal: whatever happens to its end, what stands before it is read again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop import fence, journal
from td_loop.errors import CacheError, RunInUse, StorageError
from td_loop.journal import Journal, read_records

RECORDS = [b"head", b"x" * 300, b"\0", b"last"]


def write(path: Path, records: list[bytes]) -> bytes:
    with Journal(path, records[:1]) as j:
        for record in records[1:]:
            j.append(record)
    return path.read_bytes()


@given(st.lists(st.binary(min_size=1), max_size=8), st.integers(0, 8))
def test_records_come_back_in_order_whether_written_at_the_start_or_appended(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], at: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "a.chunks"
    with Journal(path, records[:at]) as j:
        for record in records[at:]:
            j.append(record)
        assert list(read_records(path)) == records
    assert list(read_records(path)) == records


def test_no_file_is_no_record(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "none")) == []


def test_a_file_cut_at_any_byte_keeps_all_whole_records_and_can_be_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.chunks"
    whole = write(path, RECORDS)
    ends = [len(write(tmp_path / "part", RECORDS[: i + 1])) for i in range(len(RECORDS))]
    for cut in range(ends[0], len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = RECORDS[: sum(end <= cut for end in ends)]
        assert list(read_records(path)) == kept
        with Journal(path, read_records(path)) as j:
            j.append(b"more")
        assert list(read_records(path)) == [*kept, b"more"]


def test_a_flipped_byte_costs_the_records_from_there_on(tmp_path: Path) -> None:
    path = tmp_path / "a.chunks"
    start = len(write(path, RECORDS[:1]))
    whole = write(path, RECORDS)
    for at in range(start, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        found = list(read_records(path))
        assert found == RECORDS[: len(found)]
        assert 1 <= len(found) < len(RECORDS)


def test_zeros_at_the_end_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "a.chunks"
    path.write_bytes(write(path, RECORDS) + bytes(4096))
    assert list(read_records(path)) == RECORDS


@pytest.mark.parametrize("content", [b"", b"my notes", b"td_loop journal 2\n"])
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.chunks"
    path.write_bytes(content)
    with pytest.raises(CacheError, match=r"a\.chunks: is not a journal of td_loop; move it away"):
        list(read_records(path))
    assert path.read_bytes() == content


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be read: Is a directory"):
        list(read_records(tmp_path))


def failing(error: int, after: int) -> Callable[..., int]:
    """An os.write that writes `after` bytes of a record and then fails."""
    left, write = after, os.write

    def fail(fd: int, data: Any) -> int:
        nonlocal left
        if not left:
            raise OSError(error, os.strerror(error))
        n = write(fd, data[:left])
        left -= n
        return n

    return fail


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("after", [0, 1, 8, 20])
def test_an_append_that_fails_leaves_the_file_as_it_was_and_later_ones_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, after: int
) -> None:
    path = tmp_path / "a.chunks"
    with Journal(path, [b"head"]) as j:
        j.append(b"one")
        before = path.read_bytes()
        with monkeypatch.context() as m:
            m.setattr(os, "write", failing(error, after))
            with pytest.raises(StorageError, match=r"cannot write .*a\.chunks"):
                j.append(b"y" * 50)
        assert path.read_bytes() == before
        j.append(b"two")
    assert list(read_records(path)) == [b"head", b"one", b"two"]


def test_a_start_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.chunks"
    before = write(path, RECORDS)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError):
        Journal(path, [b"new"])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_who_goes_on_from_a_file_is_not_disturbed_by_whoever_still_writes_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.chunks"
    with Journal(path, [b"head"]) as orphan:
        orphan.append(b"one")
        with Journal(path, read_records(path)) as heir:
            orphan.append(b"late")
            heir.append(b"two")
            assert list(read_records(path)) == [b"head", b"one", b"two"]


def test_nothing_is_appended_once_another_driver_has_taken_over(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("epoch 7")
    with fence.epoch("epoch 7", lock), Journal(tmp_path / "a.chunks", [b"head"]) as j:
        j.append(b"one")
        lock.write_text("epoch 8")
        with pytest.raises(RunInUse):
            j.append(b"late")
    assert list(read_records(j.path)) == [b"head", b"one"]


def test_appends_reach_the_disk_every_few_seconds_and_not_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, synced = [100.0], []
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    with Journal(tmp_path / "a.chunks", [b"head"]) as j:
        monkeypatch.setattr(os, "fsync", synced.append)
        for _ in range(4):
            now[0] += 3.0
            j.append(b"x")
    assert len(synced) == 2


def test_remove_deletes_the_file_and_may_come_after_close(tmp_path: Path) -> None:
    path = tmp_path / "a.chunks"
    with Journal(path, [b"head"]) as j:
        j.remove()
    assert not path.exists()
