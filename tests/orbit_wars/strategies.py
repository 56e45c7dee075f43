"""Hypothesis strategies for positions and launches."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import with_room
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, NEXT_FLEET_ID, STEP, Position, copy_state

angles = st.floats(-7, 7)


@st.composite
def positions(draw: st.DrawFn, *, max_fleets: int = 12, production: bool = True) -> Position:
    """A map of some seed with any owners and garrisons, some way into the game, fleets anywhere on the board."""
    n_players = draw(st.sampled_from([2, 4]))
    pos = new_game(draw(st.integers(0, 60)), n_players)
    n_fleets = draw(st.integers(0, max_fleets))
    s = copy_state(with_room(pos.state, n_fleets))
    n = int(s.head[N_PLANETS])
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Any step, with planets where they stood at the start: the engine asks nothing else of a state.
    s.head[STEP] = draw(st.integers(0, 497))
    s.p_owner[:n] = rng.integers(-1, n_players, n)
    s.p_ships[:n] = rng.integers(0, 200, n)
    if not production:
        s.p_prod[:n] = 0
    s.head[N_FLEETS] = n_fleets
    s.head[NEXT_FLEET_ID] = n_fleets
    s.f_id[:n_fleets] = np.arange(n_fleets)
    s.f_owner[:n_fleets] = rng.integers(0, n_players, n_fleets)
    s.f_x[:n_fleets] = rng.uniform(0, 100, n_fleets)
    s.f_y[:n_fleets] = rng.uniform(0, 100, n_fleets)
    s.f_angle[:n_fleets] = rng.uniform(-math.pi, math.pi, n_fleets)
    s.f_from[:n_fleets] = rng.integers(0, n, n_fleets)
    s.f_ships[:n_fleets] = rng.integers(1, 1500, n_fleets)
    return Position(pos.board, s)


@st.composite
def moves(draw: st.DrawFn, n_players: int) -> np.ndarray:
    """[L, 4] launches in seat order, legal or not."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, n_players - 1).map(float),
                st.integers(-1, 40).map(float) | st.floats(allow_nan=True),
                angles | st.sampled_from([math.nan, math.inf]),
                st.integers(-2, 60).map(float) | st.floats(allow_nan=True),
            ),
            max_size=12,
        )
    )
    return np.array(sorted(rows, key=lambda r: r[0]), np.float64).reshape(-1, 4)
