"""pool: a dead, stuck or raising worker costs one task, and nobody waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from td_loop.errors import TdLoopError
from td_loop.prepare import pool as pool_module
from td_loop.prepare.compute import compile_kernels
from td_loop.prepare.pool import Outcome, Pool
from td_loop.value.model import SplineValue
from tests.prepare import recipes
from tests.toy_game import GAME


def run(
    recipe: Callable[[], Callable[[Any], Any]],
    n: int,
    tasks: list[Any],
    limit: float = 60.0,
    memory: int | None = None,
) -> list[Outcome[Any, Any]]:
    todo = list(reversed(tasks))
    with Pool(recipe, n, memory) as pool:
        return list(pool.run(lambda: todo.pop() if todo else None, lambda _: limit))


def test_every_task_is_answered_once() -> None:
    outcomes = run(recipes.square, 2, list(range(50)))
    assert sorted((o.task, o.result) for o in outcomes) == [(x, x * x) for x in range(50)]
    assert {o.worker for o in outcomes} <= {0, 1}


def test_no_task_is_no_outcome() -> None:
    assert run(recipes.square, 1, []) == []


def test_a_lost_task_is_told_from_a_done_one_and_the_rest_goes_on() -> None:
    outcomes = run(recipes.troubled, 2, [10, 1, 11, 3, 12, 4, 13, 5, 14])
    assert sorted(o.result for o in outcomes if o.lost is None) == [20, 22, 24, 26, 28]
    lost = {o.task: o.lost for o in outcomes if o.lost is not None}
    assert "SIGKILL" in lost[1]
    assert "ZeroDivisionError: three" in lost[3]
    assert "exit code 7" in lost[4]
    assert "SIGABRT" in lost[5]


def test_a_stuck_worker_is_killed_when_its_time_is_up() -> None:
    outcomes = run(recipes.troubled, 1, [2, 10], limit=1.0)
    assert [(o.task, o.result) for o in outcomes] == [(2, None), (10, 20)]
    assert "no sign of life" in (outcomes[0].lost or "")


def test_a_worker_that_is_stopped_in_the_middle_of_its_answer_does_not_stop_us() -> None:
    outcomes = run(recipes.half_an_answer, 1, [1, 10], limit=1.0)
    assert [(o.task, o.result) for o in outcomes] == [(1, None), (10, 20)]


def test_messages_of_any_size_go_through() -> None:
    (small, large) = run(recipes.length, 1, [b"x", bytes(5_000_000)])
    assert (small.result, large.result) == (bytes(1), bytes(5_000_000))


def test_a_worker_that_is_stopped_while_it_starts_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "START_LIMIT_S", 3.0)
    assert [o.result for o in run(recipes.StopsAtStart(tmp_path / "mark"), 1, [4])] == [16]


def test_a_worker_that_takes_more_than_its_memory_is_replaced_and_the_next_begins_with_all_of_it() -> None:
    outcomes = run(recipes.hog, 1, [100, 150, 1000, 100], memory=400_000_000)
    assert [o.result for o in outcomes] == [100, 250, None, 100]
    assert outcomes[2].lost == "its worker died (out of memory: 0.4 GB is the share of a worker)"


def test_a_lost_task_may_bring_new_ones() -> None:
    todo, seen = [1], []
    with Pool(recipes.troubled, 1) as pool:
        for outcome in pool.run(lambda: todo.pop() if todo else None, lambda _: 60.0):
            seen.append((outcome.task, outcome.result))
            if outcome.lost:
                todo.append(6)
    assert seen == [(1, None), (6, 12)]


def test_workers_are_single_threaded_light_and_deaf_to_ctrl_c() -> None:
    # Ctrl-C reaches the whole process group; a worker that died of it would be replaced and the run go on.
    (outcome,) = run(recipes.report, 1, ["OMP_NUM_THREADS"])
    assert outcome.result == {"pid": outcome.result["pid"], "threads": "1", "modules": [], "sigint": True}
    assert outcome.result["pid"] != os.getpid()


def test_workers_load_what_the_parent_compiled(value: SplineValue) -> None:
    compile_kernels(GAME, value)
    (outcome,) = run(recipes.Values(value), 1, [3])
    assert outcome.result == []


def test_workers_are_gone_when_the_pool_is_closed() -> None:
    with Pool(recipes.report, 2) as pool:
        todo = ["x"]
        pids = [o.result["pid"] for o in pool.run(lambda: todo.pop() if todo else None, lambda _: 60.0)]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_recipe_that_raises_ends_the_run_with_its_traceback() -> None:
    with pytest.raises(TdLoopError, match=r"(?s)could not start.*no search today"):
        run(recipes.no_start, 2, [1])


def test_workers_that_all_die_while_starting_end_the_run() -> None:
    with pytest.raises(TdLoopError, match=r"5 workers in a row.*exit code 3.*fewer --workers"):
        run(recipes.dead_start, 2, [1])


def test_a_worker_that_dies_while_starting_is_replaced(tmp_path: Path) -> None:
    assert [o.result for o in run(recipes.DiesOnce(tmp_path / "mark"), 1, [4])] == [16]
