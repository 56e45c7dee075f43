from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from td_loop.checks import Severity, failed, stage3
from td_loop.checks.stage3 import (
    PLATEAU_KL,
    branch_a_fraction,
    engine_fallback,
    kl_drift,
    no_mass_on_dead_seats,
    row_count,
    segment_means,
    targets_are_distributions,
)
from tests.checks.caches import make_cache
from tests.checks.strategies import caches, caches_and_row, seeds

Row = tuple[dict[str, Any], str, int]


# S3.1


@given(caches())
def test_valid_targets_put_no_mass_on_dead_seats(cache: dict[str, Any]) -> None:
    assert no_mass_on_dead_seats(cache).passed is True


@given(caches_and_row(), st.floats(2.0**-100, 1.0, width=32))
def test_any_mass_on_a_dead_seat_is_found_in_either_branch(where: Row, mass: float) -> None:
    cache, b, row = where
    dead = np.flatnonzero(~cache[f"alive_at_s_for_rows_{b}"][row])
    assume(len(dead) > 0)
    cache[f"branch_{b}_target"][row, dead[0]] = mass
    verdict = no_mass_on_dead_seats(cache)
    assert verdict.passed is False
    assert verdict.severity is Severity.HARD
    assert verdict.numbers == {"n_r": int(b == "r"), "n_a": int(b == "a")}


# S3.2


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-3, 3))
def test_row_count_passes_exactly_when_the_sum_is_n(n_r: int, n_a: int, off: int) -> None:
    verdict = row_count(n_r, n_a, n_r + n_a + off)
    assert verdict.passed is (off == 0)
    assert verdict.severity is Severity.HARD


# S3.3


@given(caches())
def test_valid_targets_are_distributions(cache: dict[str, Any]) -> None:
    assert targets_are_distributions(cache).passed is True


@given(caches_and_row(), st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(0, 3))
def test_one_value_that_is_not_finite_is_found_on_any_seat(where: Row, value: float, seat: int) -> None:
    cache, b, row = where
    cache[f"branch_{b}_target"][row, seat] = value
    verdict = targets_are_distributions(cache)
    assert verdict.passed is False
    assert verdict.severity is Severity.HARD
    assert verdict.numbers[f"not_finite_{b}"] == 1
    assert f"row {row} of Branch {b.upper()}" in verdict.message


@given(caches_and_row(), st.floats(2e-5, 0.9), st.booleans())
def test_a_row_that_does_not_sum_to_one_is_found(where: Row, error: float, more: bool) -> None:
    cache, b, row = where
    cache[f"branch_{b}_target"][row] *= 1.0 + error if more else 1.0 - error
    assert targets_are_distributions(cache).passed is False


@given(caches_and_row())
def test_mass_on_dead_seats_does_not_count_towards_the_sum(where: Row) -> None:
    cache, b, row = where
    alive = cache[f"alive_at_s_for_rows_{b}"]
    seat = int(np.argmax(cache[f"branch_{b}_target"][row]))
    alive[row, seat] = False
    assert targets_are_distributions(cache).passed is False


@given(caches_and_row(), st.floats(1e-4, 1.0))
def test_a_negative_target_cannot_hide_behind_a_sum_of_one(where: Row, amount: float) -> None:
    cache, b, row = where
    alive = np.flatnonzero(cache[f"alive_at_s_for_rows_{b}"][row])
    assume(len(alive) >= 2)
    target = np.zeros(4, np.float32)
    target[alive[0]], target[alive[1]] = 1.0 + amount, -amount
    cache[f"branch_{b}_target"][row] = target
    assert targets_are_distributions(cache).passed is False


# S3.4


@given(st.integers(1, 10**6), st.floats(0.0, 1.0), st.floats(-2.9, 2.9))
def test_a_fraction_within_three_sigma_passes(n: int, k: float, z: float) -> None:
    n_a = round(n * k + z * math.sqrt(n * k * (1 - k)))
    assume(0 <= n_a <= n)
    assume(abs(n_a - n * k) <= 3 * math.sqrt(n * k * (1 - k)))  # rounding may step over the edge
    assert branch_a_fraction(n - n_a, n_a, k).passed is True


