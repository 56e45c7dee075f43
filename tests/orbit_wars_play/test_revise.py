from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.orbit_wars.aims import make_aims
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.features import N_FEATURES, make_tally
from td_loop.games.orbit_wars.forecast import Forecast, begin, forecast_for
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.plan import (
    DONE,
    EVALS,
    MIN_GAIN,
    N_PLAN,
    Judge,
    Plan,
    advance,
    log_odds,
    make_plan,
    start_plan,
)
from td_loop.games.orbit_wars.propose import Pool, make_pool
from td_loop.games.orbit_wars.revise import go_back, keep, make_kept, take_back
from td_loop.games.orbit_wars.state import Position
from td_loop.value.kernel import segment_of
from tests.orbit_wars_play.values import played, value_by_hand

PLENTY = 100_000


class Bench(NamedTuple):
    """A plan and all that it works with."""

    pos: Position
    plan: Plan
    pool: Pool
    fc: Forecast
    judge: Judge

    def fill(self, evals: int = PLENTY) -> None:
        """Add launches until none gains."""
        pos = self.pos
        while not self.plan.at[DONE] and self.plan.at[EVALS] < evals:
            advance(
                self.plan, self.pool, self.fc, self.judge, pos.board, path_table(pos.board), pos.state, 64, evals
            )


def bench(pos: Position, seat: int) -> Bench:
    """An empty plan for `seat`."""
    capacity = len(pos.state.p_x)
    fc, tally, pool, v = (
        forecast_for(pos, 0.97),
        make_tally(),
        make_pool(capacity, make_aims(capacity)),
        value_by_hand(),
    )
    begin(fc, pos.board, path_table(pos.board), pos.state)
    row = np.zeros((4, N_FEATURES), np.float32)
    judge = Judge(v.knots, v.coef[segment_of(pos.board.n_players)], alive(pos), tally, row)
    plan = make_plan(pool)
    start_plan(plan, pool, fc, judge, pos.state, seat, np.ones(capacity, np.bool_), 64, MIN_GAIN)
    return Bench(pos, plan, pool, fc, judge)


@settings(max_examples=40)
@given(played(), st.integers(0, 1))
def test_a_plan_is_worth_what_its_launches_gained_and_never_less_than_nothing(pos: Position, seat: int) -> None:
    b = bench(pos, seat)
    nothing = float(b.plan.value[0])
    b.fill()
    assert b.plan.value[0] >= nothing
    np.testing.assert_allclose(b.plan.value[0], log_odds(b.fc, b.judge, seat), rtol=1e-4, atol=1e-4)


@settings(max_examples=30)
@given(played(), st.integers(0, 1), st.data())
def test_second_thoughts_can_be_undone(pos: Position, seat: int, data: st.DataObject) -> None:
    b = bench(pos, seat)
    b.fill()
    if not b.plan.at[N_PLAN]:
        return
    kept = make_kept()
    keep(kept, b.plan)
    value, timelines = float(b.plan.value[0]), [a.copy() for a in b.fc]
    made = np.unique(b.plan.made[: b.plan.at[N_PLAN]])
    out = np.array(data.draw(st.lists(st.sampled_from(made.tolist()), min_size=1, max_size=2, unique=True)))
    before = int(b.plan.at[N_PLAN])
    take_back(b.plan, b.pool, b.fc, b.judge, out)
    assert b.plan.at[N_PLAN] < before
    np.testing.assert_allclose(b.plan.value[0], log_odds(b.fc, b.judge, seat))
    b.fill()
    n = b.plan.at[N_PLAN]
    new = b.plan.made[:n] > made.max()  # what was left in place may share a pair with what was taken back
    assert not b.plan.banned[b.plan.pair[:n][new]].any()
    go_back(b.plan, b.fc, kept)
    assert b.plan.value[0] == value
    for name, now, then in zip(b.fc._fields, b.fc, timelines, strict=True):
        if name != "ticks":  # scrap beyond n_ticks
            assert np.array_equal(now, then), name


@settings(max_examples=30)
@given(played(), st.integers(0, 1), st.integers(1, 200))
def test_evaluations_are_counted_and_never_exceed_the_limit(pos: Position, seat: int, evals: int) -> None:
    b = bench(pos, seat)
    b.fill(evals)
    assert b.plan.at[EVALS] <= evals
    assert b.plan.at[DONE] or b.plan.at[EVALS] == evals
