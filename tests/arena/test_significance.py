"""significance: p-values are those of full enumeration, and no more often small than they say."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.arena import significance
from td_loop.arena.schedule import Plan
from tests.arena.build import duel, simulated

SETS = st.lists(
    st.lists(st.integers(-24, 24), min_size=1, max_size=4).flatmap(
        lambda v: st.tuples(st.sampled_from(v), st.just(v))
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=200)
@given(SETS)
def test_it_is_full_enumeration(drawn: list[tuple[int, list[int]]]) -> None:
    seen, ways = zip(*drawn, strict=True)
    sums = np.array([sum(way) for way in product(*ways)])
    wanted = min(1.0, 2 * min((sums >= sum(seen)).mean(), (sums <= sum(seen)).mean()))
    assert significance.p_value(seen, ways) == pytest.approx(wanted)


def test_no_rounds_prove_nothing() -> None:
    assert significance.p_value([], []) == 1.0


@pytest.mark.parametrize(
    ("rounds", "p"),
    [
        ([duel(1, 1, map_seed=m) for m in range(8)], 2 * 0.5**8),
        ([duel(1, 0, map_seed=m) for m in range(8)], 1.0),  # the map decided: nothing about who is stronger
        ([duel(0.5, 0.5, map_seed=m) for m in range(8)], 1.0),
        ([duel(1, 0.5)], 1.0),
        ([*(duel(1, 1, map_seed=m) for m in range(5)), duel(0, 0, map_seed=9)], 2 * (1 + 6) / 64),
    ],
)
def test_two_seats(rounds: list[object], p: float) -> None:
    assert significance.exchange(rounds, "a", "b") == pytest.approx(p)  # type: ignore[arg-type]
    assert significance.exchange(rounds, "b", "a") == pytest.approx(p)  # type: ignore[arg-type]


def test_alone_against_three_is_all_ways_to_sit_down() -> None:
    (r,) = simulated(Plan(("a", "b"), 4, 1, focus="a"), {"a": 0, "b": 0}, seed=3)
    won = np.array([game.shares for game in r.games])
    at = [game.fixture.seats.index("a") for game in r.games]
    seen = sum(won[g, seat] for g, seat in enumerate(at))
    sums = np.array([sum(won[g, seat] for g, seat in enumerate(way)) for way in permutations(range(4))])
    wanted = min(1.0, 2 * min((sums >= seen).mean(), (sums <= seen).mean()))
    assert significance.alone([r], "a") == pytest.approx(wanted)


@pytest.mark.parametrize(("seats", "n", "focus"), [(2, 2, None), (4, 2, None), (4, 4, None), (4, 2, "a")])
def test_equals_look_different_no_more_often_than_the_p_value_says(seats: int, n: int, focus: str | None) -> None:
    who = tuple("abcd"[:n])
    found = []
    for seed in range(400):
        rounds = simulated(Plan(who, seats, 12, seed, focus), dict.fromkeys(who, 0.0), seed)
        found.append(significance.alone(rounds, "a") if focus else significance.exchange(rounds, "a", "b"))
    for level in (0.05, 0.2):
        share = np.mean(np.array(found) <= level)
        assert share <= level + 3 * np.sqrt(level * (1 - level) / 400)
    assert np.mean(np.array(found) <= 0.5) > 0.2  # and it is not simply always 1