@given(st.integers(1, 10**6), st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_a_fraction_beyond_three_sigma_is_found(n: int, k: float, n_a: int) -> None:
    assume(n_a <= n)
    assume(abs(n_a - n * k) > 3 * math.sqrt(n * k * (1 - k)) + 0.5)
    verdict = branch_a_fraction(n - n_a, n_a, k)
    assert verdict.passed is False
    assert verdict.severity is Severity.SOFT


@pytest.mark.parametrize(("k", "n_a"), [(0.0, 0), (1.0, 3), (1 / 3, 1)])
def test_exact_fractions_pass_where_sigma_is_zero_or_n_tiny(k: float, n_a: int) -> None:
    assert branch_a_fraction(3 - n_a, n_a, k).passed is True


@pytest.mark.parametrize(("k", "n_a"), [(0.0, 1), (1.0, 2)])
def test_one_row_of_the_wrong_branch_fails_at_k_zero_and_one(k: float, n_a: int) -> None:
    assert branch_a_fraction(3 - n_a, n_a, k).passed is False


# S3.5


@given(st.lists(st.booleans(), min_size=1), st.floats(0.0, 1.0))
def test_fallback_rate_is_the_mean_and_warns_above_its_limit(flags: list[bool], limit: float) -> None:
    verdict = engine_fallback(np.array(flags), limit)
    rate = sum(flags) / len(flags)
    assert verdict.numbers["rate"] == pytest.approx(rate)
    assert verdict.passed is (rate <= limit)
    assert verdict.severity is Severity.SOFT


# S3.6


@given(st.integers(2, 4), st.integers(1, 20), st.floats(0.01, 0.2), st.floats(-2.0, 2.0))
def test_a_seat_that_deviates_by_more_than_tau_is_found(p: int, n: int, tau: float, times_tau: float) -> None:
    assume(abs(abs(times_tau) - 1.0) > 0.01)
    shift = times_tau * tau
    assume(abs(shift) < 1 / p)
    cache = make_cache(0, n, n)
    for b in "ra":
        cache[f"branch_{b}_n_players"][:] = p
        target = np.zeros((n, 4))
        target[:, :p] = 1 / p
        target[:, 0] += shift
        target[:, 1] -= shift
        cache[f"branch_{b}_target"] = target
    verdict = segment_means(cache, tau)
    assert verdict.passed is (abs(times_tau) < 1.0)
    assert verdict.severity is Severity.SOFT
    assert verdict.numbers["worst"] == pytest.approx(abs(shift))


def test_segments_are_judged_apart() -> None:
    cache = make_cache(0, 2, 0)
    cache["branch_r_n_players"][:] = [2, 4]
    cache["branch_r_target"][:] = [[0.5, 0.5, 0, 0], [0.7, 0.1, 0.1, 0.1]]
    verdict = segment_means(cache, 0.05)
    assert verdict.passed is False
    assert set(verdict.numbers["means"]) == {"2P", "4P"}
    assert "seat 0 of 4P is 0.700" in verdict.message


@given(caches_and_row())
def test_a_nan_target_cannot_pass_as_uniform(where: Row) -> None:
    cache, b, row = where
    cache[f"branch_{b}_target"][row, 0] = math.nan
    assert segment_means(cache, 1.0).passed is False


# S3.7


@given(seeds, st.integers(1, 30))
def test_kl_of_equal_targets_is_zero(seed: int, n: int) -> None:
    cache = make_cache(seed, n, 0)
    verdict = kl_drift(cache, cache, ())
    # The floor lets a prior below 1e-6 count as 1e-6, so the mean may fall a hair below zero.
    assert -4e-6 < verdict.numbers["kl"] <= 0.0
    assert verdict.numbers["rows"] == n
    assert verdict.passed is True


@given(seeds, st.integers(1, 30))
def test_kl_joins_rows_by_frame_and_focal_seat_whatever_their_order(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    now, before = make_cache(seed, n, 0), make_cache(seed, n, 0)
    before["branch_r_target"] = make_cache(seed + 1, n, 0)["branch_r_target"]
    expected = kl_drift(now, before, ()).numbers["kl"]
    order = rng.permutation(n)
    shuffled = {key: value[order] for key, value in before.items() if key.startswith("branch_r")}
    assert kl_drift(now, shuffled, ()).numbers["kl"] == pytest.approx(expected)


def test_kl_is_computed_by_hand_on_a_small_example() -> None:
    keys = ("branch_r_frame_id", "branch_r_focal_seat", "branch_r_target")
    now = dict(
        zip(
            keys,
            (
                np.array([7, 7, 8, 9]),
                np.array([0, 1, 0, 0]),
                np.array([[0.5, 0.5, 0, 0], [1.0, 0, 0, 0], [0.25, 0.75, 0, 0], [1.0, 0, 0, 0]]),
            ),
            strict=True,
        )
    )
    before = dict(
        zip(
            keys,
            (
                np.array([8, 7, 7]),
                np.array([0, 1, 2]),  # (7, 2) is not in `now`, (7, 0) and (9, 0) are not here
                np.array([[0.5, 0.5, 0, 0], [0.0, 1.0, 0, 0], [0.5, 0.5, 0, 0]]),
            ),
            strict=True,
        )
    )
    verdict = kl_drift(now, before, ())
    one = math.log(1.0 / 1e-6)  # (7, 1): the prior of 0 is floored
    other = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)  # (8, 0)
    assert verdict.numbers["rows"] == 2
    assert verdict.numbers["kl"] == pytest.approx((one + other) / 2)


@given(
    st.lists(st.one_of(st.none(), st.floats(0.0, 1e-3)), max_size=6),
    st.booleans(),
)
def test_plateau_means_three_consecutive_iterations_near_zero(kls: list[float | None], moved: bool) -> None:
    now, before = make_cache(0, 20, 0), make_cache(0, 20, 0)
    if moved:
        before["branch_r_target"] = np.roll(before["branch_r_target"], 1, axis=0)
    verdict = kl_drift(now, before, kls)
    recent = kls[-2:]
    flat = len(recent) == 2 and all(v is not None and v < PLATEAU_KL for v in recent) and not moved
    assert verdict.numbers["plateau"] is flat
    assert verdict.passed is not flat
    assert ("plateau" in verdict.message) is flat
    assert verdict.severity is Severity.SOFT


def test_targets_that_are_not_finite_do_not_pass_as_drift() -> None:
    cache = make_cache(0, 5, 0)
    cache["branch_r_target"][2, 0] = math.nan
    assert kl_drift(cache, make_cache(0, 5, 0), ()).passed is False


# all together


def test_no_data_is_neither_passed_nor_failed() -> None:
    verdicts = {
        v.id: v for v in stage3(make_cache(0, 0, 0), n=5, k=0.3, seg_uniform_tau=0.05, max_fallback_rate=0.2)
    }
    assert {i for i, v in verdicts.items() if v.passed is None} == {"S3.1", "S3.3", "S3.4", "S3.5", "S3.6", "S3.7"}
    assert verdicts["S3.2"].passed is False  # the missing rows themselves are a failure


@given(st.sampled_from([(30, 0, 0.0), (0, 30, 1.0)]), seeds)
def test_a_missing_branch_fails_no_hard_check(shape: tuple[int, int, float], seed: int) -> None:
    n_r, n_a, k = shape
    cache = make_cache(seed, n_r, n_a)
    verdicts = stage3(cache, n=30, k=k, seg_uniform_tau=0.05, max_fallback_rate=0.2, previous=cache)
    assert failed(verdicts, Severity.HARD) == ()
    assert [v.id for v in verdicts] == [f"S3.{i}" for i in range(1, 8)]
    assert next(v for v in verdicts if v.id == "S3.4").passed is True
