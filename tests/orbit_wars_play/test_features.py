from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import alive, step
from td_loop.games.orbit_wars.features import FEATURE_NAMES, N_FEATURES
from td_loop.games.orbit_wars.forecast import forecast_for
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, Position, copy_state
from tests.orbit_wars_agents.positions import positions
from tests.orbit_wars_play.values import played, value_by_hand

SHARES = ("ships_near", "ships_far", "prod_near", "prod_far", "planets_far", "c_prod", "wealth")


def feature(x: np.ndarray, name: str) -> np.ndarray:
    return x[:, FEATURE_NAMES.index(name)]


@settings(max_examples=60)
@given(played())
def test_features_are_finite_and_zero_beyond_the_seats(pos: Position) -> None:
    x = GAME.features(pos, 0.97)
    assert x.shape == (4, N_FEATURES)
    assert x.dtype == np.float32
    assert np.isfinite(x).all()
    assert (x[pos.board.n_players :] == 0).all()
    for name in SHARES:
        assert feature(x, name).sum() == pytest.approx(1.0, abs=1e-5)


@settings(max_examples=60)
@given(played())
def test_a_comet_that_is_gone_by_then_is_no_planet(pos: Position) -> None:
    fc = forecast_for(pos, 0.97)
    n, seats = int(pos.state.head[N_PLANETS]), range(pos.board.n_players)
    there = fc.gone[:n] > fc.mark[2]
    owned = np.array([((fc.owner_at[2, :n] == s) & there).sum() for s in seats], float)
    if owned.sum():
        np.testing.assert_allclose(
            feature(GAME.features(pos, 0.97), "planets_far")[: len(owned)], owned / owned.sum(), rtol=1e-6
        )


def relabelled(pos: Position, to: np.ndarray) -> Position:
    """`pos` with seat s called to[s]."""
    s = copy_state(pos.state)
    n, f = s.head[N_PLANETS], s.head[N_FLEETS]
    owners = s.p_owner[:n]
    s.p_owner[:n] = np.where(owners >= 0, to[owners], -1)
    s.f_owner[:f] = to[s.f_owner[:f]]
    return Position(pos.board, s)


@settings(max_examples=40)
@given(played(), st.permutations(range(4)))
def test_features_follow_the_seat_whatever_it_is_called(pos: Position, order: list[int]) -> None:
    seats = pos.board.n_players
    to = np.array([s for s in order if s < seats])
    before, after = GAME.features(pos, 0.97), GAME.features(relabelled(pos, to), 0.97)
    np.testing.assert_allclose(after[to], before[:seats], rtol=1e-5, atol=1e-6)


def test_both_seats_start_alike() -> None:
    x = GAME.features(new_game(5, 2), 0.97)
    np.testing.assert_allclose(x[0], x[1], rtol=1e-4, atol=1e-4)


def test_a_fleet_counts_by_what_it_will_do() -> None:
    """A fleet that will take a planet shows as production gained and ships spent before it arrives."""
    pos = new_game(5, 2)
    s = copy_state(pos.state)
    home = int(np.flatnonzero(s.p_owner == 0)[0])
    s.p_ships[home] = 120
    armed = Position(pos.board, s)
    search = GAME.make_search(value_by_hand())
    action = search(armed, 0, Budget(evals=300), np.random.default_rng(0)).action
    assert len(action)
    before = GAME.features(armed, 0.97)[0]
    after = GAME.features(GAME.partial(armed, 0, action, len(action)), 0.97)[0]
    assert feature(after[None], "prod_far") > feature(before[None], "prod_far")
    assert feature(after[None], "ships_near") < feature(before[None], "ships_near")


def test_a_seat_that_is_out_has_nothing() -> None:
    game = positions(12, 4)
    for pos in game:
        gone = [s for s in range(4) if not alive(pos)[s]]
        for s in gone:
            x = GAME.features(pos, 0.97)
            assert all(feature(x, name)[s] == 0 for name in SHARES)
    s = copy_state(game[30].state)
    s.p_owner[s.p_owner == 3] = -1
    s.f_owner[s.f_owner == 3] = 0
    x = GAME.features(Position(game[30].board, s), 0.97)
    assert all(feature(x, name)[3] == 0 for name in SHARES)
    assert np.isfinite(x).all()


def test_unborn_comets_do_not_show() -> None:
    pos = positions(11, 2)[40]
    board = pos.board
    other = board._replace(comet_ships=board.comet_ships + 50, comet_x=board.comet_x[:, ::-1].copy())
    assert np.array_equal(GAME.features(pos, 0.97), GAME.features(Position(other, pos.state), 0.97))


def test_the_last_turns_have_no_production_to_come() -> None:
    pos = new_game(5, 2)
    s = copy_state(pos.state)
    s.head[0] = 499
    assert (feature(GAME.features(Position(pos.board, s), 0.97), "c_prod") == 0).all()
    assert step(pos, [None, None]).state.head[0] == 1
