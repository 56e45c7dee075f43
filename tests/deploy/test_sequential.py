"""Evidence that may be looked at at any time: how often it errs, and what it adds up."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.canary.sequential import MORE, OTHER, DifferenceSums, ShareSums, spent

FloatArray = npt.NDArray[np.float64]
ALPHA = 0.05


def stratum(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Number, sum and squares over the last axis."""
    return np.full(x.shape[:-1], float(x.shape[-1])), x.sum(-1), (x**2).sum(-1)


def scalar(*values: float) -> tuple[FloatArray, ...]:
    return tuple(np.asarray(v) for v in values)


def crossed(draw: object, tests: int = 1000, looks: int = 150, sizes: tuple[int, int] = (4, 40)) -> float:
    """Share of tests in which equal subsets ever came to log(1 / ALPHA)."""
    sums, ever = DifferenceSums.zero((tests,)), np.zeros(tests, bool)
    for _ in range(looks):
        canary, stable = (draw((tests, n)) for n in sizes)  # type: ignore[operator]
        sums = sums.add(stratum(canary), stratum(stable))
        ever |= (sums.canary >= 40) & (sums.log_e() >= math.log(1 / ALPHA))
    return float(ever.mean())


@pytest.mark.parametrize("kind", ["gaussian", "coin", "t3", "rare", "often"])
def test_equal_means_are_found_different_in_few_of_many_tests_with_many_looks(kind: str) -> None:
    rng = np.random.default_rng(1)
    draws = {
        "gaussian": lambda shape: rng.normal(3.0, 2.0, shape),
        "coin": lambda shape: (rng.random(shape) < 0.5).astype(float),
        "t3": lambda shape: rng.standard_t(3, shape),
        "rare": lambda shape: (rng.random(shape) < 0.05).astype(float),
        "often": lambda shape: (rng.random(shape) < 0.95).astype(float),
    }
    assert crossed(draws[kind]) <= ALPHA


def test_a_mean_that_drifts_while_the_share_grows_is_no_difference() -> None:
    rng, tests, looks = np.random.default_rng(2), 500, 60
    sums, ever = DifferenceSums.zero((tests,)), np.zeros(tests, bool)
    plain = np.zeros(tests, bool)
    for k in range(looks):
        canary = rng.normal(-k, 1.0, (tests, 2 + k))  # the mean falls while the canary gets more and more
        stable = rng.normal(-k, 1.0, (tests, 2 + looks - k))
        sums = sums.add(stratum(canary), stratum(stable))
        ever |= sums.log_e() >= math.log(1 / ALPHA)
        plain |= sums.canary_sum / sums.canary < sums.stable_sum / sums.stable - 10
    assert plain.all()
    assert ever.mean() <= ALPHA


def test_a_difference_is_found() -> None:
    rng = np.random.default_rng(3)
    sums = DifferenceSums.zero((100,))
    for _ in range(60):
        sums = sums.add(stratum(rng.normal(0.5, 1.0, (100, 3))), stratum(rng.normal(1.0, 1.0, (100, 50))))
    assert (sums.log_e() > math.log(1 / ALPHA)).mean() > 0.95
    assert (sums.most(ALPHA) < 0).mean() > 0.95
    canary, stable = sums.means
    assert np.abs(canary - 0.5).mean() < 0.1
    assert np.abs(stable - 1.0).mean() < 0.1


def test_a_cluster_of_rewards_that_say_the_same_counts_as_one() -> None:
    rng = np.random.default_rng(4)
    canary, stable = rng.normal(0.0, 1.0, 40), rng.normal(1.0, 1.0, 400)
    once = DifferenceSums.zero().add(stratum(canary), stratum(stable))
    often = DifferenceSums.zero().add(stratum(np.repeat(canary, 5)), stratum(np.repeat(stable, 5)))
    assert once.z() == pytest.approx(often.z(cluster=5.0))
    assert often.z() > 2 * once.z()


def test_rewards_that_are_all_alike_are_no_evidence() -> None:
    sums = DifferenceSums.zero().add(scalar(50, 50 * 0.1, 50 * 0.01), scalar(500, 500 * 0.1, 500 * 0.01))
    assert sums.log_e() < 1
    assert DifferenceSums.zero().log_e() <= 0
    assert DifferenceSums.zero().most(ALPHA) == math.inf


