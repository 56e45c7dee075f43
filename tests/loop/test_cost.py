from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.games.base import GameInfo
from td_loop.loop.cost import (
    SMALL_FILES,
    Cost,
    CostModel,
    Work,
    calibrated,
    disk_bytes,
    iteration_bytes,
    row_bytes,
)
from td_loop.prepare.branch_data import BranchData
from td_loop.prepare.rows import Rows

WORK = Work(
    n=80000, k=0.3, budget_s=0.2, budget_evals=None, workers=24, epochs=10, batches_per_epoch=64, batch_size=128
)
seconds = st.floats(1.0, 1e5)


def test_full_search_time_is_rows_times_budget_over_workers() -> None:
    assert WORK.full_search_s == pytest.approx(24000 * 0.2 / 24)


@given(st.floats(1e-4, 10), st.floats(1e-4, 10))
def test_searches_are_expected_to_take_their_budget_when_it_is_short_and_never_more(a: float, b: float) -> None:
    short, long = (replace(WORK, budget_s=s) for s in sorted((a, b)))
    assert short.search_s <= min(long.search_s, short.full_search_s)
    tiny = replace(WORK, budget_s=1e-6)
    assert tiny.search_s == pytest.approx(tiny.full_search_s, rel=1e-3)
    assert CostModel().predict(WORK).prepare_s > WORK.search_s


def test_an_evaluation_budget_takes_the_place_of_seconds() -> None:
    few, many = (replace(WORK, budget_evals=evals).full_search_s for evals in (100, 200))
    assert many == pytest.approx(2 * few)
    assert few != WORK.full_search_s


@given(st.integers(1, 10**6), st.floats(0, 1), st.integers(1, 64))
def test_no_forecast_is_negative_and_more_rows_cost_more(n: int, k: float, workers: int) -> None:
    work = replace(WORK, n=n, k=k, workers=workers)
    cost, double = CostModel().predict(work), CostModel().predict(replace(work, n=2 * n))
    assert 0 < cost.prepare_s < double.prepare_s
    assert cost.total_s == cost.prepare_s + cost.fit_s


def test_without_measurements_the_constants_stand() -> None:
    assert calibrated([]) == CostModel()


def test_what_a_small_run_teaches_about_overhead_is_not_charged_to_the_searches_of_a_large_one() -> None:
    small = replace(WORK, n=3000, budget_s=0.02, workers=2)
    large = replace(WORK, workers=2)
    took = small.search_s + 60.0
    if_searches_were_slow = large.search_s * took / small.search_s
    slow_start = calibrated([(small, Cost(took, 10.0))])
    assert slow_start.predict(large).prepare_s < 0.25 * if_searches_were_slow


@given(seconds, seconds, st.sampled_from([None, 50]))
def test_after_one_iteration_the_forecast_of_its_settings_is_what_it_took(
    prepare_s: float, fit_s: float, budget_evals: int | None
) -> None:
    work = replace(WORK, budget_evals=budget_evals)
    cost = calibrated([(work, Cost(prepare_s, fit_s))]).predict(work)
    assert cost.prepare_s == pytest.approx(prepare_s)
    assert cost.fit_s == pytest.approx(fit_s)


def test_one_slow_iteration_does_not_set_the_forecast() -> None:
    usual, slow = (WORK, Cost(100.0, 10.0)), (WORK, Cost(900.0, 90.0))
    assert calibrated([slow, usual, usual]).predict(WORK).total_s == pytest.approx(110.0)


def test_only_recent_iterations_count() -> None:
    old, new = (WORK, Cost(900.0, 90.0)), (WORK, Cost(100.0, 10.0))
    assert calibrated([old] * 5 + [new] * 3).predict(WORK).total_s == pytest.approx(110.0)


def test_row_bytes_are_those_of_a_file_that_prepare_writes(tmp_path: Path) -> None:
    n = 2000
    rows = Rows(np.zeros(n, np.int32), np.zeros(n, np.int16), np.zeros(n, np.int8), np.ones(n, np.bool_))
    path = tmp_path / "branch_data.npz"
    BranchData(rows, 7).save(path, [GameInfo("0" * 64, 2, 9, None, "a game")], {})
    around = 8000  # zip structures, array headers, meta
    assert row_bytes(7) * n <= path.stat().st_size <= row_bytes(7) * n + around < row_bytes(8) * n


def test_disk_holds_the_caches_of_retention_and_what_making_another_takes() -> None:
    cache = WORK.n * row_bytes(7)
    assert iteration_bytes(WORK, 7, mc_rows=False) == 2 * cache + SMALL_FILES  # the file, and its chunks before it
    assert iteration_bytes(WORK, 7, mc_rows=True) == 3 * cache + SMALL_FILES
    assert disk_bytes(WORK, 7, 12345) == 4 * cache + SMALL_FILES + 12345
    assert disk_bytes(WORK, 7) == 5 * cache + SMALL_FILES
