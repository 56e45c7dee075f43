from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.value.evaluate import evaluate, scores
from td_loop.value.model import SplineValue
from tests.value.strategies import batches, values


def one_curve(knots: list[float], two: list[float], four: list[float]) -> SplineValue:
    coef = np.array([[two], [four]], dtype=np.float64)
    return SplineValue(np.array([knots], dtype=np.float64), coef, ("x",), {"gamma": 0.97})


@pytest.mark.parametrize(
    ("x", "score"),
    [
        (-5.0, 1.0),  # below the bottom knot: constant
        (0.0, 1.0),
        (1.0, 2.0),  # halfway to the next knot
        (2.0, 3.0),
        (2.5, 1.0),
        (3.0, -1.0),
        (9.0, -1.0),  # above the top knot: constant
    ],
)
def test_a_curve_is_linear_between_knots_and_constant_beyond(x: float, score: float) -> None:
    v = one_curve([0, 2, 3], [1, 3, -1], [0, 0, 0])
    features = np.full((1, 4, 1), x, np.float32)
    assert scores(v, features, np.array([2], np.int8))[0, 0] == pytest.approx(score)


@pytest.mark.parametrize(("players", "segment"), [(2, 0), (3, 1), (4, 1)])
def test_three_players_use_the_four_seat_segment(players: int, segment: int) -> None:
    v = one_curve([0, 1], [1, 1], [2, 2])
    features = np.zeros((1, 4, 1), np.float32)
    assert scores(v, features, np.array([players], np.int8))[0, 0] == v.coef[segment, 0, 0]


def test_value_is_the_softmax_of_scores() -> None:
    v = one_curve([0, 1], [0, 0], [0, 1])
    features = np.array([[[0], [1], [1], [0]]], np.float32)
    alive = np.array([[True, True, False, True]])
    e = np.exp(1)
    expected = [1 / (2 + e), e / (2 + e), 0, 1 / (2 + e)]
    assert evaluate(v, features, np.array([4], np.int8), alive)[0] == pytest.approx(expected)


def test_with_nobody_alive_every_chance_is_zero() -> None:
    v = one_curve([0, 1], [0, 0], [0, 1])
    out = evaluate(v, np.zeros((1, 4, 1), np.float32), np.array([2], np.int8), np.zeros((1, 4), np.bool_))
    assert not out.any()


def test_an_enormous_score_does_not_overflow() -> None:
    v = one_curve([0, 1], [-1e300, 1e300], [0, 0])
    features = np.array([[[0], [1], [0], [0]]], np.float32)
    alive = np.array([[True, True, False, False]])
    assert evaluate(v, features, np.array([2], np.int8), alive).tolist() == [[0.0, 1.0, 0.0, 0.0]]


@given(st.data())
def test_rows_sum_to_one_over_seats_alive_and_are_exactly_zero_elsewhere(data: st.DataObject) -> None:
    v = data.draw(values())
    features, players, alive = data.draw(batches(v))
    out = evaluate(v, features, players, alive)
    assert np.allclose(out.sum(axis=1), 1, atol=1e-12)
    assert (out[~alive] == 0).all()
    assert (out >= 0).all()


@given(st.data(), st.floats(-5, 5))
def test_a_constant_added_to_a_curve_changes_nothing(data: st.DataObject, constant: float) -> None:
    v = data.draw(values())
    features, players, alive = data.draw(batches(v))
    coef = v.coef.copy()
    coef[:, data.draw(st.integers(0, len(v.knots) - 1))] += constant
    moved = SplineValue(v.knots, coef, v.feature_names, v.meta)
    before, after = (evaluate(u, features, players, alive) for u in (v, moved))
    assert np.allclose(before, after, atol=1e-9)


@given(st.data())
def test_a_row_does_not_depend_on_its_neighbours(data: st.DataObject) -> None:
    v = data.draw(values())
    features, players, alive = data.draw(batches(v))
    whole = evaluate(v, features, players, alive)
    for b in range(len(players)):
        assert (evaluate(v, features[b : b + 1], players[b : b + 1], alive[b : b + 1])[0] == whole[b]).all()


@given(st.data())
def test_swapping_two_seats_swaps_their_chances(data: st.DataObject) -> None:
    v = data.draw(values())
    features, players, alive = data.draw(batches(v))
    order = np.array([1, 0, 2, 3])
    before = evaluate(v, features, players, alive)
    after = evaluate(v, features[:, order], players, alive[:, order])
    assert np.allclose(before[:, order], after, atol=1e-12)
