"""What one decision may spend, and the step-by-step growth of plans within it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.calls import Calls
from td_loop.games.orbit_wars.forecast import Forecast
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.plan import DONE, EVALS, Judge, Plan
from td_loop.games.orbit_wars.propose import Pool
from td_loop.games.orbit_wars.state import Position

SLICE = 640
"""Steps between two looks at the clock: a step takes about 0.3 microseconds, seldom three."""
UNLIMITED = 1 << 60


class Scene(NamedTuple):
    """What all plans of one decision share."""

    pos: Position
    paths: PathTable
    forecast: Forecast
    judge: Judge
    calls: Calls = Calls()


class Meter:
    """Evaluations and time of one decision.

    Attributes:
        spent: evaluations so far, of all plans.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        self.spent = 0
        self._evals = UNLIMITED if budget.evals is None else budget.evals
        self._clock = clock
        self._until = math.inf if budget.seconds is None else clock() + budget.seconds

    def late(self) -> bool:
        """Whether nothing is left. Looks at the clock."""
        return self.spent >= self._evals or self._clock() >= self._until

    def grow(self, scene: Scene, plan: Plan, pool: Pool, most: int = UNLIMITED) -> bool:
        """Add launches to `plan` until none gains or it has had `most` evaluations; False: too late."""
        board, state = scene.pos
        while not plan.at[DONE] and plan.at[EVALS] < most:
            if self.late():
                return False
            before = int(plan.at[EVALS])
            upto = min(most, before + self._evals - self.spent)
            scene.calls.advance(plan, pool, scene.forecast, scene.judge, board, scene.paths, state, SLICE, upto)
            self.spent += int(plan.at[EVALS]) - before
        return True
