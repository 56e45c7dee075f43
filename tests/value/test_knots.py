from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from td_loop.value.knots import coverage_stats, derive_knots, knots_of

FINITE32 = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(
    hnp.arrays(
        np.float32,
        st.integers(1, 60),
        elements=st.one_of(FINITE32, st.sampled_from([0.0, 1.0, -1.0])),
    ),
    st.integers(3, 32),
)
def test_knots_increase_strictly_whatever_the_data(x: np.ndarray, n_knots: int) -> None:
    knots = knots_of(x.astype(np.float64), n_knots)
    assert knots.shape == (n_knots,)
    assert np.isfinite(knots).all()
    assert (np.diff(knots) > 0).all()


def test_knots_of_continuous_data_are_quantiles() -> None:
    x = np.random.default_rng(0).normal(size=100_000)
    knots = knots_of(x, 16)
    shares = [(x <= k).mean() for k in knots]
    assert np.allclose(shares, np.linspace(0, 1, 16), atol=0.005)


def test_a_heavy_zero_takes_one_knot_and_is_not_below_the_first_interior_one() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(10_000) < 0.8, 0.0, rng.exponential(size=10_000))
    knots = knots_of(x, 16)
    assert knots[1] == 0.0
    assert (x < knots[1]).mean() == 0.0
    spread = np.histogram(x[x > 0], knots[1:])[0]
    assert spread.min() > 0.03 * (x > 0).sum()  # the freed knots went where the data differ


def test_few_distinct_values_each_get_a_knot() -> None:
    x = np.repeat([0.0, 1.0, 2.0, 5.0], 100)
    assert set(x) <= set(knots_of(x, 16))


def test_a_constant_feature_lies_inside_its_knots() -> None:
    knots = knots_of(np.full(50, 7.0), 5)
    assert knots[0] < 7.0 < knots[-1]


def test_seats_that_are_dead_do_not_count() -> None:
    features = np.zeros((100, 4, 1), np.float32)
    features[:, 0, 0] = np.linspace(1, 2, 100)
    features[:, 3, 0] = 1e6
    alive = np.tile([True, False, False, False], (100, 1))
    knots = derive_knots(features, alive, 8)
    assert (knots >= 0.9).all()
    assert (knots <= 2.1).all()


def test_coverage_names_the_worst_segment() -> None:
    knots = np.array([[0.0, 1.0, 2.0]])
    features = np.full((4, 4, 1), 1.5, np.float32)
    features[0] = 3.0  # above the top knot, in one of two rows of 2 players
    features[2] = -1.0  # below the bottom one, in one of two rows of 4
    players = np.array([2, 2, 4, 4], np.int8)
    alive = np.arange(4) < players[:, None]
    assert coverage_stats(knots, ("x",), features, players, alive) == {
        "x": {
            "frac_above_top_knot": pytest.approx(0.5),
            "frac_below_first_interior_knot": pytest.approx(0.5),
            "frac_below_bottom_knot": pytest.approx(0.5),
        }
    }


def test_values_on_a_knot_are_covered() -> None:
    knots = np.array([[0.0, 1.0, 2.0]])
    players = np.array([2, 2], np.int8)
    alive = np.arange(4) < players[:, None]
    for x in (1.0, 2.0):
        stats = coverage_stats(knots, ("x",), np.full((2, 4, 1), x, np.float32), players, alive)
        assert set(stats["x"].values()) == {0.0}


def test_no_rows_give_no_coverage() -> None:
    empty = np.empty((0, 4, 1), np.float32), np.empty(0, np.int8), np.empty((0, 4), np.bool_)
    assert coverage_stats(np.array([[0.0, 1.0, 2.0]]), ("x",), *empty) == {}


@given(st.integers(0, 2**32 - 1), st.integers(3, 16))
def test_fresh_knots_cover_the_data_that_they_were_derived_from(seed: int, n_knots: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(200, 4, 2)).astype(np.float32)
    players = np.full(200, 4, np.int8)
    alive = np.ones((200, 4), np.bool_)
    stats = coverage_stats(derive_knots(features, alive, n_knots), ("a", "b"), features, players, alive)
    for s in stats.values():
        assert s["frac_above_top_knot"] < 0.30
        assert s["frac_below_first_interior_knot"] < 0.70
