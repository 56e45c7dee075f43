from __future__ import annotations

import gc
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.errors import WeightsError
from td_loop.games.base import Budget
from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import outcome, step
from td_loop.games.orbit_wars.features import N_FEATURES
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.meter import SLICE
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import DONE, N_FLEETS, N_PLANETS, STEP, Action, Position, copy_state
from tests.orbit_wars_agents.positions import GAMES, positions
from tests.orbit_wars_play.values import played, value_by_hand

SEARCH = OrbitSearch(value_by_hand())


def decide(pos: Position, seat: int, evals: int = 150, seed: int = 0) -> Action:
    return SEARCH(pos, seat, Budget(evals=evals), np.random.default_rng(seed)).action


@settings(max_examples=150)
@given(played(), st.integers(0, 3), st.integers(1, 150))
def test_launches_are_legal_and_take_effect(pos: Position, seat: int, evals: int) -> None:
    seat %= pos.board.n_players
    decision = SEARCH(pos, seat, Budget(evals=evals), np.random.default_rng(0))
    assert decision.evals <= evals
    action, s = decision.action, pos.state
    assert action.shape == (len(action), 3)
    assert np.isfinite(action).all()
    planets, ships = action[:, 0].astype(int), action[:, 2].astype(int)
    assert (planets == action[:, 0]).all()
    assert (ships == action[:, 2]).all()
    assert (ships >= 1).all()
    assert (s.p_owner[planets] == seat).all()
    spent = np.bincount(planets, ships, minlength=len(s.p_ships))
    assert (spent <= s.p_ships).all()
    made = GAME.partial(pos, seat, action, len(action)).state
    assert made.head[N_FLEETS] == s.head[N_FLEETS] + len(action)


def test_real_games_too(real_replays_store: list[Position]) -> None:
    for pos in real_replays_store:
        for seat in range(pos.board.n_players):
            action = decide(pos, seat, 60)
            made = GAME.partial(pos, seat, action, len(action)).state
            assert made.head[N_FLEETS] == pos.state.head[N_FLEETS] + len(action)


def test_states_that_no_game_comes_to_get_legal_launches_too() -> None:
    rng = np.random.default_rng(5)
    launched = 0
    for k in range(2000):
        game = GAMES[k % len(GAMES)]
        frames = positions(*game)
        pos = frames[int(rng.integers(len(frames)))]
        s = copy_state(pos.state)
        n, f = int(s.head[N_PLANETS]), int(s.head[N_FLEETS])
        s.p_owner[:n] = rng.integers(-1, game[1], n)
        s.p_ships[:n] = np.exp(rng.uniform(0.0, 6.0, n)).astype(np.int64) - 1
        s.f_owner[:f] = rng.integers(0, game[1], f)
        s.f_angle[:f] = rng.uniform(-np.pi, np.pi, f)
        spoilt = Position(pos.board, s)
        seat = int(rng.integers(game[1]))
        action = decide(spoilt, seat, int(rng.integers(1, 60)), seed=k)
        made = GAME.partial(spoilt, seat, action, len(action)).state
        assert made.head[N_FLEETS] == f + len(action)
        launched += len(action)
    assert launched > 1000


@settings(max_examples=30)
@given(played(), st.integers(0, 1), st.integers(1, 400))
def test_an_evaluation_budget_repeats_exactly(pos: Position, seat: int, evals: int) -> None:
    first = OrbitSearch(value_by_hand())(pos, seat, Budget(evals=evals), np.random.default_rng(3))
    # The same search object after other work, too: nothing may be left over from call to call.
    decide(pos, 1 - seat, 77, seed=9)
    second = SEARCH(pos, seat, Budget(evals=evals), np.random.default_rng(3))
    assert first.evals == second.evals
    assert np.array_equal(first.action, second.action)


@pytest.mark.parametrize("budget", [Budget(seconds=1e-12), Budget(seconds=1e-12, evals=100)])
def test_no_time_no_launch(budget: Budget) -> None:
    decision = SEARCH(positions(11, 2)[60], 0, budget, np.random.default_rng(0))
    assert decision.action.shape == (0, 3)
    assert decision.evals == 0


def test_the_clock_is_looked_at_between_short_slices() -> None:
    """However slow the clock says it is, a search takes few steps after time is up, and has an answer."""
    pos = positions(11, 2)[100]
    for looks in (1, 2, 5, 20):
        ticks = itertools.count()
        search = OrbitSearch(value_by_hand(), clock=lambda ticks=ticks: float(next(ticks)))
        decision = search(pos, 0, Budget(seconds=looks + 0.5), np.random.default_rng(0))
        assert next(ticks) <= looks + 3
        assert decision.evals <= (SLICE + 1) * (looks + 1)
        assert len(decision.action) <= decision.evals


