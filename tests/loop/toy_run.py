"""Runs of the real stages on the toy game, small enough for a test."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from td_loop.cli import main
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue
from tests.toy_game import GAME

SMALL = "--n 60 --workers 2 --budget-evals 4 --epochs 2 --batches-per-epoch 3 --batch-size 32"


def toy_flags(folder: Path, games: int = 20) -> list[str]:
    """Write a bootstrap and replays into `folder`; the flags of a small run `toy` that uses them."""
    (folder / "games.json").write_bytes(orjson.dumps(list(range(games))))
    f = len(GAME.feature_names)
    knots = np.tile(np.linspace(-1.0, 40.0, 6), (f, 1))
    flat = SplineValue(knots, np.zeros((2, f, 6)), GAME.feature_names, {"game": "toy", "gamma": 0.97})
    save_weights(folder / "bootstrap.npz", flat)
    where = ["--tag", "toy", "--bootstrap", str(folder / "bootstrap.npz"), "--game", "tests.toy_game:GAME"]
    return [*where, "--replays", str(folder / "games.json"), *shlex.split(SMALL)]


def run(flags: Sequence[str], runs: Path, **more: Any) -> int:
    """`td-loop run` in this process; `more` by flag name. Returns its exit code."""
    extra = [word for name, value in more.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return main(["run", *flags, "--runs-dir", str(runs), *extra])


def records(runs: Path) -> Any:
    """The iterations of the run."""
    return orjson.loads((runs / "td_loop_toy" / "manifest.json").read_bytes())["iters"]
