from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from td_loop.games.orbit_wars.aim import EXPIRED, FLYING, LAUNCH_GAP, OUT, SUN, aim, trace
from td_loop.games.orbit_wars.engine import step
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.state import EPISODE, N_FLEETS, N_PLANETS, STEP, Position, copy_state
from td_loop.games.orbit_wars.turn import advance, make_scratch
from tests.orbit_wars_agents.positions import GAMES, TURNS, known_only, positions, without_fleets

NO_MOVES = np.zeros((0, 4))


@st.composite
def any_position(draw: st.DrawFn) -> Position:
    """Some turn of some game, without comets to come."""
    game = positions(*draw(st.sampled_from(GAMES)))
    return known_only(game[min(draw(st.integers(0, TURNS)), len(game) - 1)])


def armed(position: Position, src: int, ships: int) -> Position:
    """Nothing under way, and `ships` of seat 0 on planet `src`."""
    position = without_fleets(position)
    position.state.p_owner[src] = 0
    position.state.p_ships[src] = ships
    return position


def landing(position: Position, moves: list[tuple[int, float, int]]) -> tuple[int, int | None]:
    """(ticks, planet) of the only fleet, by the engine; None for the planet when it was lost."""
    state = step(position, [np.array(moves, np.float64).reshape(-1, 3)]).state
    idle = step(position, [None]).state
    eta = 1
    board = position.board
    while state.head[N_FLEETS]:
        state = step(Position(board, state), [None]).state
        idle = step(Position(board, idle), [None]).state
        eta += 1
    src = int(moves[0][0])
    n = int(state.head[N_PLANETS])
    differs = (state.p_owner[:n] != idle.p_owner[:n]) | (state.p_ships[:n] != idle.p_ships[:n])
    differs[src:][:1] = False  # unless it was a comet and has left meanwhile
    hit = np.flatnonzero(differs)
    return eta, int(hit[0]) if len(hit) else None


@settings(max_examples=150)
@given(any_position(), st.integers(0, 43), st.integers(0, 43), st.integers(1, 1200))
def test_a_fleet_lands_on_the_planet_and_in_the_tick_that_aim_promised(
    position: Position, src: int, dst: int, ships: int
) -> None:
    n = int(position.state.head[N_PLANETS])
    assume(src < n and dst < n)
    position = armed(position, src, ships)
    board, state = position
    ok, angle, eta = aim(board, path_table(board), state, src, dst, ships)
    assume(ok)
    assert angle == float(np.float32(angle))
    assert eta >= 1
    assert state.head[STEP] + eta < board.cfg[EPISODE]
    assert landing(position, [(src, angle, ships)]) == (eta, dst)


def test_aim_finds_most_of_what_trying_all_angles_finds() -> None:
    rng = np.random.default_rng(5)
    open_ways = found = 0
    for _ in range(200):
        game = positions(*GAMES[rng.integers(len(GAMES))])
        board, state = known_only(game[rng.integers(len(game))])
        src, dst = rng.choice(int(state.head[N_PLANETS]), 2, replace=False)
        ships = int(rng.integers(1, 200))
        paths = path_table(board)
        start = state.p_radius[src] + LAUNCH_GAP
        hits = 0
        for angle in np.linspace(-math.pi, math.pi, 720, endpoint=False):
            x = state.p_x[src] + math.cos(angle) * start
            y = state.p_y[src] + math.sin(angle) * start
            hits += trace(board, paths, state, x, y, angle, ships)[1] == dst
        if hits >= 2:
            open_ways += 1
            found += aim(board, paths, state, src, dst, ships)[0]
    assert open_ways > 100
    assert found >= 0.95 * open_ways


def test_aim_refuses_nonsense() -> None:
    board, state = positions(*GAMES[0])[30]
    paths = path_table(board)
    assert aim(board, paths, state, 3, 3, 20) == (False, 0.0, 0)
    assert aim(board, paths, state, 3, 4, 0) == (False, 0.0, 0)


@settings(max_examples=60)
@given(any_position())
def test_traces_of_all_fleets_add_up_to_what_the_engine_lands(position: Position) -> None:
    board, state = position
    paths = path_table(board)
    left = int(board.cfg[EPISODE]) - 1 - int(state.head[STEP])
    n_planets = int(state.head[N_PLANETS])
    promised: dict[tuple[int, int, int], int] = {}
    gone = np.zeros(left + 2, np.int64)
    for f in range(int(state.head[N_FLEETS])):
        eta, where = trace(
            board, paths, state, state.f_x[f], state.f_y[f], state.f_angle[f], int(state.f_ships[f])
        )
        assert where in range(n_planets) or where in (FLYING, SUN, OUT, EXPIRED)
        gone[eta] += 1
        if where >= 0:
            key = (eta, where, int(state.f_owner[f]))
            promised[key] = promised.get(key, 0) + int(state.f_ships[f])
    under_way = int(state.head[N_FLEETS])
    s = copy_state(state)
    w = make_scratch(len(s.p_owner))
    landed: dict[tuple[int, int, int], int] = {}
    for tick in range(1, left + 1):
        if not s.head[N_FLEETS]:
            break
        leaving = [int(g) >= 0 and s.comet_at[g] + 1 >= board.comet_len[g] for g in s.p_comet[: s.head[N_PLANETS]]]
        advance(board, s, NO_MOVES, 0, 0, w)
        for planet, last_tick in enumerate(leaving):
            for seat in range(4):
                if w.arrivals[planet, seat] and not last_tick:
                    landed[tick, planet, seat] = int(w.arrivals[planet, seat])
        under_way -= gone[tick]
        assert s.head[N_FLEETS] == under_way
    assert promised == landed


@settings(max_examples=100)
@given(any_position(), st.floats(-7.0, 7.0), st.integers(0, 43), st.integers(1, 500))
def test_a_shot_in_any_direction_ends_where_trace_says(
    position: Position, angle: float, src: int, ships: int
) -> None:
    assume(src < position.state.head[N_PLANETS])
    position = armed(position, src, ships)
    board, state = position
    start = state.p_radius[src] + LAUNCH_GAP
    x = float(state.p_x[src] + math.cos(angle) * start)
    y = float(state.p_y[src] + math.sin(angle) * start)
    eta, where = trace(board, path_table(board), state, x, y, angle, ships)
    assume(where not in (FLYING, src))
    assert landing(position, [(src, angle, ships)]) == (eta, where if where >= 0 else None)
