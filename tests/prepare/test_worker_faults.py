"""Every fault of a worker costs the rows that it happens in, and no others; whoever has it, and whenever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.worker_faults import FAULTS, WHEN, Matrix
from td_loop.games.base import Budget
from td_loop.prepare.config import PrepareConfig, WorkerPolicy

WORKERS = 2
LOSE_NO_WORKER = {"exception"}
OVERDUE = {"SIGSTOP", "endless loop"}


@pytest.fixture(scope="module")
def matrix(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    folder = tmp_path_factory.mktemp("faults")
    config = PrepareConfig(
        weights,
        folder / "branch_data.npz",
        n=30,
        k=0.5,
        budget=Budget(evals=3),
        workers=WORKERS,
        game="tests.toy_game:GAME",
        cache=folder,
        # One second for a row, and a little: what hangs is found out soon.
        policy=WorkerPolicy(hang_grace_s=0.3, memory=400_000_000),
    )
    return Matrix(config)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("workers", [1, WORKERS])
@pytest.mark.parametrize("fault", FAULTS)
def test_only_the_rows_of_a_fault_fall_back_and_all_others_keep_their_bytes(
    matrix: Matrix, fault: str, workers: int, when: str
) -> None:
    cost = matrix.run(fault, workers=workers, when=when)
    assert cost.failure == ""
    assert (cost.hit, cost.fallbacks, cost.wrong) == (workers, workers, 0)
    if fault in LOSE_NO_WORKER:
        assert cost.retries == 0
    elif fault in OVERDUE:  # on a busy machine a healthy row may be late once too
        assert cost.retries >= cost.lost + cost.hit
    else:
        assert cost.retries == cost.lost + cost.hit