@given(
    st.lists(st.tuples(*(st.integers(0, 30) for _ in range(2)), *(st.floats(-5, 5) for _ in range(2))), min_size=1)
)
def test_sums_of_a_stretch_are_those_of_its_strata(strata: list[tuple[int, int, float, float]]) -> None:
    sums, mark, alone = DifferenceSums.zero(), DifferenceSums.zero(), DifferenceSums.zero()
    for k, (n, m, x, y) in enumerate(strata):
        if k == len(strata) // 2:
            mark = sums
        added = scalar(n, n * x, n * x * x + n), scalar(m, m * y, m * y * y + m)
        sums = sums.add(*added)
        if k >= len(strata) // 2:
            alone = alone.add(*added)
    since = sums.since(mark)
    assert since.log_e() == pytest.approx(alone.log_e(), abs=1e-6)
    assert since.weight == pytest.approx(alone.weight)
    assert np.isnan(since.means[0]) == (since.weight == 0)


@given(st.integers(5, 400), st.integers(5, 400), st.floats(-2, 2), st.floats(0.001, 0.2))
def test_the_confidence_sequence_ends_below_zero_exactly_when_there_is_evidence(
    n: int, m: int, difference: float, alpha: float
) -> None:
    canary = scalar(n, n * difference, n * (difference**2 + 1))
    sums = DifferenceSums.zero().add(canary, scalar(m, 0, m))
    log_e, needed = float(sums.log_e()), math.log(1 / alpha)
    if abs(log_e - needed) > 1e-6:
        assert (sums.most(alpha) < 0) == (log_e > needed)


@pytest.mark.parametrize(("trials", "others", "events"), [(3, 7, 4), (1, 9, 2), (5, 5, 6)])
@pytest.mark.parametrize("theta", list(MORE))
def test_the_e_value_of_a_share_has_a_mean_of_at_most_one(
    trials: int, others: int, events: int, theta: float
) -> None:
    total = 0.0
    cases = list(itertools.combinations(range(trials + others), events))
    for case in cases:  # every way in which the events may fall to the trials of both
        k = sum(place < trials for place in case)
        grid = np.array([theta])
        sums = ShareSums.zero(grid).add_events(grid, scalar(k, trials), scalar(events - k, others))
        total += math.exp(float(sums.log_mean_e()))
    assert total / len(cases) <= 1 + 1e-9


def test_events_of_the_canary_beyond_its_share_are_found_and_of_equals_are_not() -> None:
    rng, tests = np.random.default_rng(5), 2000
    equal, worse = ShareSums.zero(MORE, (tests,)), ShareSums.zero(MORE, (tests,))
    ever = np.zeros(tests, bool)
    for _ in range(100):
        n, m = rng.poisson(5, tests).astype(float), rng.poisson(95, tests).astype(float)
        k, j = rng.binomial(n.astype(int), 0.01), rng.binomial(m.astype(int), 0.01)
        equal = equal.add_events(MORE, (k.astype(float), n), (j.astype(float), m))
        k = rng.binomial(n.astype(int), 0.1)
        worse = worse.add_events(MORE, (k.astype(float), n), (j.astype(float), m))
        ever |= equal.log_mean_e() >= math.log(1 / ALPHA)
    assert ever.mean() <= ALPHA
    assert (worse.log_mean_e() >= math.log(1 / ALPHA)).mean() > 0.99


def test_three_events_that_a_twentieth_of_the_traffic_had_alone_are_nearly_proof() -> None:
    sums = ShareSums.zero(MORE).add_events(MORE, scalar(4, 4), scalar(0, 76))
    assert sums.log_mean_e() > math.log(1000)


def test_an_event_that_is_seen_before_its_trial_is_no_surprise() -> None:
    sums = ShareSums.zero(MORE).add_events(MORE, scalar(1, 0), scalar(0, 0))
    assert sums.log_mean_e() == pytest.approx(0.0)


def test_shares_under_changing_weights_are_held_against_each_weight() -> None:
    rng, tests = np.random.default_rng(6), 1000
    fair, short = ShareSums.zero(OTHER, (tests,)), ShareSums.zero(OTHER, (tests,))
    ever = np.zeros(tests, bool)
    for weight in np.linspace(0.05, 0.95, 60):
        share, n = np.full(tests, weight), rng.poisson(50, tests)
        canary = rng.binomial(n, weight)
        fair = fair.add_draws(OTHER, share, canary.astype(float), (n - canary).astype(float))
        kept = rng.binomial(canary, 0.8)  # a fifth of the canary's episodes gets lost
        short = short.add_draws(OTHER, share, kept.astype(float), (n - canary).astype(float))
        ever |= fair.log_mean_e() >= math.log(1 / ALPHA)
    assert ever.mean() <= ALPHA
    assert (short.log_mean_e() >= math.log(1 / ALPHA)).mean() > 0.9


def test_all_tests_of_a_release_together_spend_no_more_than_alpha() -> None:
    assert sum(spent(ALPHA, start) for start in range(100_000)) <= ALPHA
    assert spent(ALPHA, 0) == ALPHA / 2
