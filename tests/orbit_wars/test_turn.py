"""Rules of one turn."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.orbit_wars import engine, turn
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.observe import state_from_observation
from td_loop.games.orbit_wars.state import (
    DONE,
    N_FLEETS,
    N_PLANETS,
    NEXT_FLEET_ID,
    STEP,
    Position,
    copy_state,
)
from tests.orbit_wars.strategies import moves, positions


def position(planets: list[list[Any]], fleets: list[list[Any]], *, step: int = 1, **more: Any) -> Position:
    """A small position; planets stand still."""
    obs = {"planets": planets, "fleets": fleets, "step": step, "angular_velocity": 0.0, "next_fleet_id": 100}
    return state_from_observation({**obs, **more}, n_players=2)


def total_ships(pos: Position) -> int:
    s = pos.state
    return int(s.p_ships[: s.head[N_PLANETS]].sum() + s.f_ships[: s.head[N_FLEETS]].sum())


def play(pos: Position, rows: np.ndarray) -> Position:
    s = copy_state(engine.with_room(pos.state, len(rows)))
    turn.tick(pos.board, s, rows)
    return Position(pos.board, s)


def same(a: Position, b: Position) -> bool:
    n, f = int(a.state.head[N_PLANETS]), int(a.state.head[N_FLEETS])
    rows = (
        (x[: f if k.startswith("f_") else n], k) for k, x in a.state._asdict().items() if k[:2] in ("p_", "f_")
    )
    return (a.state.head == b.state.head).all() and all(
        np.array_equal(x, getattr(b.state, k)[: len(x)]) for x, k in rows
    )


# --- properties --------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(positions(production=False), st.data())
def test_launching_neither_makes_nor_loses_ships(pos: Position, data: st.DataObject) -> None:
    rows = data.draw(moves(pos.board.n_players))
    s = copy_state(engine.with_room(pos.state, len(rows)))
    for seat, planet, angle, ships in rows:
        turn.launch(s, int(seat), planet, angle, ships)
    assert total_ships(Position(pos.board, s)) == total_ships(pos)
    assert (s.p_ships[: s.head[N_PLANETS]] >= 0).all()
    assert (s.f_ships[: s.head[N_FLEETS]] >= 1).all()
    assert s.head[NEXT_FLEET_ID] - pos.state.head[NEXT_FLEET_ID] == s.head[N_FLEETS] - pos.state.head[N_FLEETS]


@settings(max_examples=60)
@given(positions(), st.data())
def test_a_turn_makes_no_ships_but_by_production(pos: Position, data: st.DataObject) -> None:
    after = play(pos, data.draw(moves(pos.board.n_players)))
    owned = pos.state.p_owner >= 0
    born = int(pos.state.p_prod[owned].sum())
    new = after.state.p_comet[: after.state.head[N_PLANETS]] >= 0  # comets bring ships of their own
    brought = int(after.state.p_ships[: len(new)][new].sum())
    assert total_ships(after) <= total_ships(pos) + born + brought
    assert after.state.head[STEP] == pos.state.head[STEP] + 1


@settings(max_examples=60)
@given(positions(max_fleets=0, production=False))
def test_without_fleets_and_production_nothing_changes_hands(pos: Position) -> None:
    after = play(pos, np.empty((0, 4)))
    m = len(pos.board.home_x)
    assert (after.state.p_owner[:m] == pos.state.p_owner[:m]).all()
    assert (after.state.p_ships[:m] == pos.state.p_ships[:m]).all()


@settings(max_examples=60)
@given(positions(), st.data())
def test_the_order_of_fleets_does_not_change_planets(pos: Position, data: st.DataObject) -> None:
    n = int(pos.state.head[N_FLEETS])
    order = np.array(data.draw(st.permutations(range(n))), np.int64)
    shuffled = copy_state(pos.state)
    for k, column in shuffled._asdict().items():
        if k.startswith("f_"):
            column[:n] = column[:n][order]
    a, b = play(pos, np.empty((0, 4))), play(Position(pos.board, shuffled), np.empty((0, 4)))
    assert (a.state.p_owner == b.state.p_owner).all()
    assert (a.state.p_ships == b.state.p_ships).all()
    kept = a.state.f_id[: a.state.head[N_FLEETS]]
    assert sorted(kept.tolist()) == sorted(b.state.f_id[: b.state.head[N_FLEETS]].tolist())


@settings(max_examples=60)
@given(positions(), st.data())
def test_illegal_launches_do_nothing(pos: Position, data: st.DataObject) -> None:
    rows = data.draw(moves(pos.board.n_players))
    s = copy_state(engine.with_room(pos.state, len(rows)))
    legal = np.array([turn.launch(s, int(r[0]), *r[1:]) for r in rows], np.bool_)
    assert same(play(pos, rows), play(pos, rows[legal]))


@settings(max_examples=200)
@given(
    owner=st.integers(-1, 3),
    garrison=st.integers(0, 50),
    arriving=st.lists(st.integers(0, 40), min_size=4, max_size=4),
    order=st.permutations(range(4)),
)
def test_combat_does_not_care_who_sits_where(
    owner: int, garrison: int, arriving: list[int], order: list[int]
) -> None:
    new_owner, left = turn.fight(owner, garrison, np.array([arriving]), 0)
    moved = [0] * 4
    for seat in range(4):
        moved[order[seat]] = arriving[seat]
    renamed = turn.fight(order[owner] if owner >= 0 else -1, garrison, np.array([moved]), 0)
    assert renamed == (order[new_owner] if new_owner >= 0 else -1, left)
    first, second = sorted(arriving, reverse=True)[:2]
    assert left >= 0
    assert abs(left - garrison) <= first - second or left == first - second - garrison


# --- examples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "garrison", "arriving", "expected"),
    [
        (-1, 10, [0, 0, 0, 0], (-1, 10)),
        (-1, 10, [10, 0, 0, 0], (-1, 0)),  # equal: the planet keeps its owner
        (-1, 10, [11, 0, 0, 0], (0, 1)),
        (1, 10, [0, 5, 0, 0], (1, 15)),
        (1, 10, [25, 5, 0, 0], (0, 10)),
        (1, 10, [5, 25, 0, 0], (1, 30)),
        (-1, 10, [30, 30, 0, 0], (-1, 10)),
        (-1, 10, [30, 30, 29, 0], (-1, 10)),  # two equal largest forces take all others with them
        (-1, 10, [41, 40, 42, 0], (-1, 9)),
    ],
)
def test_combat(owner: int, garrison: int, arriving: list[int], expected: tuple[int, int]) -> None:
    assert turn.fight(owner, garrison, np.array([arriving]), 0) == expected


def test_a_fleet_hits_the_first_planet_in_the_list_not_the_nearest() -> None:
    planets = [[0, -1, 25.0, 20.0, 1.0, 5, 1], [1, -1, 23.0, 20.0, 1.0, 5, 1]]
    after = play(position(planets, [[0, 0, 20.5, 20.0, 0.0, 9, 1000]]), np.empty((0, 4)))
    assert after.state.p_ships[:2].tolist() == [995, 5]


def test_comets_appear_move_and_leave() -> None:
    pos = new_game(2, 2)
    board, m = pos.board, len(pos.board.home_x)
    length = int(board.comet_len[0])
    assert length > 0
    seen = 0
    for _ in range(60 + length):
        pos = play(pos, np.empty((0, 4)))
        k = int(pos.state.head[STEP]) - 50
        if 0 <= k < length:
            seen += 1
            assert pos.state.head[N_PLANETS] == m + 4
            assert pos.state.p_x[m : m + 4].tolist() == board.comet_x[0, :, k].tolist()
            assert pos.state.p_y[m : m + 4].tolist() == board.comet_y[0, :, k].tolist()
            assert (pos.state.p_ships[m : m + 4] == board.comet_ships[0]).all()
        else:
            assert pos.state.head[N_PLANETS] == m
    assert seen == length


def comet_position(path_index: int, fleets: list[list[Any]]) -> Position:
    """Two seats with a planet each, and comets that stand still at (20, 20), (20, 80), ... for three turns."""
    planets = [[0, 0, 5.0, 50.0, 1.0, 10, 1], [1, 1, 95.0, 50.0, 1.0, 10, 1]]
    corners = [[20.0, 20.0], [20.0, 80.0], [80.0, 20.0], [80.0, 80.0]]
    planets += [[2 + i, -1, *xy, 1.0, 7, 1] for i, xy in enumerate(corners)]
    group = {"planet_ids": [2, 3, 4, 5], "paths": [[xy] * 3 for xy in corners], "path_index": path_index}
    return position(planets, fleets, step=60, comets=[group], comet_planet_ids=[2, 3, 4, 5])


def test_a_fleet_that_hits_a_leaving_comet_vanishes_without_combat() -> None:
    fleets = [[0, 0, 18.5, 20.0, 0.0, 0, 30]]
    stays = play(comet_position(1, fleets), np.empty((0, 4)))
    assert stays.state.p_owner[2] == 0
    leaves = play(comet_position(2, fleets), np.empty((0, 4)))
    assert leaves.state.head[N_PLANETS] == 2
    assert leaves.state.head[N_FLEETS] == 0
    assert leaves.state.p_ships[:2].tolist() == [11, 11]


def test_an_owned_comet_produces_and_launches() -> None:
    pos = comet_position(0, [])
    pos.state.p_owner[2] = 1
    after = play(pos, np.array([[1.0, 2.0, 0.0, 3.0]]))
    assert after.state.p_ships[2] == 7 - 3 + 1
    assert after.state.f_from[0] == 2
    assert after.state.f_x[0] == 20.0 + math.cos(0.0) * (1.0 + 0.1) + turn.fleet_speed(after.board, 3)


def test_a_launch_at_nan_vanishes_with_its_ships() -> None:
    pos = new_game(1, 2)
    home = int(np.flatnonzero(pos.state.p_owner == 0)[0])
    after = play(pos, np.array([[0.0, home, math.nan, 4.0]]))
    assert after.state.head[N_FLEETS] == 0
    assert after.state.p_ships[home] == 10 - 4 + pos.state.p_prod[home]


def test_several_launches_share_one_garrison() -> None:
    pos = new_game(1, 2)
    home = int(np.flatnonzero(pos.state.p_owner == 0)[0])
    after = play(pos, np.array([[0.0, home, 0.0, 6.0], [0.0, home, 0.0, 6.0], [0.0, home, 0.0, 4.0]]))
    assert after.state.head[NEXT_FLEET_ID] == 2
    assert after.state.p_ships[home] == pos.state.p_prod[home]


@pytest.mark.parametrize(("x", "lost"), [(60.2, False), (59.9, True)])
def test_the_sun_burns_what_comes_near(x: float, lost: bool) -> None:
    planets = [[0, 0, 5.0, 50.0, 1.0, 10, 1], [1, 1, 95.0, 50.0, 1.0, 10, 1]]
    after = play(position(planets, [[0, 0, x, 48.0, math.pi / 2, 0, 50]]), np.empty((0, 4)))
    assert bool(after.state.head[N_FLEETS] == 0) is lost


def test_the_sun_s_rim_is_decided_by_the_official_arithmetic() -> None:
    """Straight along the rim: plain squares cannot tell, the exact path must."""
    planets = [[0, 0, 5.0, 50.0, 1.0, 10, 1], [1, 1, 95.0, 50.0, 1.0, 10, 1]]
    for x, lost in ((60.0, False), (math.nextafter(60.0, 0), True)):
        after = play(position(planets, [[0, 0, x, 49.0, math.pi / 2, 0, 50]]), np.empty((0, 4)))
        assert bool(after.state.head[N_FLEETS] == 0) is lost


def test_large_fleets_move_at_the_limit_and_small_ones_at_one() -> None:
    board = new_game(1, 2).board
    assert turn.fleet_speed(board, 1) == 1.0
    assert turn.fleet_speed(board, 10**6) == 6.0
    for ships in (2, 40, 999, 1024, 1025):
        expected = 1.0 + (6.0 - 1.0) * (math.log(ships) / math.log(1000)) ** 1.5
        assert turn.fleet_speed(board, ships) == min(expected, 6.0)


@pytest.mark.parametrize(("step", "over"), [(497, False), (498, True)])
def test_the_game_ends_with_its_last_turn(step: int, over: bool) -> None:
    planets = [[0, 0, 5.0, 50.0, 1.0, 10, 1], [1, 1, 95.0, 50.0, 1.0, 10, 1]]
    assert bool(play(position(planets, [], step=step), np.empty((0, 4))).state.head[DONE]) is over


def test_the_game_ends_when_one_seat_is_left() -> None:
    mine = [[0, 0, 5.0, 50.0, 1.0, 10, 1], [1, -1, 95.0, 50.0, 1.0, 10, 1]]
    assert play(position(mine, []), np.empty((0, 4))).state.head[DONE]
    assert not play(position(mine, [[0, 1, 20.0, 20.0, 0.0, 1, 3]]), np.empty((0, 4))).state.head[DONE]


def test_too_small_capacities_are_an_error_and_not_a_wrong_result() -> None:
    pos = new_game(1, 2)
    home = int(np.flatnonzero(pos.state.p_owner == 0)[0])
    none_left = pos.state._replace(**{k: v[:0] for k, v in pos.state._asdict().items() if k.startswith("f_")})
    with pytest.raises(ValueError, match="fleet capacity"):
        turn.tick(pos.board, copy_state(none_left), np.array([[0.0, home, 0.0, 1.0]]))
    m = len(pos.board.home_x)
    crowded = pos.state._replace(**{k: v[:m] for k, v in pos.state._asdict().items() if k.startswith("p_")})
    crowded.head[STEP] = 49
    with pytest.raises(ValueError, match="planet capacity"):
        turn.tick(pos.board, copy_state(crowded), np.empty((0, 4)))


def test_the_cheap_far_test_never_changes_a_collision() -> None:
    """Fleets on a fine ring around a moving planet: hits found by the kernel are those of the exact test alone."""
    board = new_game(1, 2).board
    p = int(np.flatnonzero(board.rotates)[0])
    for step, k in itertools.product((1, 40), range(400)):
        pos = new_game(1, 2)
        s = copy_state(pos.state)
        s.head[STEP] = step
        s.head[N_PLANETS] = p + 1
        s.p_owner[: p + 1] = -1
        s.p_radius[:p] = -1e9  # the others touch nothing
        w = turn.make_scratch(len(s.p_owner))
        s.head[N_FLEETS] = 1
        s.f_ships[0] = 1 + 7 * k
        angle = 0.1 * k
        far = s.p_radius[p] + 0.02 * k
        s.f_x[0], s.f_y[0] = s.p_x[p] + far * math.cos(angle), s.p_y[p] + far * math.sin(angle)
        s.f_angle[0] = 2.4 * k
        _fly(board, s, w)
        speed = turn.fleet_speed(board, int(s.f_ships[0]))
        start = (s.p_x[p] + far * math.cos(angle), s.p_y[p] + far * math.sin(angle))
        end = (start[0] + math.cos(2.4 * k) * speed, start[1] + math.sin(2.4 * k) * speed)
        hit = turn.swept_hit(*start, *end, s.p_x[p], s.p_y[p], w.new_x[p], w.new_y[p], s.p_radius[p])
        assert (w.arrivals[p].sum() > 0) == hit


def _fly(board: Any, s: Any, w: Any) -> None:
    turn.move_planets(board, s, w)
    turn.move_fleets(board, s, w)
