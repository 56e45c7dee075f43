"""What the opponents are likely to do about a plan: each answers greedily, under the same value function.

An answer looks at the planets that the plan touches and at those that the opponent would go for if nobody did
anything. It is made as if in the same turn; in truth it comes one turn later.
"""

from __future__ import annotations

import numpy as np

from td_loop.games.orbit_wars.meter import Meter, Scene
from td_loop.games.orbit_wars.plan import DONE, MIN_GAIN, N_PLAN, Plan
from td_loop.games.orbit_wars.propose import Pool
from td_loop.games.orbit_wars.revise import DST, Kept, make_kept

EXPECT_EVALS = 160
"""Evaluations spent on what one opponent would do by himself."""
ANSWER_EVALS = 80
"""Evaluations spent on the answer of one opponent."""
WAVE = 20
"""Pairs that an answer looks at before it makes its first launches."""


class Replies:
    """The opponents of one seat, who answer one plan after the other.

    Two sets of answers are held: the standing ones, to the best plan so far, and the latest ones. Either is in the
    forecast only between the calls that put it there and take it away.

    Args:
        pool: scratch.
        plan: scratch.
        capacity: C, planets that a board may have.
    """

    def __init__(self, pool: Pool, plan: Plan, capacity: int) -> None:
        self._pool, self._plan = pool, plan
        self._standing = [make_kept() for _ in range(4)]
        self._latest = [make_kept() for _ in range(4)]
        self._natural = np.zeros((4, capacity), np.bool_)
        self._targets = np.zeros(capacity, np.bool_)
        self._opponents: list[int] = []

    def begin(self, scene: Scene, seat: int, meter: Meter) -> bool:
        """Find out what each opponent of `seat` goes for if nobody else does anything; False: too late."""
        self._opponents = [s for s in range(scene.pos.board.n_players) if s != seat and scene.judge.alive[s]]
        self._natural[:] = False
        self._targets[:] = True
        for kept in (*self._standing, *self._latest):
            kept.n[0] = 0
        for o in self._opponents:
            wish = self._latest[o]
            if not self._answer_of(scene, o, EXPECT_EVALS, wish, meter):
                return False
            scene.calls.send_kept(scene.forecast, o, wish, -1)
            self._natural[o, wish.launches[DST, : wish.n[0]]] = True
        return True

    def answer(self, scene: Scene, plan: Plan, meter: Meter) -> bool:
        """Let every opponent answer `plan`, whose launches are in the forecast. The answers stay in it.

        Returns:
            False when the budget ended: then no answers are in the forecast.
        """
        n = plan.at[N_PLAN]
        for k, o in enumerate(self._opponents):
            self._targets[:] = self._natural[o]
            self._targets[plan.dst[:n]] = True
            self._targets[plan.src[:n]] = True
            if not self._answer_of(scene, o, ANSWER_EVALS, self._latest[o], meter):
                for before in self._opponents[:k]:
                    scene.calls.send_kept(scene.forecast, before, self._latest[before], -1)
                return False
        return True

    def accept(self) -> None:
        """The latest answers, in the forecast, are from now on the standing ones."""
        self._standing, self._latest = self._latest, self._standing

    def withdraw_standing(self, scene: Scene) -> None:
        """Take the standing answers out of the forecast."""
        for o in self._opponents:
            scene.calls.send_kept(scene.forecast, o, self._standing[o], -1)

    def reinstate(self, scene: Scene) -> None:
        """Take the latest answers out of the forecast and put the standing ones there."""
        for o in self._opponents:
            scene.calls.send_kept(scene.forecast, o, self._latest[o], -1)
        for o in self._opponents:
            scene.calls.send_kept(scene.forecast, o, self._standing[o], 1)

    def unsettle(self, scene: Scene, plan: Plan, pool: Pool) -> None:
        """Have `plan` reconsider the planets on which answers came or went."""
        for o in self._opponents:
            scene.calls.reconsider(plan, pool, self._standing[o])
            scene.calls.reconsider(plan, pool, self._latest[o])

    def _answer_of(self, scene: Scene, o: int, evals: int, kept: Kept, meter: Meter) -> bool:
        """Let `o` make launches towards `_targets`; they stay in the forecast unless the budget ends (False)."""
        if meter.late():
            return False
        pool, plan, fc = self._pool, self._plan, scene.forecast
        scene.calls.start_plan(plan, pool, fc, scene.judge, scene.pos.state, o, self._targets, WAVE, MIN_GAIN)
        meter.spent += 1
        in_time = meter.grow(scene, plan, pool, evals)
        if in_time and not plan.at[DONE]:
            scene.calls.close_plan(plan, pool, fc)
        scene.calls.keep(kept, plan)
        if not in_time:
            scene.calls.send_kept(fc, o, kept, -1)
        return in_time
