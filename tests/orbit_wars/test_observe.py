"""Observations both ways."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from td_loop.errors import DataError
from td_loop.games.orbit_wars import engine
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.observe import observation, state_from_observation
from td_loop.games.orbit_wars.state import Board, Position
from tests.orbit_wars.strategies import positions
from tests.orbit_wars.test_playthrough import assert_same, random_game


@settings(max_examples=30)
@given(positions())
def test_a_position_survives_the_way_through_json(pos: Position) -> None:
    obs = json.loads(json.dumps(observation(pos, 0)))
    back = state_from_observation(obs, n_players=pos.board.n_players)
    assert observation(back, 0) == obs
    for name in ("cfg", "speed", "home_x", "home_y", "home_ships", "orbit_r", "orbit_angle", "rotates"):
        assert getattr(back.board, name).tolist() == getattr(pos.board, name).tolist(), name


def without_future_comets(board: Board, step: int) -> Board:
    """The board as a player knows it in the observation of `step`: groups that appear later never come."""
    return board._replace(comet_len=np.where(board.comet_spawn <= step, board.comet_len, 0))


@pytest.mark.parametrize("n_players", [2, 4])
def test_a_position_made_from_an_observation_plays_on_alike(n_players: int) -> None:
    """Through comets, up to the spawn of the next ones, which an observation cannot know."""
    first, rows, offsets, played = random_game(6, n_players, 90)
    for start in (0, 20, 50, 55):
        pos = state_from_observation(observation(played[start], 1), n_players=n_players)
        known = Position(without_future_comets(first.board, start), played[start].state)
        for t in range(start, start + 30):
            actions = [rows[offsets[t] : offsets[t + 1]] for _ in range(n_players)]
            actions = [a[a[:, 0] == seat, 1:] for seat, a in enumerate(actions)]
            pos, known = engine.step(pos, actions), engine.step(known, actions)
            assert observation(pos, 0) == observation(known, 0)
    assert_same(
        played[0],
        state_from_observation(observation(first, 0), n_players=n_players)._replace(
            board=first.board, state=first.state
        ),
    )


def test_the_number_of_players_is_guessed_from_the_seats_that_are_seen() -> None:
    assert state_from_observation(observation(new_game(1, 2), 1)).board.n_players == 2
    assert state_from_observation(observation(new_game(1, 4), 0)).board.n_players == 4


def test_the_configuration_sets_speed_and_length() -> None:
    pos = state_from_observation(observation(new_game(1, 2), 0), {"shipSpeed": 3.0, "episodeSteps": 50})
    assert pos.board.cfg[1:3].tolist() == [3.0, 50.0]
    assert pos.board.speed.max() == 3.0


def test_what_an_observation_returns_belongs_to_the_caller() -> None:
    pos = new_game(1, 2)
    obs = observation(pos, 0)
    for key in ("planets", "initial_planets"):
        obs[key][0][5] = -1
    assert observation(pos, 0)["planets"][0][5] >= 0
    assert observation(pos, 0)["initial_planets"][0][5] >= 0


def test_labels_show_what_the_agent_gave() -> None:
    pos = new_game(1, 2)
    home = int(np.flatnonzero(pos.state.p_owner == 0)[0])
    pos = engine.step(pos, [np.array([[home, 2.0, 3.0]]), None])
    assert observation(pos, 0)["fleets"][0][4:6] == [2.0, home]
    shown = observation(pos, 0, labels={0: (2, float(home))})["fleets"][0]
    assert repr(shown[4:6]) == repr([2, float(home)])


def _without(key: str, obs: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in obs.items() if k != key}


def _planet(obs: dict[str, Any], column: int, value: float) -> dict[str, Any]:
    first, *others = obs["planets"]
    return {**obs, "planets": [[*first[:column], value, *first[column + 1 :]], *others]}


def test_a_fleet_may_fly_at_any_angle() -> None:
    """The official engine takes a launch at NaN, and takes the fleet off the board in the same turn."""
    obs = observation(new_game(1, 2), 0)
    pos = state_from_observation({**obs, "fleets": [[0, 1, 1.0, 1.0, float("nan"), 0, 1]]})
    assert np.isnan(pos.state.f_angle[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: _without("planets", o), "no planets"),
        (lambda o: {**o, "planets": [[0, 1, 2]]}, "rows of 7 numbers"),
        (lambda o: {**o, "planets": ["no"]}, "rows of 7 numbers"),
        (lambda o: {**o, "fleets": [[0, 0, 1e5, 0.0, 0.0, 0, 1]]}, "coordinate"),
        (lambda o: {**o, "fleets": [[0, 0, float("nan"), 0.0, 0.0, 0, 1]]}, "coordinate"),
        (
            lambda o: {**o, "comets": [{"planet_ids": [0], "paths": [[[1, 1]]], "path_index": 0}]},
            "after all other",
        ),
        (
            lambda o: {**o, "comets": [{"planet_ids": [99], "paths": [[[1, 1]] * 41], "path_index": 0}]},
            "comet group 0",
        ),
        (
            lambda o: {**o, "comets": [{"planet_ids": [99], "paths": [[[1, float("inf")]]], "path_index": 0}]},
            "comet group 0 has a coordinate",
        ),
        (
            lambda o: {**o, "comets": [{"planet_ids": [98, 99], "paths": [[[1, 1]]], "path_index": 0}]},
            "more planets than paths",
        ),
        (
            lambda o: {**o, "comets": [{"planet_ids": [99], "paths": [[[1, 1]]], "path_index": -2}]},
            "path_index below -1",
        ),
        (lambda o: _planet(o, 1, 4), r"planets\[0\] has owner 4, not a whole number in -1..3"),
        (lambda o: _planet(o, 1, -2), r"planets\[0\] has owner -2"),
        (lambda o: _planet(o, 1, 0.5), r"planets\[0\] has owner 0.5"),
        (lambda o: _planet(o, 5, -1), r"planets\[0\] has ships -1, not a whole number in 0"),
        (lambda o: _planet(o, 5, 1e300), r"planets\[0\] has ships 1e\+300"),
        (lambda o: _planet(o, 5, float("nan")), "'planets' has a number that is not finite"),
        (lambda o: {**o, "fleets": [[0, -1, 1.0, 1.0, 0.0, 0, 1]]}, r"fleets\[0\] has owner -1, .* in 0..3"),
        (lambda o: {**o, "fleets": [[0, 9, 1.0, 1.0, 0.0, 0, 1]]}, r"fleets\[0\] has owner 9, .* in 0..3"),
        (lambda o: {**o, "fleets": [[0, 0, 1.0, 1.0, 0.0, 0, 0]]}, r"fleets\[0\] has ships 0, .* in 1"),
        (lambda o: {**o, "fleets": [[0, 0, 1.0, 1.0, 0.0, float("inf"), 1]]}, "'fleets' has a number that is not"),
    ],
)
def test_what_is_not_an_observation_is_refused(change: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        state_from_observation(change(observation(new_game(1, 2), 0)))
