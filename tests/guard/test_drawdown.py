from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.guard.detectors.drawdown import RewardDrawdown, noise_of, rising_fit
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import Record

BARE = RewardDrawdown(noise=0.0, patience=1)
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def run(rewards: Sequence[float | None] | Floats, detector: RewardDrawdown | None = None) -> list[Finding]:
    detector = detector or RewardDrawdown()
    state, out = detector.start(), []
    for step, x in enumerate(rewards):
        state, finding = detector.step(state, Record(step, {} if x is None else {"reward": float(x)}))
        out.append(finding)
    return out


def tripped(found: Sequence[Finding]) -> int | None:
    return next((step for step, f in enumerate(found) if f.trips), None)


def noisy(level: Floats, sigma: float, seed: int = 0) -> Floats:
    return level + sigma * np.random.default_rng(seed).standard_normal(len(level))


def fall(n: int, at: int, low: float, high: float) -> Floats:
    """`high`, and `low` from `at` on."""
    return np.where(np.arange(n) < at, high, low)


@pytest.mark.parametrize(("share", "trips"), [(0.71, False), (0.69, True)])
@pytest.mark.parametrize("peak", [1.0, 250.0])
def test_positive_rewards_trip_at_70_percent_of_the_peak(peak: float, share: float, trips: bool) -> None:
    wiggle = 1.0 + 1e-4 * np.sin(np.arange(400))  # it has to change, or it says nothing of noise
    found = run(fall(400, 300, share * peak, peak) * wiggle)
    assert (tripped(found) is not None) is trips


@given(st.floats(0.05, 0.95), st.floats(0.01, 1e4), st.integers(0, 5))
def test_positive_rewards_are_judged_by_the_plain_rule(drop: float, peak: float, seed: int) -> None:
    """The document's rule, computed the plain way, from the peak of the averages so far."""
    rewards = peak * (1.0 + 0.05 * np.random.default_rng(seed).random(300))
    rewards[200:] *= 0.5
    averages = [(sum(w) - max(w) - min(w)) / 18 for w in (rewards[k - 19 : k + 1] for k in range(19, 300))]
    found = run(rewards, RewardDrawdown(drop=drop, noise=0.0, patience=1))
    for step in range(150, 300):
        average, best = averages[step - 19], max(averages[: step - 18])
        if abs(average - (1.0 - drop) * best) > 1e-9 * peak:
            assert (found[step].health is Health.SICK) == (average < (1.0 - drop) * best)


@pytest.mark.parametrize(("to", "trips"), [(-450.0, False), (-560.0, True)])
def test_negative_rewards_trip_when_30_percent_of_what_was_gained_is_lost(to: float, trips: bool) -> None:
    """From -1300 to -150: 345 may be lost, which ends at -495."""
    learnt = np.concatenate([np.full(100, -1300.0), np.linspace(-1300.0, -150.0, 300), np.full(200, -150.0)])
    found = run(noisy(np.concatenate([learnt, np.full(200, to)]), 15.0))
    assert (tripped(found) is not None) is trips
    assert tripped(found[:600]) is None


def test_negative_rewards_that_never_rose_are_compared_with_their_size() -> None:
    assert tripped(run(noisy(fall(600, 400, -250.0, -200.0), 5.0))) is None
    step = tripped(run(noisy(fall(600, 400, -270.0, -200.0), 5.0)))
    assert step is not None
    assert 400 < step < 450


@pytest.mark.parametrize("seed", range(5))
def test_rewards_around_zero_trip_by_a_fall_and_not_by_noise(seed: int) -> None:
    calm = noisy(np.zeros(3000), 0.15, seed)
    assert tripped(run(calm)) is None
    step = tripped(run(calm - np.where(np.arange(3000) < 2000, 0.0, 0.7)))
    assert step is not None
    assert 2000 < step < 2050


@pytest.mark.parametrize("seed", range(5))
def test_a_late_dip_that_recovers_does_not_trip(seed: int) -> None:
    level = np.full(2000, 400.0)
    level[1500:1510] *= 0.0  # deep and short
    level[1700:1800] *= 0.82  # shallow and long
    assert tripped(run(noisy(level, 30.0, seed))) is None


def test_learning_is_no_noise_that_hides_a_fall() -> None:
    level = np.linspace(10.0, 400.0, 800)
    level[700:] = 200.0
    step = tripped(run(noisy(level, 10.0)))
    assert step is not None
    assert 700 < step < 750


def test_one_jackpot_is_no_peak() -> None:
    rewards = noisy(np.full(600, 10.0), 0.5)
    rewards[300] = 1e6
    assert tripped(run(rewards)) is None


def test_rewards_that_are_missing_or_not_finite_change_nothing() -> None:
    plain = noisy(fall(400, 300, 1.0, 10.0), 0.2).tolist()
    with_gaps: list[float | None] = [y for x in plain for y in (x, None, math.nan)]
    found = run(with_gaps)
    assert {f.health for f in found[1::3]} == {f.health for f in found[2::3]} == {Health.NO_DATA}
    assert [f.health for f in found[::3]] == [f.health for f in run(plain)]


def test_a_reward_that_is_only_repeated_is_not_judged() -> None:
    """One lucky first episode, whose reward every step repeats, is no peak to fall from."""
    assert {f.health for f in run([-900.0] * 200 + [-1400.0] * 200)} == {Health.NO_DATA}


def test_a_solved_task_that_collapses_trips() -> None:
    learnt = noisy(np.linspace(20.0, 500.0, 100), 1.0)
    step = tripped(run(np.concatenate([learnt, np.full(400, 500.0), np.full(60, 20.0)])))
    assert step is not None
    assert 500 < step < 540


def test_a_reward_of_zero_has_no_scale() -> None:
    found = run([0.0, 1e-300] * 10 + [0.0] * 700 + [-1.0] * 5, BARE)
    assert found[-10].health is Health.NO_DATA
    assert "no scale" in found[-10].why


def test_the_peak_is_forgotten_after_its_window() -> None:
    rewards = noisy(fall(900, 150, 75.0, 100.0), 0.5)
    late = rewards.copy()
    late[-100:] = 60.0 + rewards[-100:] * 0.001
    assert tripped(run(late, BARE)) is None  # 20 % below 75; the 100 is out of the window
    assert tripped(run(np.delete(late, slice(200, 700)), BARE)) is not None


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
def test_the_rising_fit_rises_and_keeps_the_mean(values: list[float]) -> None:
    fitted = rising_fit(values)
    assert all(b >= a - 1e-9 for a, b in pairwise(fitted))
    assert sum(fitted) == pytest.approx(sum(values), abs=1e-6)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30).map(sorted))
def test_what_rises_is_its_own_fit(values: list[float]) -> None:
    assert rising_fit(values) == pytest.approx(values, abs=1e-9)


def test_noise_is_told_from_learning() -> None:
    noise = np.random.default_rng(4).standard_normal(100)
    still, learning = noise_of(noise.tolist()), noise_of((noise + np.linspace(0.0, 300.0, 100)).tolist())
    assert 1.0 < still < 2.2  # the difference of two, of unit variance: 1.41, and a little more for few blocks
    assert 0.7 < learning / still < 1.4