@settings(max_examples=20)
@given(st.sampled_from([20, 40, 49, 60, 100]), st.integers(0, 1), st.integers(0, 5))
def test_it_never_peeks_at_comets_to_come(turn: int, seat: int, seed: int) -> None:
    pos = positions(11, 2)[turn]
    board = pos.board
    to_come = board.comet_spawn > pos.state.head[STEP]
    assert to_come.any()
    rng = np.random.default_rng(seed)
    x, length, ships = board.comet_x.copy(), board.comet_len.copy(), board.comet_ships.copy()
    x[to_come] = rng.uniform(0, 100, x[to_come].shape)
    length[to_come] = rng.integers(5, 40)
    ships[to_come] = rng.integers(1, 99)
    other = Position(board._replace(comet_x=x, comet_len=length, comet_ships=ships), pos.state)
    assert np.array_equal(decide(pos, seat, 300), decide(other, seat, 300))


@settings(max_examples=40)
@given(played(), st.integers(0, 1), st.integers(0, 10**6))
def test_a_search_that_was_content_early_decides_the_same_with_more_budget(
    pos: Position, seat: int, extra: int
) -> None:
    once = SEARCH(pos, seat, Budget(evals=3000), np.random.default_rng(0))
    if once.evals < 3000:
        again = SEARCH(pos, seat, Budget(evals=3000 + extra), np.random.default_rng(0))
        assert again.evals == once.evals
        assert np.array_equal(again.action, once.action)


def test_a_budget_too_small_for_all_candidates_still_launches() -> None:
    pos = positions(11, 2)[60]
    assert len(decide(pos, 0, 3000))
    assert any(len(decide(pos, 0, evals)) for evals in range(2, 12))


def test_a_planet_about_to_fall_is_helped() -> None:
    pos = new_game(5, 2)
    s = copy_state(pos.state)
    n = int(s.head[N_PLANETS])
    mine = [i for i in range(n) if not pos.board.rotates[i]][:4]
    s.p_owner[:n] = -1
    s.p_ships[:n] = 500  # neutrals too strong for anybody
    s.p_owner[mine] = 0
    s.p_ships[mine] = [10, 60, 60, 60]
    s.p_owner[n - 1] = 1
    # 30 enemy ships, straight at the weak planet, some ticks away
    weak = mine[0]
    toward = np.arctan2(50.0 - s.p_y[weak], 50.0 - s.p_x[weak]) + 0.9
    s.head[N_FLEETS] = 1
    s.f_owner[0], s.f_ships[0], s.f_id[0], s.f_from[0] = 1, 60, 0, n - 1
    s.f_x[0], s.f_y[0] = s.p_x[weak] + 30 * np.cos(toward), s.p_y[weak] + 30 * np.sin(toward)
    s.f_angle[0] = toward + np.pi
    threatened = Position(pos.board, s)
    now = Position(pos.board, copy_state(s))
    for _ in range(30):
        now = step(now, [None, None])
    assert now.state.p_owner[weak] == 1  # it does fall if nobody helps
    now = step(threatened, [decide(threatened, 0, 2000), None])
    for _ in range(30):
        now = step(now, [None, None])
    assert now.state.p_owner[weak] == 0


def test_it_beats_the_starter_agent() -> None:
    """Not a measure of strength (see benchmarks): only that the search, the engine and V fit together."""
    won = 0.0
    for seed in range(3):
        pos, me = new_game(40 + seed, 2), seed % 2
        rng = np.random.default_rng(seed)
        while not pos.state.head[DONE] and pos.state.head[STEP] < 250:
            actions = [AGENTS["starter"](pos, s, rng) if s != me else decide(pos, s, 150) for s in range(2)]
            pos = step(pos, actions)
        held = outcome(pos)
        if held is None:
            points = [int(pos.state.p_prod[pos.state.p_owner == s].sum()) for s in range(2)]
            won += points[me] > points[1 - me]
        else:
            won += held[me]
    assert won >= 2.0


def test_decisions_leave_nothing_behind() -> None:
    """Buffers are made once: many more decisions hold no more arrays."""
    pos = positions(11, 2)[60]
    arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    held = []
    tracemalloc.start()
    for _ in range(2):
        for _ in range(100):
            decide(pos, 0, 200)
        gc.collect()
        traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
        held.append(sum(trace.size for trace in traces))
    tracemalloc.stop()
    assert held[1] - held[0] < 4096


def test_a_seat_that_will_be_alone_has_won() -> None:
    """The last planet of the last opponent is worth more than anything else."""
    pos = new_game(5, 2)
    s = copy_state(pos.state)
    n = int(s.head[N_PLANETS])
    fixed = [i for i in range(n) if not pos.board.rotates[i]]
    a, b = min(
        itertools.combinations(fixed, 2),
        key=lambda p: np.hypot(s.p_x[p[0]] - s.p_x[p[1]], s.p_y[p[0]] - s.p_y[p[1]]),
    )
    s.p_owner[:n], s.p_ships[:n] = 0, 3
    s.p_owner[b], s.p_ships[b], s.p_ships[a] = 1, 20, 200
    last_stand = Position(pos.board, s)
    while not last_stand.state.head[DONE] and last_stand.state.head[STEP] < 25:
        last_stand = step(last_stand, [decide(last_stand, 0, 300), None])
    held = outcome(last_stand)
    assert held is not None
    assert held[0] == 1.0


def test_weights_of_other_features_are_refused() -> None:
    v = value_by_hand()
    with pytest.raises(WeightsError, match="features"):
        OrbitSearch(type(v)(v.knots, v.coef, tuple(f"x{i}" for i in range(N_FEATURES)), v.meta))
