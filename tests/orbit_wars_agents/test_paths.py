from __future__ import annotations

import numpy as np
import pytest

from td_loop.games.orbit_wars.board import new_game, planet_xy
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.state import EPISODE_STEPS
from tests.orbit_wars_agents.positions import GAMES, positions


@pytest.mark.parametrize(("seed", "n_players"), GAMES)
def test_the_table_shows_every_planet_where_the_engine_puts_it(seed: int, n_players: int) -> None:
    game = positions(seed, n_players)
    table = path_table(game[0].board)
    homes = len(game[0].board.home_x)
    assert table.x.shape == (EPISODE_STEPS, homes)
    for turn, (_, state) in enumerate(game):
        np.testing.assert_array_equal(table.x[turn], state.p_x[:homes])
        np.testing.assert_array_equal(table.y[turn], state.p_y[:homes])


def test_the_table_of_a_game_is_made_once() -> None:
    board = new_game(21, 2).board
    again = board._replace(home_x=board.home_x.copy(), n_players=4)
    assert path_table(board) is path_table(again)


@pytest.mark.parametrize("field", ["cfg", "home_x", "home_y", "orbit_r", "orbit_angle", "rotates"])
def test_boards_with_other_ways_have_tables_of_their_own(field: str) -> None:
    board = new_game(22, 2).board
    now = getattr(board, field)
    other = board._replace(**{field: ~now if field == "rotates" else now + 1.0})
    table = path_table(other)
    assert table is not path_table(board)
    for k in (0, 7):
        for p in range(len(board.home_x)):
            assert (table.x[k, p], table.y[k, p]) == planet_xy(other, p, k)
