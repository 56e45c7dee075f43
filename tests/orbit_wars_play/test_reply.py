from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.aims import make_aims
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.features import N_FEATURES, make_tally
from td_loop.games.orbit_wars.forecast import begin, forecast_for
from td_loop.games.orbit_wars.meter import Meter, Scene
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.plan import MIN_GAIN, N_PLAN, Judge, log_odds, make_plan, start_plan
from td_loop.games.orbit_wars.propose import make_pool
from td_loop.games.orbit_wars.reply import Replies
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import N_FLEETS, Position, copy_state
from td_loop.value.kernel import segment_of
from tests.orbit_wars_play.values import played, value_by_hand


def scene_of(pos: Position) -> Scene:
    """All that the plans of a decision share."""
    v, tally, fc = value_by_hand(), make_tally(), forecast_for(pos, 0.97)
    begin(fc, pos.board, path_table(pos.board), pos.state)
    row = np.zeros((4, N_FEATURES), np.float32)
    judge = Judge(v.knots, v.coef[segment_of(pos.board.n_players)], alive(pos), tally, row)
    return Scene(pos, path_table(pos.board), fc, judge)


def timelines(scene: Scene) -> list[np.ndarray]:
    """The forecast without what is scrap."""
    return [a.copy() for name, a in zip(scene.forecast._fields, scene.forecast, strict=True) if name != "ticks"]


@settings(max_examples=30)
@given(played(), st.integers(0, 1), st.integers(1, 400))
def test_answers_come_and_go_without_a_trace(pos: Position, seat: int, evals: int) -> None:
    scene, capacity = scene_of(pos), len(pos.state.p_x)
    aims = make_aims(capacity)
    pools = [make_pool(capacity, aims) for _ in range(2)]
    mine, theirs = (make_plan(p) for p in pools)
    everywhere = np.ones(capacity, np.bool_)
    start_plan(mine, pools[0], scene.forecast, scene.judge, pos.state, seat, everywhere, 64, MIN_GAIN)
    meter = Meter(Budget(evals=evals), lambda: 0.0)
    replies = Replies(pools[1], theirs, capacity)
    before = timelines(scene)
    ready = replies.begin(scene, seat, meter)
    assert all(np.array_equal(a, b) for a, b in zip(timelines(scene), before, strict=True))
    if not ready:
        assert meter.late()
        return
    meter.grow(scene, mine, pools[0])
    planned, value = timelines(scene), log_odds(scene.forecast, scene.judge, seat)
    if replies.answer(scene, mine, meter):
        answered = timelines(scene)
        replies.accept()
        replies.withdraw_standing(scene)
        assert all(np.array_equal(a, b) for a, b in zip(timelines(scene), planned, strict=True))
        assert log_odds(scene.forecast, scene.judge, seat) == value
        if replies.answer(scene, mine, meter):  # the same question, the same answer
            assert all(np.array_equal(a, b) for a, b in zip(timelines(scene), answered, strict=True))
            replies.reinstate(scene)
            assert all(np.array_equal(a, b) for a, b in zip(timelines(scene), answered, strict=True))
            replies.withdraw_standing(scene)
    assert all(np.array_equal(a, b) for a, b in zip(timelines(scene), planned, strict=True))
    assert meter.spent <= evals
    assert mine.at[N_PLAN] >= 0


def test_an_answer_takes_what_a_plan_leaves_open() -> None:
    """A planet stripped of its ships beside a strong opponent falls in the answer."""
    pos = new_game(5, 2)
    s = copy_state(pos.state)
    fixed = [i for i in range(len(pos.board.home_x)) if not pos.board.rotates[i]]
    a, b = min(
        itertools.combinations(fixed, 2),
        key=lambda p: np.hypot(s.p_x[p[0]] - s.p_x[p[1]], s.p_y[p[0]] - s.p_y[p[1]]),
    )
    s.p_owner[:], s.p_ships[:] = -1, 500
    s.p_owner[[a, b]], s.p_ships[[a, b]], s.head[N_FLEETS] = (0, 1), (60, 50), 0
    scene, capacity = scene_of(Position(pos.board, s)), len(s.p_x)
    aims = make_aims(capacity)
    pools = [make_pool(capacity, aims) for _ in range(2)]
    mine, theirs = (make_plan(p) for p in pools)
    replies, meter = Replies(pools[1], theirs, capacity), Meter(Budget(evals=10_000), lambda: 0.0)
    assert replies.begin(scene, 0, meter)
    start_plan(mine, pools[0], scene.forecast, scene.judge, s, 0, np.zeros(capacity, np.bool_), 64, MIN_GAIN)
    mine.src[0], mine.dst[0], mine.at[N_PLAN] = a, b, 1
    scene.forecast.ships[a] -= 58
    assert replies.answer(scene, mine, meter)
    assert scene.forecast.owner_at[2, a] == 1


def test_a_search_spends_what_it_is_given() -> None:
    """More evaluations are used, not returned: second thoughts go on."""
    pos = new_game(5, 2)
    s = copy_state(pos.state)
    s.p_ships[s.p_owner >= 0] = 90
    search = OrbitSearch(value_by_hand())
    decision = search(Position(pos.board, s), 0, Budget(evals=4000), np.random.default_rng(0))
    assert decision.evals == 4000
