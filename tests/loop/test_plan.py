from __future__ import annotations

from collections.abc import Callable

import pytest

from td_loop.loop.config import OnFail, RunConfig
from td_loop.loop.manifest import IterRecord, Status
from td_loop.loop.plan import RunAttempt, Stop, attempt_config, next_step, prunable


def record(i: int, status: Status, attempt: int = 0) -> IterRecord:
    return IterRecord(i, attempt, f"iter{i}", "v", "0", status)


P, R, H, INT = Status.PROMOTED, Status.REVERTED, Status.HARD_ABORTED, Status.INTERRUPTED


@pytest.mark.parametrize(
    ("records", "on_fail", "expected"),
    [
        ([], OnFail.ABORT, RunAttempt(0, 0)),
        ([record(0, P)], OnFail.ABORT, RunAttempt(1, 0)),
        ([record(0, P), record(1, P, 1)], OnFail.ABORT, RunAttempt(2, 0)),
        ([record(0, P), record(1, P), record(2, P)], OnFail.ABORT, Stop(P)),
        ([record(0, R)], OnFail.ABORT, Stop(R)),
        ([record(0, R)], OnFail.RETRY_THEN_ABORT, RunAttempt(0, 1)),
        ([record(0, R, 1)], OnFail.RETRY_THEN_ABORT, Stop(R)),
        ([record(0, P), record(1, H)], OnFail.RETRY_THEN_ABORT, Stop(H)),
        ([record(0, INT)], OnFail.RETRY_THEN_ABORT, Stop(INT)),
    ],
)
def test_next_step_of_three_iterations(records: list[IterRecord], on_fail: OnFail, expected: object) -> None:
    assert next_step(records, 3, on_fail) == expected


def test_a_run_that_has_more_iterations_than_asked_for_is_done() -> None:
    assert next_step([record(i, P) for i in range(5)], 3, OnFail.ABORT) == Stop(P)


def test_a_retry_halves_the_rate_and_moves_the_seed_and_nothing_else(config: Callable[..., RunConfig]) -> None:
    first = config(lr_peak=0.04, seed=7)
    assert attempt_config(first, 0) == first
    changed = {
        name: value
        for name, value in attempt_config(first, 1).hyperparams().items()
        if value != first.hyperparams()[name]
    }
    assert changed == {"lr_peak": 0.02, "seed": 1007}


def test_only_the_caches_of_the_iteration_before_last_are_pruned() -> None:
    existing = {"iter0": 0, "iter1": 1, "iter1_retry1": 1, "iter2": 2, "iter3": 3}
    assert prunable(3, existing) == ["iter1", "iter1_retry1"]
    assert prunable(1, existing) == []
