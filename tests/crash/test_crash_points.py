"""A run that is killed, or whose disk fails, at one of its changes: a sample that leaves no kind of change out.

`benchmarks/crash_points.py` tries all of them.
"""

from __future__ import annotations

import pytest

from tests.crash.faults import Kind
from tests.crash.sweep import KINDS, Sweep


def test_the_scenarios_make_every_kind_of_change(sweep: Sweep) -> None:
    made = {(change.process, change.what) for changes in sweep.changes.values() for change in changes}
    atomic = {"create", "write", "half write", "fsync", "chmod", "rename", "fsync folder"}
    assert made >= {(process, what) for process in ("driver", "prepare", "fit") for what in atomic}
    assert made >= {("driver", what) for what in ("mkdir", "open", "truncate", "symlink", "remove")}
    paths = {change.path for changes in sweep.changes.values() for change in changes if change.what == "remove"}
    assert "iter0/branch_data.npz" in paths  # pruned
    assert any(c.path.startswith("trimmed/iter1_retry1") for c in sweep.changes["resumed"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_a_fault_stopped_keeps_the_invariants_and_ends_as_if_undisturbed(
    sweep: Sweep, kind: Kind
) -> None:
    tried = sweep.try_all(sweep.sample(kind))
    assert len(tried) >= 7
    failed = [t for t in tried if t.problems]
    assert not failed, "\n".join(map(str, failed))
