"""Toy games that fail in one way each. Marks on disk make a fault happen once for all workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

from td_loop.games.base import Budget, Decision
from td_loop.value.model import SplineValue
from tests.toy_game import State, Toy

MARKS = "TD_LOOP_TEST_MARKS"
"""Environment variable: the folder of marks."""


def poisoned(state: State, seat: int) -> bool:
    """A few frames of each game."""
    return state.turn in (2, 7) and seat == 0


def always(_state: State, _seat: int) -> bool:
    return True


def first_time(what: str) -> bool:
    """True for the first process that asks, of all processes that share the folder of marks."""
    try:
        (Path(os.environ[MARKS]) / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(1000)


def fail() -> None:
    raise ZeroDivisionError("this search never ran")


def nothing() -> None:
    pass


class Faulty(Toy):
    """The toy game, whose search does `fault()` where `when(state, seat)` says so."""

    def __init__(
        self, fault: Callable[[], None], when: Callable[[State, int], bool], *, once: bool = False
    ) -> None:
        self.fault, self.when, self.once = fault, when, once

    def make_search(self, value: SplineValue) -> Any:
        search = super().make_search(value)

        def faulty(state: State, seat: int, budget: Budget, rng: np.random.Generator) -> Decision[Any]:
            if self.when(state, seat) and (not self.once or first_time(f"{state.turn}")):
                self.fault()
                return Decision(np.zeros((0, 2), np.int64), 0)
            return search(state, seat, budget, rng)

        return faulty


class BadFeatures(Toy):
    """Its features are not numbers in one frame of every game."""

    def features(self, state: State, gamma: float) -> Any:
        return super().features(state, gamma) * (np.nan if state.turn == 3 else 1)


class Compiles(Toy):
    """Its features need a kernel that compile() does not know of."""

    def features(self, state: State, gamma: float) -> Any:
        forgotten(1.0)
        return super().features(state, gamma)


@numba.njit
def forgotten(x: float) -> float:
    return x + 1.0


class BadStart(Toy):
    """No worker can make a search."""

    def make_search(self, value: SplineValue) -> Any:
        raise RuntimeError("no search today")


class DeadStart(Toy):
    """Every worker dies while it starts."""

    def make_search(self, value: SplineValue) -> Any:
        die()


DIES = Faulty(die, poisoned)
DIES_ONCE = Faulty(die, poisoned, once=True)
DIES_ALWAYS = Faulty(die, always)
HANGS = Faulty(hang, poisoned)
RAISES = Faulty(fail, poisoned)
RAISES_ALWAYS = Faulty(fail, always)
UNDECIDED = Faulty(nothing, poisoned)
UNDECIDED_ALWAYS = Faulty(nothing, always)
SLOW = Faulty(hang, always)
COMPILES = Compiles()
BAD_FEATURES = BadFeatures()
BAD_START = BadStart()
DEAD_START = DeadStart()
