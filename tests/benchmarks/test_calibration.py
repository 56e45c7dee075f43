"""The arithmetic of `benchmarks/bench_value.py`: losses, reliability, and intervals that count games."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.calibration import (
    Array,
    Floats,
    calibration_error,
    cross_validated,
    effective_games,
    fit_logit,
    folds,
    interval_of_mean,
    interval_of_slope,
    log_loss,
    reliability,
    slope,
    softmax,
    wilson,
)

TWO = np.array([True, True, False, False])


def games_of(chance: Floats, rows: int, rng: np.random.Generator) -> tuple[Floats, Array]:
    """Outcomes and game numbers of games of `rows` rows each: a game's rows share its outcome."""
    won = (rng.random(len(chance)) < chance).astype(float)
    return np.repeat(won, rows), np.repeat(np.arange(len(chance)), rows)


def test_log_loss_is_that_of_the_seat_that_won() -> None:
    p = np.array([[0.25, 0.75, 0, 0], [0.5, 0.5, 0, 0]])
    target = np.array([[0.0, 1, 0, 0], [0.5, 0.5, 0, 0]])
    assert log_loss(p, target) == pytest.approx([-math.log(0.75), math.log(2)])
    assert np.isfinite(log_loss(1 - np.eye(4)[:1], np.eye(4)[:1])).all()  # a winner that had no chance


def test_wilsons_interval_is_the_textbooks() -> None:
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


@given(st.floats(0, 1), st.floats(0.5, 1e6))
def test_wilsons_interval_holds_its_rate_and_stays_a_rate(rate: float, n: float) -> None:
    low, high = wilson(rate, n)
    assert 0 <= low <= rate + 1e-12
    assert rate - 1e-12 <= high <= 1
    assert high - low < 1


def test_rows_of_one_game_are_worth_one_try() -> None:
    assert effective_games(np.zeros(40)) == 1
    assert effective_games(np.repeat(np.arange(7), 5)) == pytest.approx(7)
    assert 1 < effective_games(np.array([0] * 90 + [1])) < 1.1


def test_intervals_of_rates_hold_the_truth_as_often_as_they_say_though_rows_repeat_their_game() -> None:
    rng, held, naive = np.random.default_rng(0), 0, 0
    for _ in range(500):
        won, game = games_of(np.full(40, 0.3), 30, rng)
        (line,) = reliability(np.full(len(won), 0.35), won, game)
        held += line.interval[0] <= 0.3 <= line.interval[1]
        low, high = wilson(line.won, line.n)
        naive += low <= 0.3 <= high
    assert held >= 0.93 * 500
    assert naive < 0.5 * 500  # what counting rows would have given


def test_a_reliability_table_counts_every_pair_once_and_leaves_out_empty_bins() -> None:
    p = np.array([0.0, 0.05, 0.1, 0.55, 0.999, 1.0])
    won = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    table = reliability(p, won, np.array([1, 1, 2, 2, 3, 4]))
    assert [(b.low, b.n, b.games) for b in table] == [(0.0, 2, 1), (0.1, 1, 1), (0.5, 1, 1), (0.9, 2, 2)]
    assert [b.mean for b in table] == pytest.approx([0.025, 0.1, 0.55, 0.9995])
    assert [b.won for b in table] == [0.5, 0.0, 1.0, 1.0]
    assert all(b.low <= b.mean <= b.high for b in table)
    assert calibration_error(table) == pytest.approx((2 * 0.475 + 0.1 + 0.45 + 2 * 0.0005) / 6)


def test_right_chances_have_no_calibration_error_to_speak_of() -> None:
    rng = np.random.default_rng(1)
    p = rng.random(20_000)
    won, game = games_of(p, 1, rng)
    assert calibration_error(reliability(p, won, game)) < 0.02
    assert calibration_error(reliability(p**2, won, game)) > 0.1


