"""The real stages under the driver, on a game that has nothing of Orbit Wars."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from td_loop.cli import main
from td_loop.files import load_npz
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue
from tests.toy_game import GAME

ROOT = Path(__file__).parents[2]
SMALL = shlex.split("--n 60 --workers 2 --budget-evals 4 --epochs 2 --batches-per-epoch 3 --batch-size 32")


def records(runs: Path) -> Any:
    return orjson.loads((runs / "td_loop_toy" / "manifest.json").read_bytes())["iters"]


def test_a_toy_game_runs_through_the_loop_and_a_resumed_run_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The game boundary, and I10 with an evaluation budget."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "games.json").write_bytes(orjson.dumps(list(range(20))))
    bootstrap = tmp_path / "bootstrap.npz"
    f = len(GAME.feature_names)
    flat = SplineValue(
        np.tile(np.linspace(-1.0, 40.0, 6), (f, 1)),
        np.zeros((2, f, 6)),
        GAME.feature_names,
        {"game": "toy", "gamma": 0.97},
    )
    save_weights(bootstrap, flat)

    def run(runs: Path, iters: int) -> int:
        where = ["--tag", "toy", "--runs-dir", str(runs), "--bootstrap", str(bootstrap), "--iters", str(iters)]
        game = ["--game", "tests.toy_game:GAME", "--replays", str(tmp_path / "games.json")]
        return main(["run", *where, *game, *SMALL])

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(whole, 2) == 0
    assert run(parts, 1) == run(parts, 2) == 0
    assert [r["status"] for r in records(whole)] == ["promoted", "promoted"]
    assert records(whole)[1]["stage3_validation"]["S3.2"]["passed"] is True
    assert records(whole)[1]["knot_coverage"]["available"] is True
    # To the bit: the very files, so that a resumed run's parents and hashes are those of one never stopped.
    assert [r["weights_sha256"] for r in records(whole)] == [r["weights_sha256"] for r in records(parts)]
    first, second = (load_npz(whole / "td_loop_toy" / r["weights"])[0]["coef"] for r in records(whole))
    assert not np.array_equal(first, second)
