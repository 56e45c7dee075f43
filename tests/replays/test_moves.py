"""moves: what counts as a launch is what the official engine takes."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.games.orbit_wars.replays.moves import accepted_moves

PLANETS = [
    [0, 0, 0.0, 0.0, 1.0, 10, 1],
    [1, 1, 0.0, 0.0, 1.0, 10, 1],
    [2, 0, 0.0, 0.0, 1.0, 0, 1],
    [3, -1, 0, 0, 1, 9, 1],
]


def official(action: Any, seat: int) -> list[tuple[float, float, float]]:
    """`process_moves` of the official engine, less the fleets that it makes."""
    planets = copy.deepcopy(PLANETS)
    made: list[tuple[float, float, float]] = []
    if not action or not isinstance(action, list):
        return made
    for move in action:
        if len(move) != 3:
            continue
        from_id, angle, ships = move
        ships = int(ships)
        planet = next((p for p in planets if p[0] == from_id), None)
        if planet and planet[1] == seat and planet[5] >= ships and ships > 0:
            planet[5] -= ships
            math.cos(angle)
            made.append((float(planet[0]), float(angle), float(ships)))
    return made


numbers = st.one_of(
    st.integers(-2, 12), st.floats(-2, 12), st.sampled_from([1e300, 2.0, 3.5, True, False, 10**20])
)
moves = st.lists(numbers, min_size=2, max_size=4)
json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists)


@given(action=st.lists(moves, max_size=8), seat=st.integers(0, 1))
def test_agrees_with_the_official_process_moves(action: list[Any], seat: int) -> None:
    assert accepted_moves(action, seat, PLANETS, None) == official(action, seat)


@given(action=json_values, seat=st.integers(0, 3))
def test_no_json_value_makes_it_raise_or_overspend(action: Any, seat: int) -> None:
    spent: dict[float, float] = {}
    for planet, _, ships in accepted_moves(action, seat, PLANETS, None):
        spent[planet] = spent.get(planet, 0) + ships
    for planet, ships in spent.items():
        assert PLANETS[int(planet)][1] == seat
        assert ships <= PLANETS[int(planet)][5]


def test_what_would_have_raised_is_no_move_and_the_next_one_counts() -> None:
    action = [None, [0, math.inf, 3], [0, "x", 3], [0, 1.0, None], [0, 1.0, math.nan], [0, 1.0, "4"]]
    assert accepted_moves(action, 0, PLANETS, None) == [(0.0, 1.0, 4.0)]


@pytest.mark.parametrize(("planet", "row"), [(70, 0), (70.0, 0), (71, None), (0, None)])
def test_ids_are_looked_up_where_they_are_not_rows(planet: float, row: int | None) -> None:
    made = accepted_moves([[planet, 0.5, 2]], 0, PLANETS, {70.0: 0, 71.0: 1})
    assert made == ([] if row is None else [(float(row), 0.5, 2.0)])
