from __future__ import annotations

import gc

import numpy as np
import pytest

from td_loop.games.orbit_wars.board import new_game
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


def test_the_table_of_a_board_is_made_once() -> None:
    board = new_game(21, 2).board
    assert path_table(board) is path_table(board._replace(n_players=4))


def test_tables_of_boards_that_are_gone_are_not_given_to_others() -> None:
    first = new_game(22, 2).board
    for k in range(20):
        # Arrays that are freed at once: the next ones often get the same address.
        board = first._replace(home_x=first.home_x + k)
        assert path_table(board).x[0, 0] == first.home_x[0] + k
        del board
        gc.collect()
