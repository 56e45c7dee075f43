"""An anytime search: the launches of one seat in one turn, chosen one after another by what V says follows.

First a plan is built greedily (`plan.py`), then parts of it are taken back and filled anew (`revise.py`) as long
as the budget lasts or until that has failed PATIENCE times. It assumes that nobody launches anything else, and
never looks at comets that have not appeared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.errors import WeightsError
from td_loop.games.base import Budget, Decision
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.features import FEATURE_NAMES, N_FEATURES, Lay, make_lay, survey
from td_loop.games.orbit_wars.forecast import Forecast, begin, make_forecast
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.plan import (
    DONE,
    EVALS,
    N_PLAN,
    Judge,
    Plan,
    advance,
    close_plan,
    make_plan,
    start_plan,
)
from td_loop.games.orbit_wars.propose import Pool, make_pool
from td_loop.games.orbit_wars.revise import SHIPS, SRC, WAIT, Kept, go_back, keep, make_kept, take_back
from td_loop.games.orbit_wars.state import EPISODE, Action, Position
from td_loop.value.kernel import segment_of
from td_loop.value.model import SplineValue

SLICE = 192
"""Steps between two looks at the clock: a step takes about a microsecond, seldom ten."""
PATIENCE = 24
"""Second thoughts in a row that brought nothing after which the search is content."""
UNLIMITED = 1 << 60


class _Buffers(NamedTuple):
    forecast: Forecast
    pool: Pool
    plan: Plan
    kept: Kept
    lay: Lay
    row: npt.NDArray[np.float32]


class OrbitSearch:
    """A search under one value function. Keeps its buffers between calls: one per thread.

    Args:
        value: the value function.
        clock: seconds, for budgets in seconds.

    Raises:
        WeightsError: the value function is of other features.
    """

    def __init__(self, value: SplineValue, clock: Callable[[], float] = time.perf_counter) -> None:
        if value.feature_names != FEATURE_NAMES:  # kernels index by position: never let it pass
            raise WeightsError("a search of orbit_wars needs weights of its features; fit some with `td-loop fit`")
        self.value = value
        self._clock = clock
        self._buffers: dict[tuple[int, int], _Buffers] = {}

    def __call__(self, pos: Position, seat: int, budget: Budget, rng: np.random.Generator) -> Decision[Action]:
        """The launches of `seat`; none if the clock ran out at once. `evals` alone repeats exactly."""
        evals = UNLIMITED if budget.evals is None else budget.evals
        until = math.inf if budget.seconds is None else self._clock() + budget.seconds
        if self._clock() >= until:
            return Decision(np.zeros((0, 3)), 0)
        board, state = pos
        b = self._buffers_for(pos)
        paths = path_table(board)
        begin(b.forecast, board, paths, state)
        survey(b.lay, state)
        coef = self.value.coef[segment_of(board.n_players)]
        judge = Judge(self.value.knots, coef, alive(pos), b.lay, b.row)
        plan, kept = b.plan, b.kept
        start_plan(plan, b.pool, b.forecast, judge, state, seat)

        def fill() -> bool:
            """Add launches until none gains; False when the budget ends first."""
            while not plan.at[DONE]:
                if plan.at[EVALS] >= evals or self._clock() >= until:
                    return False
                advance(plan, b.pool, b.forecast, judge, board, paths, state, SLICE, evals)
            return True

        going = fill()
        if not going:
            close_plan(plan, b.pool, b.forecast)
        keep(kept, plan)
        failed = 0
        while going and failed < PATIENCE and kept.n[0] and plan.at[EVALS] < evals:
            made = np.unique(plan.made[: plan.at[N_PLAN]])
            out = rng.choice(made, size=min(len(made), 1 + int(rng.integers(2))), replace=False)
            take_back(plan, b.pool, b.forecast, judge, out)
            going = fill()
            plan.banned[:] = False
            if plan.value[0] > kept.value[0] + 1e-9:
                keep(kept, plan)
                failed = 0
            else:
                failed += 1
                go_back(plan, b.forecast, kept)
        now = np.flatnonzero(kept.launches[WAIT, : kept.n[0]] == 0)
        launches = (kept.launches[SRC, now], kept.angle[now], kept.launches[SHIPS, now])
        return Decision(np.column_stack(launches).astype(np.float64), int(plan.at[EVALS]))

    def _buffers_for(self, pos: Position) -> _Buffers:
        key = pos.state.p_x.shape[0], int(pos.board.cfg[EPISODE])
        if key not in self._buffers:
            pool = make_pool(key[0])
            forecast = make_forecast(*key, self.value.gamma)
            row = np.zeros((4, N_FEATURES), np.float32)
            self._buffers[key] = _Buffers(forecast, pool, make_plan(pool), make_kept(), make_lay(key[0]), row)
        return self._buffers[key]
