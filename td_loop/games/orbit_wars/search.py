"""An anytime search: the launches of one seat in one turn, chosen one after another by what V says follows.

It assumes that nobody launches anything else (the forecast), and never looks at comets that have not appeared.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from td_loop.games.base import Budget, Decision
from td_loop.games.orbit_wars.features import N_FEATURES, make_lay, survey
from td_loop.games.orbit_wars.forecast import begin, make_forecast
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.plan import DONE, EVALS, N_PLAN, Judge, Plan, advance, make_plan, start_plan
from td_loop.games.orbit_wars.propose import make_pool
from td_loop.games.orbit_wars.state import EPISODE, N_FLEETS, N_PLANETS, Action, Position
from td_loop.value.kernel import segment_of
from td_loop.value.model import SplineValue

SLICE = 32
"""Steps between two looks at the clock: well under a millisecond."""


def no_launch() -> Action:
    """The action that launches nothing."""
    return np.zeros((0, 3))


class OrbitSearch:
    def __init__(self, value: SplineValue, clock: Callable[[], float] = time.perf_counter) -> None:
        self.value = value
        self.clock = clock
        self._buffers = {}

    def __call__(self, pos: Position, seat: int, budget: Budget, rng: np.random.Generator) -> Decision[Action]:
        started = self.clock()
        board, state = pos
        limit = 1 << 60 if budget.evals is None else budget.evals
        until = np.inf if budget.seconds is None else started + budget.seconds
        if limit <= 0 or self.clock() >= until:
            return Decision(no_launch(), 0)
        C = state.p_x.shape[0]
        key = (C, int(board.cfg[EPISODE]))
        if key not in self._buffers:
            pool = make_pool(C)
            self._buffers[key] = (make_forecast(C, key[1], self.value.gamma), pool, make_plan(pool), make_lay(C), np.zeros((4, N_FEATURES), np.float32))
        fc, pool, plan, lay, row = self._buffers[key]
        paths = path_table(board)
        alive = np.zeros(4, np.bool_)
        o = state.p_owner[: state.head[N_PLANETS]]
        alive[o[o >= 0]] = True
        alive[state.f_owner[: state.head[N_FLEETS]]] = True
        begin(fc, board, paths, state)
        survey(lay, state)
        judge = Judge(self.value.knots, self.value.coef[segment_of(board.n_players)], alive, lay, row)
        start_plan(plan, pool, fc, judge, state, seat)
        while not plan.at[DONE] and plan.at[EVALS] < limit and self.clock() < until:
            advance(plan, pool, fc, judge, board, paths, state, SLICE, limit)
        n = plan.at[N_PLAN]
        return Decision(np.stack([plan.src[:n].astype(float), plan.angle[:n], plan.ships[:n].astype(float)], 1), int(plan.at[EVALS]))
