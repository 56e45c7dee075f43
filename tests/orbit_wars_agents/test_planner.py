from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.aim import LAUNCH_GAP, trace
from td_loop.games.orbit_wars.forecast import (
    TICKS,
    Forecast,
    add_arrival,
    begin,
    forecast_for,
    holding,
    shortfall,
)
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.state import N_PLANETS, Position
from tests.orbit_wars_agents.positions import GAMES, TURNS, positions


def forecast_of(position: Position) -> Forecast:
    fc = forecast_for(position, 0.97)
    begin(fc, position.board, path_table(position.board), position.state)
    return fc


def holds(fc: Forecast, planet: int, seat: int, eta: int, until: int) -> bool:
    return all(holding(fc, planet, tick)[0] == seat for tick in range(eta, until + 1))


@settings(max_examples=200)
@given(st.sampled_from(GAMES), st.integers(0, TURNS), st.integers(0, 43), st.integers(1, 40), st.integers(0, 3))
def test_shortfall_is_exactly_what_is_missing(
    game: tuple[int, int], turn: int, planet: int, eta: int, seat: int
) -> None:
    frames = positions(*game)
    position = frames[min(turn, len(frames) - 1)]
    assume(planet < position.state.head[N_PLANETS] and seat < game[1])
    fc = forecast_of(position)
    until = int(min(fc.span[TICKS], fc.gone[planet] - 1))
    assume(eta <= until)
    missing, since, holder = shortfall(fc, planet, seat, eta, until)
    assert (missing == 0) == holds(fc, planet, seat, eta, until)
    if missing == 0:
        return
    assert holding(fc, planet, since)[0] == holder != seat
    assert since == eta or holds(fc, planet, seat, eta, since - 1)
    # Alone in its tick, a fleet of that size closes the gap, and one ship fewer does not take it.
    if not fc.arrivals[planet, eta].any() and since == eta:
        add_arrival(fc, planet, eta, seat, missing)
        assert holding(fc, planet, eta)[0] == seat
        add_arrival(fc, planet, eta, seat, -1)
        assert holding(fc, planet, eta)[0] != seat


def test_planned_launches_reach_a_planet() -> None:
    rng = np.random.default_rng(0)
    seen = 0
    for game in GAMES:
        for position in positions(*game)[::7]:
            board, state = position
            paths = path_table(board)
            for seat in range(game[1]):
                for p, angle, ships in AGENTS["balanced"](position, seat, rng):
                    start = state.p_radius[int(p)] + LAUNCH_GAP
                    x = state.p_x[int(p)] + np.cos(angle) * start
                    y = state.p_y[int(p)] + np.sin(angle) * start
                    _, where = trace(board, paths, state, x, y, angle, int(ships))
                    assert where >= 0
                    assert where != int(p)
                    seen += 1
    assert seen > 50
