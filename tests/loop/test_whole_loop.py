"""The real stages under the driver, on a game that has nothing of Orbit Wars."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import orjson
import pytest

from td_loop.npz import load_npz
from tests.loop.toy_run import records, run, toy_flags

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def stages_find_the_toy_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def test_a_toy_game_runs_through_the_loop_and_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    """The game boundary, and I10 with an evaluation budget."""
    flags = toy_flags(tmp_path)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(flags, whole, iters=2) == 0
    assert run(flags, parts, iters=1) == run(flags, parts, iters=2) == 0
    assert [r["status"] for r in records(whole)] == ["promoted", "promoted"]
    assert records(whole)[1]["stage3_validation"]["S3.2"]["passed"] is True
    assert records(whole)[1]["knot_coverage"]["available"] is True
    # To the bit: the very files, so that a resumed run's parents and hashes are those of one never stopped.
    assert [r["weights_sha256"] for r in records(whole)] == [r["weights_sha256"] for r in records(parts)]
    first, second = (load_npz(whole / "td_loop_toy" / r["weights"])[0]["coef"] for r in records(whole))
    assert not np.array_equal(first, second)


def test_any_number_of_workers_ends_with_the_same_weights(tmp_path: Path) -> None:
    flags = toy_flags(tmp_path)
    hashes = set()
    for workers in (1, 2, 5):
        assert run(flags, tmp_path / str(workers), iters=1, workers=workers) == 0
        hashes.add(records(tmp_path / str(workers))[0]["weights_sha256"])
    assert len(hashes) == 1


def test_the_first_step_of_a_retry_has_half_the_rate_and_its_rows_another_seed(tmp_path: Path) -> None:
    # A rate at which Adam overshoots, judged without tolerance: the first attempt ends worse than it began.
    wild = {"lr_peak": 8.0, "val_regression_tau": 0.0, "val_blowup_tau": 1e6, "epochs": 4}
    assert run(toy_flags(tmp_path), tmp_path, iters=1, on_fail="retry-then-abort", **wild) == 3
    (record,) = records(tmp_path)
    assert (record["attempt"], record["iter_dir"]) == (1, "iter0_retry1")
    first = record["previous_attempt"]
    assert (first["status"], first["iter_dir"], first["attempt"]) == ("reverted", "iter0", 0)

    def report(folder: str) -> dict[str, dict[str, list[float]]]:
        path = tmp_path / "td_loop_toy" / folder / "weights.training.json"
        training: dict[str, dict[str, list[float]]] = orjson.loads(path.read_bytes())
        return training

    before, after = report("iter0"), report("iter0_retry1")
    assert before["history"]["lr_first"][0] == pytest.approx(0.1 * 8.0)  # the warmup starts at a tenth of the peak
    assert after["history"]["lr_first"][0] == pytest.approx(before["history"]["lr_first"][0] / 2)
    assert after["history"]["lr_last"] == pytest.approx([rate / 2 for rate in before["history"]["lr_last"]])
    assert after["hyperparams"]["lr"] == 4.0
    seeds = [
        load_npz(tmp_path / "td_loop_toy" / name / "branch_data.npz")[1]["seed"]
        for name in ("iter0", "iter0_retry1")
    ]
    assert seeds == [0, 1000]
