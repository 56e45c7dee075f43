"""standings and tables: what the rounds say, and that it fits on a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from td_loop.arena.contestants import LABEL_LENGTH, line_up
from td_loop.arena.game import SeatFault
from td_loop.arena.rounds import Round, round_of, whole_rounds
from td_loop.arena.schedule import Plan
from td_loop.arena.sprt import Sprt, run
from td_loop.arena.standings import standings
from td_loop.arena.tables import sprt_text, standings_text
from tests.arena.build import contestant, duel, simulated

A, B = contestant("a"), contestant("b")


def test_two_seats() -> None:
    found = standings([duel(1, 1, map_seed=1), duel(1, 0, map_seed=2), duel(0.5, 1, map_seed=3)], [B, A], 2)
    assert [r.label for r in found.rows] == ["a", "b"]
    a, b = found.rows
    assert (a.games, a.wins, a.draws, a.losses) == (6, 4, 1, 1)
    assert a.share == pytest.approx(4.5 / 6)
    assert b.share == pytest.approx(1.5 / 6)
    assert a.seconds_per_move == pytest.approx(0.02)
    assert a.slowest_s == pytest.approx(0.05)
    (p,) = found.pairs
    assert (p.a, p.b, p.rounds, p.rounds_won) == ("a", "b", 3, (2, 1, 0))
    assert (p.score_a, p.score_b, p.even) == (pytest.approx(0.75), pytest.approx(0.25), 0.5)
    assert (found.rounds, found.games) == (3, 6)


def test_alone_against_three_one_way_and_both_ways() -> None:
    both = standings(simulated(Plan(("a", "b"), 4, 80), {"a": 300, "b": 0}), [A, B], 4).pairs[0]
    assert both.even == 0.25
    assert both.score_a > 0.5  # alone among three who are weaker
    assert both.score_b is not None
    assert both.score_b < 0.2
    assert both.p_value < 1e-6
    one = standings(simulated(Plan(("a", "b"), 4, 80, focus="b"), {"a": 300, "b": 0}), [A, B], 4).pairs[0]
    assert (one.a, one.b, one.score_b, one.even) == ("b", "a", None, 0.25)  # who sat alone comes first
    assert one.score_a < 0.2
    assert one.p_value < 1e-3
    assert sum(one.rounds_won) == 80


def test_tables_of_four_compare_each_two_by_what_those_two_won() -> None:
    who = [contestant(c) for c in "abcd"]
    found = standings(simulated(Plan(tuple("abcd"), 4, 60), {"a": 0, "b": 0, "c": 0, "d": -900}), who, 4)
    assert len(found.pairs) == 6
    assert all(p.even == 0.5 and p.score_b == pytest.approx(1 - p.score_a) for p in found.pairs)
    last = [p for p in found.pairs if "d" in (p.a, p.b)]
    assert all(p.b == "d" and p.score_a > 0.9 and p.p_value < 0.01 for p in last)


def test_faults_are_counted_with_whom_they_belong() -> None:
    r = duel(1, 1)
    games = [replace(r.games[0], faults=(SeatFault(1, 7, "crash", "boom"),)), r.games[1]]
    found = standings([round_of(games)], [A, B], 2)
    assert [row.faults for row in found.rows] == [{}, {"crash": 1}]
    assert "b lost 1 game by a crash" in standings_text(found)


def test_half_a_round_does_not_count() -> None:
    r = duel(1, 1)
    assert whole_rounds(r.games[:1]) == []
    assert whole_rounds([r.games[1], r.games[0]]) == [r]


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize(("seats", "n", "focus"), [(2, 14, False), (4, 14, False), (4, 3, False), (4, 14, True)])
def test_all_tables_fit_80_columns(seats: int, n: int, focus: bool) -> None:
    who, notes = line_up([contestant(f"{'long_name_of_weights'[: 20 - k // 3]}{k:05d}") for k in range(n)])
    assert not notes
    assert len({c.label for c in who}) == n
    assert all(len(c.label) <= LABEL_LENGTH for c in who)
    ids = tuple(c.identity for c in who)
    strength = {identity: -400.0 * k for k, identity in enumerate(ids)}
    rounds = simulated(Plan(ids, seats, 30, focus=ids[0] if focus else None), strength)
    assert widest(standings_text(standings(rounds, who, seats))) <= 80


def test_nothing_played_is_said() -> None:
    assert standings_text(standings([], [A, B], 2)) == "no round was played whole yet"


@pytest.mark.parametrize(
    ("scores", "said"), [([1.0] * 99, "H1 accepted"), ([0.0] * 99, "H0 accepted"), ([], "unde")]
)
def test_a_test_in_words(scores: list[float], said: str) -> None:
    text = sprt_text(Sprt(0, 100), run(Sprt(0, 100), scores), "x" * LABEL_LENGTH, "y" * LABEL_LENGTH)
    assert text.startswith(said)
    assert widest(text) <= 80


def test_a_round_knows_who_sat_alone() -> None:
    r: Round = simulated(Plan(("a", "b"), 4, 1), {"a": 0, "b": 0})[0]
    assert r.alone("a") == [0, 1, 2, 3]
    assert r.alone("b") == [4, 5, 6, 7]
    assert sum(r.units(c) for c in "ab") == 8 * 12
