"""The same seed gives the same rows of the real game, however many workers search them."""

from __future__ import annotations

from pathlib import Path

from td_loop.games.base import Budget
from td_loop.kernels import cache_dir
from td_loop.npz import load_npz
from td_loop.prepare.config import PrepareConfig
from td_loop.prepare.run import prepare
from tests.prepare.conftest import Arrays
from tests.prepare.test_run import assert_equal

WEIGHTS = Path(__file__).parents[2] / "models" / "value_spline_v2.npz"


def rows(out: Path, workers: int) -> Arrays:
    config = PrepareConfig(
        WEIGHTS, out, seed=3, n=60, k=0.4, budget=Budget(evals=60), workers=workers, cache=cache_dir()
    )
    assert prepare(config).fallbacks == 0
    return load_npz(out)[0]


def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two, five = (rows(tmp_path / f"{w}.npz", w) for w in (1, 2, 5))
    assert_equal(one, two)
    assert_equal(one, five)
