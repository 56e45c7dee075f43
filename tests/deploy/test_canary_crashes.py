"""A controller that is killed, or whose disk refuses, at a change to its folder: it completes what it began."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from td_loop.deploy.canary import store
from td_loop.deploy.canary.machine import Event, Stage
from td_loop.jsonl import read_lines
from tests.crash.faults import Kind, read_changes
from tests.deploy import canary_scripts
from tests.deploy.canary_world import BAD, GOOD, SAME
from tests.guard.crashing import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("tests.deploy.canary_scripts") as started:
        yield started


def check(folder: Path, where: str, stage: Stage) -> None:
    """What has to hold once the release has ended."""
    lines, street = store.read_audit(folder), canary_scripts.street_of(folder)
    assert lines[-1].release.stage is stage, where
    assert street.router.weight == 0, where
    assert (street.serving.stable, street.serving.canary) == (SAME if stage is Stage.PROMOTED else GOOD, ""), where
    transitions = [x for x in lines if x.event not in (Event.NOTE, Event.RESUMED)]
    assert [x.seq for x in transitions] == list(range(1, len(transitions) + 1)), where
    stages = [x.release.stage for x in transitions]
    assert stages == sorted(stages, key=list(Stage).index), where
    assert not [weight for weight, rolling_back in street.told if rolling_back and weight > 0], where
    assert not [x for x in lines if x.event is Event.BY_HAND], where
    refused = read_lines(folder / store.REFUSED, dict, "")
    assert [x["sha256"] for x in refused] == ([] if stage is Stage.PROMOTED else [BAD]), where
    assert not list(folder.glob(".*.tmp*")), where


@pytest.mark.parametrize(
    ("script", "stage", "kind", "stride"),
    [
        ("bad", Stage.ROLLED_BACK, Kind.KILL, 4),
        ("bad", Stage.ROLLED_BACK, Kind.EIO, 3),
        ("bad", Stage.ROLLED_BACK, Kind.ENOSPC, 3),
        ("good", Stage.PROMOTED, Kind.KILL, 5),
        ("good", Stage.PROMOTED, Kind.EIO, 9),
    ],
)
def test_a_fault_at_any_change_delays_a_release_and_never_turns_it(
    server: Server, tmp_path: Path, script: str, stage: Stage, kind: Kind, stride: int
) -> None:
    (tmp_path / "count").mkdir()
    code, said = server.run(script, tmp_path / "count" / "run", Kind.COUNT, tmp_path / "changes")
    assert code == 0, said
    check(tmp_path / "count" / "run", "unspoiled", stage)
    changes = read_changes(tmp_path / "changes")
    assert {"audit.jsonl", "canary.json"} <= {c.path for c in changes}
    assert max(weight for weight, _ in canary_scripts.street_of(tmp_path / "count" / "run").told) >= 5
    # A rollback is the second half of the bad one: after a kill there nothing of ours has run, so all of it.
    half = len(changes) // 2 if script == "bad" and kind is Kind.KILL else len(changes)
    for point in [*range(1, half + 1, stride), *range(half + 1, len(changes) + 1)]:
        where = f"{script}: {kind} at {point}, {changes[point - 1]}"
        folder = tmp_path / "spoiled"
        folder.mkdir()
        code, said = server.run(script, folder / "run", kind, tmp_path / f"changes{point}", point)
        assert code == (-9 if kind is Kind.KILL else 0), f"{where}\n{said}"
        if kind is Kind.KILL:
            code, said = server.run(script, folder / "run")
            assert code == 0, f"{where}\n{said}"
        check(folder / "run", where, stage)
        shutil.rmtree(folder)
