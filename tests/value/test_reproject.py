from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from td_loop.value.evaluate import scores
from td_loop.value.knots import derive_knots
from td_loop.value.reproject import change_of_value, reproject
from tests.synthetic import games, value_function
from tests.value.strategies import batches, values

G = games(3, 40, 12)
ROWS = (G.features, G.n_players, G.alive)


@given(st.data())
def test_onto_the_same_knots_is_the_identity(data: st.DataObject) -> None:
    v = data.draw(values())
    features, players, alive = data.draw(batches(v))
    same = reproject(v, v.knots, features, players, alive)
    assert np.allclose(same.coef, v.coef, rtol=0, atol=1e-9)
    assert change_of_value(v, same, features, players, alive).largest < 1e-9


def test_finer_knots_that_hold_the_old_ones_change_nothing() -> None:
    v = value_function(3, 5)
    middle = (v.knots[:, 1:] + v.knots[:, :-1]) / 2
    finer = np.sort(np.concatenate((v.knots, middle), axis=1), axis=1)
    change = change_of_value(v, reproject(v, finer, *ROWS), *ROWS)
    assert change.largest < 1e-9


def test_other_knots_give_the_nearest_curve() -> None:
    v = value_function(1, 9, seed=4)
    knots = derive_knots(G.features[:, :, :1], G.alive, 6)
    rows = (G.features[:, :, :1], G.n_players, G.alive)
    best = reproject(v, knots, *rows)
    two = G.n_players == 2

    def squares(coef: np.ndarray) -> float:
        moved = type(v)(knots, coef, v.feature_names, v.meta)
        rest = scores(moved, rows[0], rows[1]) - scores(v, rows[0], rows[1])
        return float((rest[two][G.alive[two]] ** 2).sum())

    least = squares(best.coef)
    for k in range(6):
        for by in (-0.05, 0.05):
            worse = best.coef.copy()
            worse[0, 0, k] += by
            assert squares(worse) > least


def test_where_there_are_no_data_the_old_curve_is_copied() -> None:
    v = value_function(1, 5)
    knots = np.array([[-50.0, -40.0, -30.0]])
    moved = reproject(v, knots, G.features[:1, :, :1], G.n_players[:1], G.alive[:1])
    other = 1 - int(G.n_players[0] > 2)  # the segment without a row
    assert np.allclose(moved.coef[other, 0], v.coef[other, 0, 0])


def test_the_change_of_v_is_over_seats_alive() -> None:
    v = value_function(1, 3)
    coef = v.coef.copy()
    coef[:, 0, :] *= -1
    other = type(v)(v.knots, coef, v.feature_names, v.meta)
    rows = (G.features[:, :, :1], G.n_players, G.alive)
    change = change_of_value(v, other, *rows)
    assert 0 < change.mean < change.largest <= 1
