"""ratings: the strengths that made the games come back, with intervals that hold them as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from td_loop.arena.ratings import rate
from td_loop.arena.schedule import Plan
from tests.arena.build import duel, simulated

ELO = {"a": 150.0, "b": 60.0, "c": -20.0, "d": -70.0, "e": -120.0}


@pytest.mark.parametrize(
    ("n", "seats", "rounds", "focus"),
    [(3, 2, 800, None), (3, 4, 250, None), (5, 4, 500, None), (3, 4, 700, "b")],
    ids=["two seats", "alone both ways", "tables of four", "alone one way"],
)
def test_strengths_come_back(n: int, seats: int, rounds: int, focus: str | None) -> None:
    who = tuple(ELO)[:n]
    ratings = rate(simulated(Plan(who, seats, rounds, 0, focus), ELO), who, resamples=100)
    true = np.array([ELO[w] for w in who])
    assert ratings.elo == pytest.approx(true - true.mean(), abs=25)
    assert ratings.samples.std(axis=0).max() < 15


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    who, held = ("a", "b"), 0
    for seed in range(80):
        rounds = simulated(Plan(who, 2, 60, seed), {"a": 40.0, "b": -40.0}, seed)
        ratings = rate(rounds, who, resamples=150)
        held += int(ratings.low[0] <= 40.0 <= ratings.high[0])
    assert 0.88 <= held / 80 <= 1.0


def test_who_never_lost_has_a_finite_rating_and_an_interval() -> None:
    ratings = rate([duel(1, 1, map_seed=m) for m in range(50)], ("a", "b"), resamples=300)
    assert np.isfinite(ratings.elo).all()
    assert ratings.elo[0] > 400
    assert ratings.low[0] < ratings.elo[0] < ratings.high[0]


def test_draws_are_half_of_a_win() -> None:
    ratings = rate([duel(0.5, 0.5, map_seed=m) for m in range(20)], ("a", "b"), resamples=50)
    assert ratings.elo == pytest.approx([0, 0], abs=1e-6)


def test_it_repeats_exactly() -> None:
    rounds = simulated(Plan(("a", "b"), 2, 20), ELO)
    one, two = (rate(rounds, ("a", "b"), resamples=50, seed=4) for _ in range(2))
    assert (one.samples == two.samples).all()


def test_games_of_others_and_no_games_at_all_change_nothing() -> None:
    rounds = simulated(Plan(("a", "b"), 2, 20), ELO)
    more = simulated(Plan(("a", "c"), 2, 20), ELO)
    assert (rate(rounds + more, ("a", "b"), resamples=9).elo == rate(rounds, ("a", "b"), resamples=9).elo).all()
    assert rate([], ("a", "b"), resamples=9).elo == pytest.approx([0, 0])
