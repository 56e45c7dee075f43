"""Positions as Python callers see them."""

from __future__ import annotations

import numpy as np
import pytest

from td_loop.games.orbit_wars import engine
from td_loop.games.orbit_wars.board import START_FLEETS, new_game
from td_loop.games.orbit_wars.state import DONE, N_FLEETS, Position, copy_state
from tests.orbit_wars.test_turn import position

NOBODY = [[0, -1, 5.0, 50.0, 1.0, 10, 1]]


def finished(planets: list[list[float]], fleets: list[list[float]] | None = None) -> Position:
    pos = position(planets, fleets or [])
    pos.state.head[DONE] = 1
    return pos


def test_step_leaves_its_position_alone() -> None:
    pos = new_game(1, 2)
    before = copy_state(pos.state)
    engine.step(pos, [np.array([[0.0, 1.0, 5.0]]), None])
    assert all((a == b).all() for a, b in zip(before, pos.state, strict=True))


def test_step_finds_room_for_any_number_of_launches() -> None:
    pos = new_game(1, 2)
    home = int(np.flatnonzero(pos.state.p_owner == 0)[0])
    pos.state.p_ships[home] = 10_000
    n = START_FLEETS + 50
    # side by side, so that none of them meets its planet again in this turn
    after = engine.step(pos, [np.array([[home, 0.01 * k, 1.0] for k in range(n)]), None])
    assert after.state.f_id[: after.state.head[N_FLEETS]].tolist() == list(range(n))
    assert len(engine.with_room(after.state, 0).f_id) >= n
    assert engine.with_room(after.state, 0) is after.state


def test_seats_launch_in_order() -> None:
    rows = engine.join_actions([None, np.array([[1.0, 2.0, 3.0]]), np.empty((0, 3)), np.array([[4.0, 5.0, 6.0]])])
    assert rows.tolist() == [[1.0, 1.0, 2.0, 3.0], [3.0, 4.0, 5.0, 6.0]]
    assert engine.join_actions([None, None]).shape == (0, 4)


def test_alive_and_scores_count_planets_and_fleets() -> None:
    pos = position([*NOBODY, [1, 0, 95.0, 50.0, 1.0, 20, 1]], [[0, 1, 20.0, 20.0, 0.0, 1, 3]])
    assert engine.alive(pos).tolist() == [True, True, False, False]
    assert engine.scores(pos).tolist() == [20, 3, 0, 0]


@pytest.mark.parametrize(
    ("ships", "paid", "shares"),
    [((20, 3), [1, -1], [1.0, 0.0]), ((5, 5), [1, 1], [0.5, 0.5]), ((0, 0), [-1, -1], [0.5, 0.5])],
)
def test_results_of_a_finished_game(ships: tuple[int, int], paid: list[int], shares: list[float]) -> None:
    pos = finished([[0, 0, 5.0, 50.0, 1.0, ships[0], 1], [1, 1, 95.0, 50.0, 1.0, ships[1], 1]])
    assert engine.rewards(pos) == paid
    outcome = engine.outcome(pos)
    assert outcome is not None
    assert outcome.tolist() == [*shares, 0.0, 0.0]


def test_if_nobody_is_left_all_seats_share_the_outcome() -> None:
    outcome = engine.outcome(finished(NOBODY))
    assert outcome is not None
    assert outcome.tolist() == [0.5, 0.5, 0.0, 0.0]
    assert engine.rewards(finished(NOBODY)) == [-1, -1]


def test_a_game_under_way_has_no_outcome() -> None:
    assert engine.outcome(new_game(1, 4)) is None
