"""The detectors with fixed limits, non-finite values, and silence."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from td_loop.errors import UsageError
from td_loop.guard.detectors import (
    Drift,
    EntropyCollapse,
    Jump,
    KlSpike,
    NonFinite,
    RewardDrawdown,
    Stalled,
    ValueLossExplosion,
    stalled,
)
from td_loop.guard.health import Detector, Finding, Health
from td_loop.guard.record import METRICS, Record

LIMITS = [
    (KlSpike(), "kl", 0.05, 0.0501),
    (EntropyCollapse(), "entropy", 0.01, 0.0099),
    (ValueLossExplosion(), "value_loss", 50.0, 50.1),
]


def findings(detector: Detector[Any], records: Iterable[Record]) -> list[Finding]:
    state = detector.start()
    out = []
    for record in records:
        state, finding = detector.step(state, record)
        out.append(finding)
    return out


def series(metric: str, values: Iterable[float | None]) -> list[Record]:
    return [Record(n, {} if x is None else {metric: x}) for n, x in enumerate(values)]


@pytest.mark.parametrize(("detector", "metric", "fine", "bad"), LIMITS, ids=str)
def test_three_bad_steps_in_a_row_trip(detector: Detector[Any], metric: str, fine: float, bad: float) -> None:
    found = findings(detector, series(metric, [fine, bad, bad, fine, bad, bad, bad]))
    assert [f.health for f in found] == [Health.HEALTHY, *[Health.SICK] * 2, Health.HEALTHY, *[Health.SICK] * 3]
    assert [f.trips for f in found] == [False] * 6 + [True]
    assert found[-1].value == bad
    assert found[-1].limit == fine
    assert "step 3 in a row, patience is 3" in found[-1].why


@pytest.mark.parametrize(("detector", "metric", "fine", "bad"), LIMITS, ids=str)
def test_a_step_without_the_metric_neither_counts_nor_resets(
    detector: Detector[Any], metric: str, fine: float, bad: float
) -> None:
    found = findings(detector, series(metric, [bad, None, bad, None, None, bad]))
    assert [f.trips for f in found] == [False] * 5 + [True]
    assert [f.health for f in found].count(Health.NO_DATA) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("detector", "metric", "fine", "bad"), LIMITS, ids=str)
def test_a_value_that_is_not_finite_is_beyond_every_limit(
    detector: Detector[Any], metric: str, fine: float, bad: float, value: float
) -> None:
    assert [f.trips for f in findings(detector, series(metric, [value] * 3))] == [False, False, True]


def test_three_writers_of_one_step_are_one_step() -> None:
    records = [Record(step, {"kl": 0.1}) for step in (7, 7, 7, 8, 8, 8)]
    assert not any(f.trips for f in findings(KlSpike(), records))
    assert findings(KlSpike(), [*records, Record(9, {"kl": 0.1})])[-1].trips


def test_a_step_is_bad_if_one_of_its_records_is_whatever_their_order() -> None:
    for pair in ((0.1, 0.001), (0.001, 0.1)):
        records = [Record(step, {"kl": x}) for step in range(3) for x in pair]
        assert findings(KlSpike(), records)[-1].health is Health.SICK
        assert any(f.trips for f in findings(KlSpike(), records))


def test_steps_that_start_again_from_zero_still_count() -> None:
    records = [Record(step, {"kl": 0.1}) for step in (100, 0, 1)]
    assert findings(KlSpike(), records)[-1].trips


@pytest.mark.parametrize("metric", list(METRICS))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_trips_at_once(metric: str, value: float) -> None:
    (found,) = findings(NonFinite(), [Record(3, {"kl": 0.01, metric: value})])
    assert found.trips
    assert found.why == f"{metric} is {value}"


def test_only_the_named_metrics_have_to_be_finite() -> None:
    record = Record(0, {"grad_norm": math.inf, "my_loss": 1.0})
    assert findings(NonFinite(("kl", "my_loss")), [record])[0].health is Health.HEALTHY
    assert findings(NonFinite(("kl",)), [record])[0].health is Health.NO_DATA
    assert findings(NonFinite.from_mapping({"metrics": ["grad_norm"]}), [record])[0].trips


def test_silence_trips_only_after_its_limit_and_is_never_healthy() -> None:
    settings = Stalled(after_s=60.0, first_after_s=600.0)
    assert stalled(settings, 60.0).health is Health.NO_DATA
    assert stalled(settings, 60.1).trips
    assert stalled(settings, 60.1).why == "no record for 1m00s, limit 1m00s"
    assert stalled(settings, 600.0, first=True).health is Health.NO_DATA
    assert stalled(settings, 601.0, first=True).trips


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_time_that_runs_backwards_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="monotonic"):
        stalled(Stalled(), seconds)


@pytest.mark.parametrize(
    ("make", "key", "must"),
    [
        (lambda: KlSpike(max_kl=-0.1), r"\[detectors.kl\] max_kl = -0.1", "above 0.*default, 0.05"),
        (lambda: KlSpike(max_kl=math.nan), "max_kl = nan", "a finite number above 0"),
        (lambda: KlSpike(max_kl=True), "max_kl = True", "a finite number"),
        (lambda: KlSpike(patience=0), "patience = 0", "a whole number from 1.*default, 3"),
        (lambda: KlSpike(patience=2.5), "patience = 2.5", "a whole number"),  # type: ignore[arg-type]
        (lambda: KlSpike(max_kl="0.1"), "max_kl = '0.1'", "a finite number"),  # type: ignore[arg-type]
        (lambda: EntropyCollapse(min_entropy=math.inf), "min_entropy = inf", "a finite number"),
        (lambda: ValueLossExplosion(max_value_loss=0.0), "max_value_loss = 0.0", "above 0"),
        (lambda: NonFinite(()), "metrics = ", "a list of names"),
        (lambda: NonFinite("kl"), "metrics = 'kl'", "a list of names"),  # type: ignore[arg-type]
        (lambda: RewardDrawdown(drop=0.0), "drop = 0.0", "above 0 up to 1"),
        (lambda: RewardDrawdown(drop=30.0), "drop = 30.0", "above 0 up to 1"),
        (lambda: RewardDrawdown(window=2), "window = 2", "from 3"),
        (lambda: RewardDrawdown(window=200), "peak_window = 500", "from 1000"),
        (lambda: Jump.of("kl", {"window": 50}), r"\[detectors.jump.kl\] warmup = 100", "at most window, 50"),
        (lambda: Jump.of("kl", {"bad": "sideways"}), "bad = 'sideways'", "one of 'up', 'down', 'both'"),
        (Jump, "metric = ''", "the name of a metric"),
        (lambda: Drift.of("kl", {"warmup": 500}), "warmup = 500", "at most blocks, 128"),
        (lambda: Drift.of("kl", {"clip": 1.0}), "clip = 1.0", "above allowance, 2.5"),
        (lambda: Stalled(after_s=0.0), "after_s = 0.0", "above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_key_value_and_range(make: Any, key: str, must: str) -> None:
    with pytest.raises(UsageError, match=f"{key}.*must be.*{must}"):
        make()


@pytest.mark.parametrize(("table", "message"), [
    ({"max_k1": 0.1}, r"\[detectors.kl\] max_k1: there is no such key; did you mean 'max_kl'"),
    ({"zzz": 0.1}, "there are: max_kl, patience"),
])  # fmt: skip
def test_a_misspelt_key_is_refused_with_the_nearest_one(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        KlSpike.from_mapping(table)


def test_whole_numbers_of_a_toml_file_are_good_limits() -> None:
    assert KlSpike.from_mapping({"max_kl": 1, "patience": 5}) == KlSpike(1.0, 5)
