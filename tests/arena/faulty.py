"""The toy game with players that harm the worker they run in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.toy_game import Toy, idle, rusher


class Faulty(Toy):
    """`dies_once` kills its worker unless the file named by $ARENA_TEST_MARK is there; `raises` always raises."""

    @staticmethod
    def _dies_once(state: Any, seat: int, rng: Any) -> Any:
        mark = Path(os.environ["ARENA_TEST_MARK"])
        if state.turn == 2 and not mark.exists():
            mark.touch()
            os._exit(9)
        return rusher(state, seat, rng)

    @staticmethod
    def _raises(state: Any, seat: int, rng: Any) -> Any:
        if state.turn == 2:
            raise ZeroDivisionError("our own bug")
        return idle(state, seat, rng)

    players = {**Toy.players, "dies_once": _dies_once, "raises": _raises}  # noqa: RUF012


GAME: Any = Faulty()
