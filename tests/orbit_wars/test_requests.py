"""What comes from outside as JSON or bytes: read alike, checked alike, and never a crash."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.errors import DataError
from td_loop.games.orbit_wars import engine, seen, wire
from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.launches import legal_launches
from td_loop.games.orbit_wars.observe import observation, state_from_observation
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, STEP, Position
from tests.orbit_wars.strategies import positions


def played(seed: int, n_players: int, turns: int) -> Position:
    rng = np.random.default_rng(seed)
    position = new_game(seed, n_players)
    for _ in range(turns):
        position = engine.step(position, [AGENTS["settler"](position, i, rng) for i in range(n_players)])
    return position


WITH_COMETS = played(6, 4, 55)
OBSERVATION = orjson.loads(orjson.dumps(observation(WITH_COMETS, 2)))
BODY = wire.pack(WITH_COMETS, 2)


def same(a: Position, b: Position) -> None:
    n, k = int(a.state.head[N_PLANETS]), int(a.state.head[N_FLEETS])
    for name in a.state._fields:
        rows = slice(n if name.startswith("p_") else k if name.startswith("f_") else None)
        assert np.array_equal(getattr(a.state, name)[rows], getattr(b.state, name)[rows]), name
    for name in a.board._fields:
        assert np.array_equal(getattr(a.board, name), getattr(b.board, name)), name


@settings(max_examples=40)
@given(positions(), st.integers(0, 1))
def test_both_bodies_of_a_request_are_read_as_the_same_position(position: Position, seat: int) -> None:
    shown = {**orjson.loads(orjson.dumps(observation(position, seat))), "n_players": position.board.n_players}
    from_json, from_bytes = GAME.read_observation(shown), GAME.unpack(GAME.pack(position, seat))
    assert from_json[1] == from_bytes[1] == seat
    same(from_json[0], from_bytes[0])
    assert observation(from_json[0], seat) == observation(position, seat)


def test_a_position_with_comets_is_read_as_the_search_reads_it() -> None:
    assert len(OBSERVATION["comet_planet_ids"]) == 4
    for read in (GAME.read_observation(OBSERVATION), GAME.unpack(BODY)):
        same(read[0], state_from_observation(OBSERVATION))
        assert GAME.pack(*read) == BODY


def test_a_body_is_a_third_of_the_json() -> None:
    assert len(BODY) * 3 < 2 * len(orjson.dumps(OBSERVATION))


def test_two_seats_are_guessed_when_no_other_is_seen_unless_the_request_says_four() -> None:
    shown = observation(new_game(1, 2), 0)
    assert GAME.read_observation(shown)[0].board.n_players == 2
    assert GAME.read_observation({**shown, "n_players": 4})[0].board.n_players == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"player": 4}, "'player' must be a whole number in 0..3, not 4"),
        ({"player": True}, "'player'"),
        ({"player": "0"}, "'player'"),
        ({"step": None}, "'step'"),
        ({"step": 500}, "'step' must be a whole number in 0..499, not 500"),
        ({"step": 1e30}, "'step'"),
        ({"step": 3.5}, "'step'"),
        ({"n_players": 3}, "'n_players' must be 2 or 4, not 3"),
        ({"next_fleet_id": -1}, "'next_fleet_id'"),
        ({"angular_velocity": "fast"}, "'angular_velocity'"),
        ({"angular_velocity": 40.0}, "'angular_velocity' 40"),
        ({"planets": {}}, "0 planets"),
        ({"planets": "all"}, "'planets' must be a list"),
        ({"planets": [[0, 1, 2]]}, "'planets' must be rows of 7"),
        ({"planets": [None] * 7}, "'planets' must be rows of 7"),
        ({"planets": [["0"] * 7]}, "'planets' must be rows of 7"),
        ({"planets": [[0.0] * 7] * 65}, "list of up to 64 rows"),
        ({"fleets": [[0] * 7] * 4097}, "list of up to 4096 rows"),
        ({"fleets": [[1, 9, 0, 0, 0, 0, 1]]}, r"fleets\[0\] has owner 9, not a whole number in 0..3"),
        ({"fleets": [[1, 1, 0, 0, math.nan, 0, 1]]}, r"fleets\[0\] has angle nan"),
        ({"fleets": [[1, 1, 0, 0, 0, 99, 1]]}, r"fleets\[0\] has from_planet_id 99"),
        ({"fleets": [[1, 1, 0, 0, 0, 2**70, 1]]}, "'fleets' must be rows of 7"),
        ({"initial_planets": []}, "'initial_planets' must begin with planets 0"),
        ({"comets": [{}]}, "no 'path_index'"),
        ({"comets": [{"path_index": 0, "paths": [[1, 2]], "planet_ids": [40]}]}, "paths of points"),
        ({"comets": [{"path_index": 0, "paths": 7, "planet_ids": [40]}]}, "paths of points"),
        ({"comets": 7}, "cannot be read"),
        ({"comets": [{"path_index": 9, "paths": [[[1, 2]]], "planet_ids": [99]}]}, "path_index 9"),
        ({"comets": [{"path_index": 0, "paths": [[[1, 2]] * 41], "planet_ids": [99]}]}, "paths of 41 points"),
        ({"comets": [{"path_index": 0, "paths": [[[1, 1e9]]], "planet_ids": [99]}]}, "not near the board"),
        ({"comets": [{"path_index": 0, "paths": [[[1, 2]]], "planet_ids": [0]}]}, "after all other planets"),
    ],
)
def test_what_cannot_be_in_an_official_game_is_refused_by_its_place(change: dict[str, Any], message: str) -> None:
    shown = {**observation(new_game(1, 2), 0), **change}
    with pytest.raises(DataError, match=message):
        GAME.read_observation(shown)


@pytest.mark.parametrize("key", ["player", "step", "planets", "initial_planets", "angular_velocity"])
def test_what_is_missing_is_named(key: str) -> None:
    shown = {k: v for k, v in OBSERVATION.items() if k != key}
    with pytest.raises(DataError, match=f"no '{key}'"):
        GAME.read_observation(shown)


@pytest.mark.parametrize("shown", [None, [], "x", 3])
def test_what_is_no_object_is_refused(shown: Any) -> None:
    with pytest.raises(DataError, match="must be an object"):
        GAME.read_observation(shown)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150)
@given(st.data())
def test_any_json_in_any_place_is_read_or_refused(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(OBSERVATION)))
    value = OBSERVATION[key]
    if isinstance(value, list) and value and data.draw(st.booleans()):
        rows = [list(row) if isinstance(row, list) else row for row in value]
        i = data.draw(st.integers(0, len(rows) - 1))
        if isinstance(rows[i], list):
            rows[i][data.draw(st.integers(0, 6))] = data.draw(json_values)
        else:
            rows[i] = data.draw(json_values)
        change: Any = rows
    else:
        change = data.draw(json_values)
    works(lambda: GAME.read_observation({**OBSERVATION, key: change}))


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    works(lambda: GAME.unpack(body))
    works(lambda: GAME.unpack(BODY[: len(body)] + body))


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), max_size=6), st.integers(0, 40))
def test_a_damaged_body_is_read_or_refused(flips: list[tuple[int, int]], cut: int) -> None:
    body = bytearray(BODY[: len(BODY) - cut])
    for at, value in flips:
        if at < len(body):
            body[at] = value
    works(lambda: GAME.unpack(bytes(body)))


@settings(max_examples=60)
@given(st.integers(0, 31), st.integers(0, 255))
def test_a_head_that_lies_is_refused_before_anything_is_made_of_it(at: int, value: int) -> None:
    body = bytearray(BODY)
    body[at] = value
    works(lambda: GAME.unpack(bytes(body)))


def works(read: Any) -> None:
    """Whatever is read can be played with: the engine, the rule, and the way back to bytes."""
    try:
        position, seat = read()
    except DataError:
        return
    moves = GAME.rule_of(position, seat)
    assert len(legal_launches(position, seat, moves)) == len(moves)
    engine.step(position, [None] * position.board.n_players)
    assert GAME.unpack(GAME.pack(position, seat))[1] == seat


def test_a_game_of_the_rule_against_itself_has_legal_launches_only() -> None:
    session, launched = GAME.open_session(3, 2), 0
    for _ in range(60):
        answers = [GAME.rule_of(*GAME.read_observation(session.observation(seat, 60.0))) for seat in range(2)]
        actions = [session.read(seat, raw) for seat, raw in enumerate(answers)]
        assert [len(a) for a in actions] == [len(raw) for raw in answers]
        launched += sum(len(a) for a in actions)
        session.step(actions)
    assert launched > 20


def test_a_state_at_every_bound_is_read() -> None:
    shown = observation(WITH_COMETS, 0)
    row = shown["fleets"][0]
    shown["fleets"] = [[i, *row[1:]] for i in range(seen.MOST_FLEETS)]
    position, _ = GAME.read_observation({**shown, "step": 499})
    assert position.state.head[N_FLEETS] == seen.MOST_FLEETS
    assert position.state.head[STEP] == 499
    assert isinstance(GAME.rule_of(position, 0), list)
