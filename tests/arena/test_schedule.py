"""schedule: seats are fair, maps are new, and the same contestants always mean the same games."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.arena.schedule import Plan, rotated, schedule
from td_loop.errors import UsageError

WHO = st.lists(st.sampled_from("abcdefghi"), min_size=2, max_size=9, unique=True).map(tuple)


@settings(max_examples=60)
@given(WHO, st.sampled_from([2, 4]), st.integers(1, 12), st.integers(0, 5), st.booleans())
def test_every_seat_is_had_equally_often_and_no_game_comes_twice(
    who: tuple[str, ...], seats: int, rounds: int, seed: int, focused: bool
) -> None:
    plan = Plan(who, seats, rounds, seed, who[-1] if focused else None)
    found = list(schedule(plan))
    for fixtures in found:
        assert len({f.map_seed for f in fixtures}) == 1
        assert [f.number for f in fixtures] == list(range(fixtures[0].of))
        assert fixtures[0].of == len(fixtures)
        for c in {c for f in fixtures for c in f.seats}:
            had = Counter(seat for f in fixtures for seat, x in enumerate(f.seats) if x == c)
            assert set(had) == set(range(seats))
            assert len(set(had.values())) == 1
    games = [(f.map_seed, f.seats) for f in chain.from_iterable(found)]
    assert len(set(games)) == len(games)
    maps = Counter((tuple(sorted({*f.seats})), f.map_seed) for fixtures in found for f in fixtures[:1])
    assert max(maps.values()) == 1
    assert all(1 <= seed < 2**31 for seed, _ in games)


@given(WHO, st.integers(1, 5), st.randoms())
def test_two_seats_are_the_same_games_in_whatever_order_contestants_are_named(
    who: tuple[str, ...], rounds: int, random: object
) -> None:
    other = tuple(random.sample(who, len(who)))  # type: ignore[attr-defined]
    games = [set(chain.from_iterable(schedule(Plan(w, 2, rounds)))) for w in (who, other)]
    assert games[0] == games[1]


def test_two_seats_are_all_pairs_both_ways_round() -> None:
    found = list(schedule(Plan(("a", "b", "c"), 2, 4)))
    pairs = Counter(tuple(sorted(f.seats)) for f in chain.from_iterable(found))
    assert pairs == dict.fromkeys(combinations("abc", 2), 8)


def test_more_rounds_and_more_contestants_add_to_what_was_played() -> None:
    few = set(chain.from_iterable(schedule(Plan(("a", "b"), 2, 3))))
    assert few < set(chain.from_iterable(schedule(Plan(("a", "b"), 2, 5))))
    assert few < set(chain.from_iterable(schedule(Plan(("c", "b", "a"), 2, 3))))
    assert few.isdisjoint(chain.from_iterable(schedule(Plan(("a", "b"), 2, 3, seed=1))))


def test_two_contestants_with_four_seats_each_sit_alone_against_three_of_the_other() -> None:
    (fixtures,) = schedule(Plan(("a", "b"), 4, 1))
    assert [f.seats.index("a") for f in fixtures[:4]] == [0, 1, 2, 3]
    assert [f.seats.index("b") for f in fixtures[4:]] == [0, 1, 2, 3]
    assert all(f.seats.count("a") == 1 for f in fixtures[:4])
    assert all(f.seats.count("b") == 1 for f in fixtures[4:])


def test_a_focus_sits_alone_and_the_others_do_not_meet() -> None:
    found = list(schedule(Plan(("a", "b", "c", "d", "e"), 4, 1, focus="c")))
    assert [{*f[0].seats} for f in found] == [{"c", "a"}, {"c", "b"}, {"c", "d"}, {"c", "e"}]
    assert all(f.seats.count("c") == 1 for f in chain.from_iterable(found))


@pytest.mark.parametrize("n", [4, 5, 6, 7, 8])
def test_tables_of_four_let_all_play_about_equally_often(n: int) -> None:
    who = tuple("abcdefgh"[:n])
    found = list(schedule(Plan(who, 4, 200)))
    assert all(len({*f[0].seats}) == 4 for f in found)
    counts = Counter(c for f in found for c in f[0].seats)
    assert set(counts) == set(who)
    assert max(counts.values()) < 1.3 * min(counts.values())
    first = Counter(f[0].seats[0] for f in found)
    assert max(first.values()) < 2.0 * min(first.values())  # who sits where is drawn


def test_rotation() -> None:
    assert rotated("abcd", 1) == ("d", "a", "b", "c")


@pytest.mark.parametrize(
    "flags", [{"who": ("a",)}, {"seats": 3}, {"rounds": 0}, {"seed": -1}], ids=lambda f: next(iter(f))
)
def test_a_plan_that_cannot_be_played_is_refused(flags: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Plan(**{"who": ("a", "b"), **flags})  # type: ignore[arg-type]
