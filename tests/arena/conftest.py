"""Weights for the toy game, and tournaments of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.arena.contestants import line_up, parse
from td_loop.arena.tournament import Tournament
from td_loop.games.base import Budget
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue
from tests.toy_game import GAME

Make = Callable[..., Tournament]


def toy_value(seed: int) -> SplineValue:
    rng, f = np.random.default_rng(seed), len(GAME.feature_names)
    knots = np.tile(np.linspace(-1.0, 40.0, 8), (f, 1))
    return SplineValue(knots, rng.normal(size=(2, f, 8)) * 0.5, GAME.feature_names, {"game": "toy", "gamma": 0.97})


@pytest.fixture
def weights(tmp_path: Path) -> Callable[[int], Path]:
    """Weights files of the toy game, by number."""

    def make(seed: int) -> Path:
        path = tmp_path / f"w{seed}.npz"
        if not path.exists():
            save_weights(path, toy_value(seed))
        return path

    return make


@pytest.fixture
def tournament(tmp_path: Path) -> Make:
    """A tournament of the toy game; contestants by what a person would type."""

    def make(*specs: str, **flags: Any) -> Tournament:
        game = flags.get("game", "tests.toy_game:GAME")
        found, _ = line_up([parse(spec, GAME, Budget(evals=3), {}) for spec in specs])
        defaults: dict[str, Any] = {"store": tmp_path / "games", "game": game, "rounds": 3, "workers": 1}
        return Tournament(tuple(found), **defaults | flags)

    return make
