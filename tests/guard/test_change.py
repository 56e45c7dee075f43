"""Robust statistics, jumps and slow drift."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.guard.detectors import Drift, Jump, robust
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import Record

few = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)
ALL_WAYS = [
    ("up", 1.0, True),
    ("up", -1.0, False),
    ("down", -1.0, True),
    ("both", 1.0, True),
    ("both", -1.0, True),
]


def noise(n: int, seed: int = 0, sigma: float = 0.3, level: float = 0.01) -> list[float]:
    return (level * np.exp(sigma * np.random.default_rng(seed).standard_normal(n))).tolist()


def run(detector: Jump | Drift, values: Sequence[float | None]) -> list[Finding]:
    state, out = detector.start(), []
    for step, x in enumerate(values):
        state, finding = detector.step(state, Record(step, {} if x is None else {detector.metric: x}))
        out.append(finding)
    return out


@given(few)
def test_median_is_the_middle(values: list[float]) -> None:
    assert robust.median(sorted(values)) == pytest.approx(statistics.median(values), rel=1e-12, abs=1e-9)


@given(few, st.floats(-1e6, 1e6))
def test_spread_is_the_median_absolute_deviation(values: list[float], centre: float) -> None:
    deviations = sorted(abs(x - centre) for x in values)
    expected = robust.SIGMA * deviations[len(values) // 2]
    assert robust.spread(sorted(values), centre) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(st.floats(-10, 10), max_size=30), st.integers(1, 8))
def test_a_window_holds_the_newest_values_in_both_orders(values: list[float], size: int) -> None:
    window: list[float] = []
    ranked: list[float] = []
    for x in values:
        before = (list(window), list(ranked))
        after = robust.push(window, ranked, x, size)
        assert (window, ranked) == before  # what was handed over stays as it is
        window, ranked = after
    assert window == values[-size:]
    assert ranked == sorted(window)


@pytest.mark.parametrize(("bad", "sign", "trips"), ALL_WAYS)
@pytest.mark.parametrize("scale", ["log", "linear"])
def test_a_jump_trips_in_the_ways_that_are_bad(bad: str, sign: float, trips: bool, scale: str) -> None:
    rng = np.random.default_rng(1)
    calm = (5.0 + 0.2 * rng.standard_normal(150)).tolist()
    detector = Jump(metric="x", bad=bad, scale=scale, unit=0.1, floor=0.01)
    found = run(detector, [*calm, *[5.0 + sign * 4.9] * 3])
    assert not any(f.trips for f in found[:-1])
    assert found[-1].trips is trips


def test_a_jump_needs_its_warm_up() -> None:
    found = run(Jump.of("kl"), [*noise(99), 1.0, 1.0, 1.0, 1.0])
    assert {f.health for f in found[:100]} == {Health.NO_DATA}
    assert [f.trips for f in found[100:]] == [False, False, True]


def test_two_outliers_in_a_row_trip_nothing() -> None:
    found = run(Jump.of("kl"), [*noise(150), 1.0, 1.0, *noise(20)])
    assert [f.health for f in found[150:152]] == [Health.SICK] * 2
    assert not any(f.trips for f in found)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_blind_nothing(bad: float) -> None:
    calm: list[float | None] = [x for pair in zip(noise(120), [bad] * 120, strict=True) for x in pair]
    found = run(Jump.of("kl"), [*calm, 1.0, bad, 1.0, None, 1.0])
    assert [f.trips for f in found[-5:]] == [False, False, False, False, True]
    assert not any(f.trips for f in found[:-1])
    plain = run(Jump.of("kl"), [*noise(120), 1.0, 1.0, 1.0])
    assert found[-1].value == plain[-1].value


def test_a_metric_that_hardly_moves_does_not_make_trifles_a_jump() -> None:
    found = run(Jump.of("value_loss"), [1e-6] * 150 + [1e-3] * 10)
    assert {f.health for f in found[100:]} == {Health.HEALTHY}


def test_without_any_size_to_compare_with_there_is_no_data() -> None:
    found = run(Jump(metric="x", scale="linear"), [0.0] * 150 + [1.0] * 3)
    assert {f.health for f in found} == {Health.NO_DATA}


def test_a_drift_below_every_limit_trips() -> None:
    rng = np.random.default_rng(2)
    ramp = np.exp(np.clip((np.arange(3000) - 1500) / 600, 0.0, 1.0) * math.log(4.0))
    values = (0.008 * ramp * np.exp(0.4 * rng.standard_normal(3000))).tolist()
    first = [f.trips for f in run(Drift.of("kl"), values)].index(True)
    assert 1500 < first < 2400
    falling = run(Drift.of("kl"), [0.008 * 0.008 / x for x in values])
    assert not any(f.trips for f in falling)


def test_a_drift_is_suspected_before_it_trips() -> None:
    rng = np.random.default_rng(2)
    ramp = np.exp(np.clip((np.arange(3000) - 1500) / 600, 0.0, 1.0) * math.log(4.0))
    found = run(Drift.of("kl"), (0.008 * ramp * np.exp(0.4 * rng.standard_normal(3000))).tolist())
    first = [f.trips for f in found].index(True)
    assert found[first - 1].health is Health.SICK
    assert {f.health for f in found[600:1400]} == {Health.HEALTHY}


def test_single_blocks_cannot_make_a_drift() -> None:
    values = noise(1200)
    values[1000:1008] = [1e6] * 8
    assert not any(f.trips for f in run(Drift.of("kl"), values))


def test_a_drift_of_a_metric_that_can_go_wrong_both_ways() -> None:
    rng = np.random.default_rng(3)
    calm = 5.0 + 0.2 * rng.standard_normal(3000)
    fall = calm - np.clip((np.arange(3000) - 1500) / 300, 0.0, 1.0) * 4.0
    detector = Drift(metric="x", bad="both", scale="linear", floor=0.01)
    assert not any(f.trips for f in run(detector, calm.tolist()))
    assert any(f.trips for f in run(detector, fall.tolist()))
    assert "away" in next(f.why for f in run(detector, fall.tolist()) if f.trips)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_that_grow_with_the_returns_are_no_drift(seed: int) -> None:
    medians = [3.4, 2.1, 2.4, 3.4, 4.2, 6.6, 11.9, 13.3, 12.3, 13.7, 16.7, 21.5, 24.0, 33.2, 34.9, 38.4]
    every = 369  # rounds, of the critic of stable-baselines3's SAC while it learns Pendulum
    x = np.interp(np.arange(16 * every), every * (np.arange(16) + 0.5), np.log(medians))
    grown = np.exp(x) * noise(len(x), seed, level=1.0)
    assert all(f.health is not Health.SICK for f in run(Drift.of("grad_norm"), grown.tolist()))
    grown[3000:] *= np.exp(0.004 * np.arange(len(x) - 3000).clip(max=1000))
    assert any(f.trips for f in run(Drift.of("grad_norm"), grown.tolist()))


def test_gradients_that_were_next_to_nothing_may_come_back() -> None:
    """As those of DQN do when its target network is renewed after thousands of rounds."""
    calm = noise(300, level=0.04)
    assert not any(f.trips for f in run(Jump.of("grad_norm"), [*calm, *[2.5] * 20]))
    assert any(f.trips for f in run(Jump.of("grad_norm"), [*calm, *[250.0] * 3]))
