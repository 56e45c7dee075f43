"""A guard that is killed at a change to its folder: run again, it ends as if nothing had happened."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from td_loop.guard.breaker import Event
from td_loop.guard.breaker_log import read_log
from tests.crash.faults import Kind, read_changes
from tests.guard.crashing import Server
from tests.guard.guarded import steps

STRIDE = 12
"""Every so many changes of a run one is tried; the store has its own test, of all."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def test_a_run_that_is_killed_anywhere_is_completed_by_the_next(server: Server, tmp_path: Path) -> None:
    code, said = server.run("guarded", tmp_path / "g", Kind.COUNT, tmp_path / "changes")
    assert code == 0, said
    changes = read_changes(tmp_path / "changes")
    places = {c.path.split("/")[0] for c in changes}
    assert {"breaker.jsonl", "state.json", "snapshots", "quarantine", "active", "lock"} <= places
    for point in range(1, len(changes), STRIDE):
        folder = tmp_path / "killed"
        code, said = server.run("guarded", folder, Kind.KILL, tmp_path / f"changes{point}", point)
        where = f"kill at {point}: {read_changes(tmp_path / f'changes{point}')[-1]}"
        assert code in (-9, 0), f"{where}\n{said}"  # 0: this time it made fewer changes
        code, said = server.run("guarded", folder)
        assert code == 0, f"{where}\n{said}"
        events = [str(t.event) for t in read_log(folder / "breaker.jsonl") if t.event is not Event.RESUMED]
        assert events == ["trip", "stopped", "restart", "recovered"], where
        assert (folder / "stable_checkpoint_latest").exists(), where
        assert (folder / "active").exists(), where
        kept = steps(folder)
        assert (10, True) in kept["snapshots"], where
        assert not list((folder / "snapshots").glob(".*")), where
        shutil.rmtree(folder)
