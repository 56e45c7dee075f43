"""What the tests of prepare share: a value function for the toy game, its replays, a run with small numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.games.base import Budget
from td_loop.npz import load_npz
from td_loop.prepare.config import PrepareConfig, WorkerPolicy
from td_loop.prepare.run import PrepareReport, prepare
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue
from tests.toy_game import GAME, ToyReplays

Arrays = dict[str, np.ndarray[Any, Any]]
Run = Callable[..., tuple[Arrays, dict[str, Any], PrepareReport]]


@pytest.fixture(scope="session")
def value() -> SplineValue:
    rng = np.random.default_rng(0)
    f = len(GAME.feature_names)
    knots = np.tile(np.linspace(-1.0, 40.0, 8), (f, 1))
    coef = rng.normal(size=(2, f, 8)) * 0.5
    return SplineValue(knots, coef, GAME.feature_names, {"game": "toy", "gamma": 0.97})


@pytest.fixture(scope="session")
def weights(value: SplineValue, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "V_snap.npz"
    save_weights(path, value)
    return path


@pytest.fixture(scope="session")
def replays(tmp_path_factory: pytest.TempPathFactory) -> ToyReplays:
    return GAME.open_replays(None, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def run(weights: Path, tmp_path: Path) -> Run:
    """Run prepare on the toy game; flags as keywords, a `game` by its name in `tests.prepare.faulty`."""

    def run(*, game: str | None = None, **flags: Any) -> tuple[Arrays, dict[str, Any], PrepareReport]:
        out = tmp_path / "branch_data.npz"
        defaults: dict[str, Any] = {
            "weights": weights,
            "out": out,
            "n": 60,
            "k": 0.5,
            "budget": Budget(evals=3),
            "workers": 1,
            "game": f"tests.prepare.faulty:{game}" if game else "tests.toy_game:GAME",
            "cache": tmp_path,
            "policy": WorkerPolicy(hang_grace_s=20.0),
        }
        report = prepare(PrepareConfig(**defaults | flags))
        arrays, meta = load_npz(out)
        return arrays, meta, report

    return run
