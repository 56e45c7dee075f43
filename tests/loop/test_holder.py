from __future__ import annotations

from pathlib import Path

import pytest

from td_loop.lock import Holder, holder
from td_loop.loop.lock import run_lock


def test_nobody_holds_a_run_that_was_never_started(tmp_path: Path) -> None:
    assert holder(tmp_path / ".lock") is None


def test_a_driver_is_named_while_it_holds_the_run_and_not_after(tmp_path: Path) -> None:
    with run_lock(tmp_path / ".lock"):
        found = holder(tmp_path / ".lock")
    assert found is not None
    assert found.who.startswith("process ")
    assert found.since is not None
    assert found.since.startswith("20")
    assert holder(tmp_path / ".lock") is None
    assert (tmp_path / ".lock").read_text() != ""  # the name of a driver that is gone says nothing


def test_asking_does_not_stand_in_the_way_of_a_driver(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert holder(tmp_path / ".lock") is None
    with run_lock(tmp_path / ".lock"):
        assert holder(tmp_path / ".lock") == holder(tmp_path / ".lock") is not None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"epoch 7, process 12 on host since 2026-11-30 03:43:26+00:00\n", "process 12 on host"),
        (b"process 12 on host since 2026-11-30 03:43:26+00:00\n", "process 12 on host"),
        (b"", "a process that is just starting"),
    ],
)
def test_the_holder_is_read_from_the_lock_file(tmp_path: Path, line: bytes, found: str) -> None:
    with run_lock(tmp_path / ".lock"):
        (tmp_path / ".lock").write_bytes(line)
        since = "2026-11-30 03:43:26+00:00" if line else None
        assert holder(tmp_path / ".lock") == Holder(found, since)
