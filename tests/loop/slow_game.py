"""Games whose search takes for ever, and says so once both workers are in it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.game import OrbitWars
from td_loop.value.model import SplineValue
from tests.loop.pausing import FOLDER
from tests.toy_game import Toy


def say() -> None:
    folder = Path(os.environ[FOLDER])
    (folder / f"searching-{os.getpid()}").touch()
    if len(list(folder.glob("searching-*"))) == 2:
        (folder / "here").touch()


class Sleeping(Toy):
    def make_search(self, value: SplineValue) -> Any:
        def search(*_: Any) -> Any:
            say()
            time.sleep(1000)

        return search


class Searching(OrbitWars):
    """The real search, over and over, in a worker. `compile` searches with a budget of evaluations."""

    def make_search(self, value: SplineValue) -> Any:
        once = super().make_search(value)

        def search(state: Any, seat: int, budget: Budget, rng: Any) -> Any:
            while budget.seconds is not None:
                once(state, seat, budget, rng)
                say()
            return once(state, seat, budget, rng)

        return search


TOY = Sleeping()
ORBIT_WARS = Searching()