def test_an_interval_of_a_mean_is_as_wide_as_games_are_few() -> None:
    rng = np.random.default_rng(2)
    per_game = rng.normal(size=50)
    once = interval_of_mean(per_game, np.arange(50))
    thirty = interval_of_mean(np.repeat(per_game, 30), np.repeat(np.arange(50), 30))
    assert thirty == pytest.approx(once)  # thirty copies of a game are no news
    assert once[0] < per_game.mean() < once[1]
    assert once[1] - once[0] == pytest.approx(2 * 1.96 * per_game.std() / math.sqrt(50), rel=0.1)
    assert interval_of_mean(np.full(9, 3.0), np.arange(9) // 2) == pytest.approx((3, 3))


def test_folds_keep_games_whole_and_spread_each_number_of_seats() -> None:
    game = np.repeat(np.arange(60), 7)
    players = np.where(game < 45, 2, 4)
    fold = folds(game, players)
    assert all(len(np.unique(fold[game == g])) == 1 for g in range(60))
    for seats, count in ((2, 45), (4, 15)):
        assert {len(np.unique(game[(fold == f) & (players == seats)])) for f in range(5)} == {count // 5}


def test_cross_validation_never_learns_from_the_game_that_it_judges() -> None:
    game = np.repeat(np.arange(10), 3)
    fold, judged = folds(game, np.full(30, 2)), game < 6

    def predictor(train: Array) -> object:
        def predict(rows: Array) -> Floats:
            assert not set(game[train]) & set(game[rows])
            assert judged[rows].all()
            return np.ones((len(rows), 4))

        return predict

    assert (cross_validated(predictor, fold, judged) == judged[:, None]).all()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def drawn() -> tuple[Array, Array, Array]:
    """Inputs [B, 4, 2], seats alive, and outcomes drawn from a softmax regression with weights 2 and -1."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4000, 4, 2))
    alive = rng.random((4000, 4)) < 0.8
    alive[~alive.any(axis=1)] = TWO
    p = softmax(x @ [2.0, -1.0], alive)
    return x, alive, np.array([rng.multinomial(1, row) for row in p], float)


def test_the_regression_finds_the_weights_that_made_the_outcomes(drawn: tuple[Array, Array, Array]) -> None:
    assert fit_logit(*drawn) == pytest.approx([2, -1], abs=0.15)


def test_no_other_weights_fit_better(drawn: tuple[Array, Array, Array]) -> None:
    x, alive, target = drawn
    best = fit_logit(x, alive, target, ridge=0.0)
    least = log_loss(softmax(x @ best, alive), target).mean()
    for d in np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]) * 1e-3:
        assert log_loss(softmax(x @ (best + d), alive), target).mean() > least


def test_a_perfect_separation_still_has_an_end() -> None:
    x = np.zeros((6, 4, 1))
    x[:, 0] = 1
    alive, target = np.tile(TWO, (6, 1)), np.tile(np.eye(4)[0], (6, 1))
    assert 1 < fit_logit(x, alive, target)[0] < 50


def test_chances_stand_on_living_seats_only(drawn: tuple[Array, Array, Array]) -> None:
    x, alive, _ = drawn
    p = softmax(500 * x[:, :, 0], alive)
    assert (p[~alive] == 0).all()
    assert p.sum(axis=1) == pytest.approx(1)


def test_the_slope_tells_too_sure_from_too_timid(drawn: tuple[Array, Array, Array]) -> None:
    x, alive, target = drawn
    score = x @ [2.0, -1.0]
    for power, too in ((1.0, 1.0), (2.0, 0.5), (0.5, 2.0)):
        assert slope(softmax(power * score, alive), alive, target) == pytest.approx(too, rel=0.1)


def test_intervals_of_slopes_hold_the_truth_nearly_always(drawn: tuple[Array, Array, Array]) -> None:
    held = 0
    for part in np.split(np.arange(4000), 10):
        x, alive, target = (a[part] for a in drawn)
        p = softmax(x @ [2.0, -1.0], alive)
        low, high = interval_of_slope(p, alive, target, np.arange(400) // 10)
        assert low < slope(p, alive, target) < high
        held += low < 1 < high
    assert held >= 8
