"""An anytime search: the launches of one seat in one turn, chosen one after another by what V says follows.

First a plan is built greedily (`plan.py`) as if nobody launched anything else. Then it is judged by what V says
after the opponents' answers (`reply.py`), and bettered in view of them: parts are taken back and filled anew while
the answers stand, and the new plan is kept if it is better after the answers to *it*. That goes on as long as the
budget lasts, or until it has failed PATIENCE times. The search never looks at comets that have not appeared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.errors import WeightsError
from td_loop.games.base import Budget, Decision
from td_loop.games.orbit_wars.aims import forget, make_aims
from td_loop.games.orbit_wars.calls import Calls, settled_calls
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.features import FEATURE_NAMES, N_FEATURES, Tally, make_tally
from td_loop.games.orbit_wars.forecast import Forecast, begin, make_forecast
from td_loop.games.orbit_wars.meter import Meter, Scene
from td_loop.games.orbit_wars.paths import PathTable, path_table
from td_loop.games.orbit_wars.plan import (
    MIN_GAIN,
    N_PLAN,
    SEAT,
    Judge,
    Plan,
    make_plan,
)
from td_loop.games.orbit_wars.propose import Pool, make_pool
from td_loop.games.orbit_wars.reply import Replies
from td_loop.games.orbit_wars.revise import (
    SHIPS,
    SRC,
    WAIT,
    Kept,
    make_kept,
)
from td_loop.games.orbit_wars.state import B1, EPISODE, Action, Position
from td_loop.kernels import layout
from td_loop.value.kernel import segment_of
from td_loop.value.model import SplineValue

WAVE = 64
"""Pairs looked at before the first launches are made, and again each time that nothing gains any more."""
PATIENCE = 200
"""Second thoughts in a row that brought nothing after which the search is content."""


class _Buffers(NamedTuple):
    forecast: Forecast
    pool: Pool
    plan: Plan
    kept: Kept
    tally: Tally
    row: npt.NDArray[np.float32]
    replies: Replies
    everywhere: B1


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
        self._calls: dict[tuple[Any, ...], Calls] = {}

    def __call__(self, pos: Position, seat: int, budget: Budget, rng: np.random.Generator) -> Decision[Action]:
        """The launches of `seat`; none if the clock ran out at once. `evals` alone repeats exactly."""
        meter = Meter(budget, self._clock)
        if meter.late():
            return Decision(np.zeros((0, 3)), 0)
        board, state = pos
        b = self._buffers_for(pos)
        paths = path_table(board)
        begin(b.forecast, board, paths, state)
        forget(b.pool.aims)
        coef = self.value.coef[segment_of(board.n_players)]
        judge = Judge(self.value.knots, coef, alive(pos), b.tally, b.row)
        scene = Scene(pos, paths, b.forecast, judge, self._calls_for(pos, paths, judge, b))
        scene.calls.start_plan(b.plan, b.pool, b.forecast, scene.judge, state, seat, b.everywhere, WAVE, MIN_GAIN)
        meter.spent = 1
        in_time = meter.grow(scene, b.plan, b.pool)
        if not in_time:
            scene.calls.close_plan(b.plan, b.pool, b.forecast)
        scene.calls.keep(b.kept, b.plan)
        if in_time and self._begin_replies(scene, b, seat, meter):
            self._think_again(scene, b, meter, rng)
        kept = b.kept
        now = np.flatnonzero(kept.launches[WAIT, : kept.n[0]] == 0)
        launches = (kept.launches[SRC, now], kept.angle[now], kept.launches[SHIPS, now])
        return Decision(np.column_stack(launches).astype(np.float64), meter.spent)

    def _begin_replies(self, scene: Scene, b: _Buffers, seat: int, meter: Meter) -> bool:
        """Judge the plan by the opponents' answers, which stay in the forecast; False when the budget ended."""
        scene.calls.send_kept(scene.forecast, seat, b.kept, -1)
        in_time = b.replies.begin(scene, seat, meter)
        scene.calls.send_kept(scene.forecast, seat, b.kept, 1)
        if not in_time or not self._judge(scene, b, meter):
            return False
        scene.calls.keep(b.kept, b.plan)
        b.replies.accept()
        return True

    def _judge(self, scene: Scene, b: _Buffers, meter: Meter) -> bool:
        """Set the plan's value to what the answers to it leave; they stay in the forecast. False: too late."""
        if not b.replies.answer(scene, b.plan, meter):
            return False
        b.plan.value[0] = scene.calls.log_odds(scene.forecast, scene.judge, b.plan.at[SEAT])
        meter.spent += 1
        return True

    def _think_again(self, scene: Scene, b: _Buffers, meter: Meter, rng: np.random.Generator) -> None:
        """Better the plan as long as the budget lasts. The best plan and the answers to it are in the forecast."""
        plan, pool, kept = b.plan, b.pool, b.kept
        failed = 0
        made = np.zeros(0, np.int64)  # the first time nothing is taken back: what do the answers ask for?
        while failed < PATIENCE and not meter.late():
            b.replies.unsettle(scene, plan, pool)
            out = rng.permutation(made)[: 1 + int(rng.integers(2))]
            scene.calls.take_back(plan, pool, scene.forecast, scene.judge, out)
            meter.spent += 1
            if failed:  # the longer nothing helps, the more of what was looked at is left out
                plan.banned[: pool.at[0]] |= rng.random(pool.at[0]) < failed / (2 * PATIENCE)
            in_time = meter.grow(scene, plan, pool)
            plan.banned[:] = False
            if not in_time:
                return
            b.replies.withdraw_standing(scene)
            if not self._judge(scene, b, meter):
                return
            if plan.value[0] > kept.value[0] + 1e-9:
                scene.calls.keep(kept, plan)
                b.replies.accept()
                failed = 0
            else:
                scene.calls.go_back(plan, scene.forecast, kept)
                b.replies.reinstate(scene)
                failed += 1
            made = np.unique(plan.made[: plan.at[N_PLAN]])

    def _calls_for(self, pos: Position, paths: PathTable, judge: Judge, b: _Buffers) -> Calls:
        """All but the position is of this search's own making, and always of the same types."""
        key = layout(pos.board) + layout(pos.state)
        if key not in self._calls:
            self._calls[key] = settled_calls(pos, paths, b.forecast, judge, b.plan, b.pool, b.kept, b.everywhere)
        return self._calls[key]

    def _buffers_for(self, pos: Position) -> _Buffers:
        key = pos.state.p_x.shape[0], int(pos.board.cfg[EPISODE])
        if key not in self._buffers:
            aims = make_aims(key[0])
            pool, theirs = make_pool(key[0], aims), make_pool(key[0], aims)
            self._buffers[key] = _Buffers(
                make_forecast(*key, self.value.gamma),
                pool,
                make_plan(pool),
                make_kept(),
                make_tally(),
                np.zeros((4, N_FEATURES), np.float32),
                Replies(theirs, make_plan(theirs), key[0]),
                np.ones(key[0], np.bool_),
            )
        return self._buffers[key]
