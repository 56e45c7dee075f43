from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import DataError, UsageError
from td_loop.files import dumps_json
from td_loop.guard.detectors import Drift, Jump, KlSpike, NonFinite, RewardDrawdown, Stalled
from td_loop.guard.health import Health
from td_loop.guard.panel import Judgement, Panel
from td_loop.guard.record import Record
from tests.guard.strategies import telemetry

# Windows so short that a property test gets past the warm-up.
SHORT = Panel(
    (
        NonFinite(("lr",)),
        KlSpike(),
        RewardDrawdown(window=3, peak_window=15, noise=1.0, patience=2),
        Jump(metric="entropy", bad="both", window=10, warmup=10),
        Drift(metric="value_loss", bad="both", block=2, blocks=8, warmup=8, allowance=0.5, limit=2.0),
        Drift(metric="grad_norm", scale="linear", block=1, blocks=8, warmup=8, allowance=0.5, limit=2.0),
    )
)


def judge(panel: Panel, records: list[Record]) -> list[Judgement]:
    state, out = panel.start(), []
    for record in records:
        state, judgement = panel.step(state, record)
        out.append(judgement)
    return out


@given(telemetry(), st.data())
def test_saving_and_restoring_anywhere_changes_nothing(records: list[Record], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(records)))
    state = SHORT.start()
    for record in records[:cut]:
        state, _ = SHORT.step(state, record)
    state = SHORT.restore(orjson.loads(dumps_json(SHORT.save(state))))
    rest = []
    for record in records[cut:]:
        state, judgement = SHORT.step(state, record)
        rest.append(judgement)
    assert repr(rest) == repr(judge(SHORT, records)[cut:])  # repr: NaN is not equal to itself


@given(telemetry())
def test_a_state_that_was_handed_over_stays_as_it_is(records: list[Record]) -> None:
    state = SHORT.start()
    for record in records:
        before = dumps_json(SHORT.save(state))
        after, _ = SHORT.step(state, record)
        assert dumps_json(SHORT.save(state)) == before
        state = after


@given(telemetry())
def test_health_and_trip_follow_from_the_findings(records: list[Record]) -> None:
    for record, judgement in zip(records, judge(SHORT, records), strict=True):
        healths = {f.health for f in judgement.findings}
        expected = Health.NO_DATA
        if Health.SICK in healths:
            expected = Health.SICK
        elif Health.HEALTHY in healths:
            expected = Health.HEALTHY
        assert judgement.step == record.step
        assert judgement.health is expected
        assert judgement.trip == next((f for f in judgement.findings if f.trips), None)
        assert all(f.health is Health.SICK for f in judgement.findings if f.trips)
        if not record.values:
            assert judgement.health is Health.NO_DATA


def test_states_never_hold_what_json_cannot() -> None:
    extremes = [1.7e308, -1.7e308, 1e200, 5e-324, 0.0]
    records = [
        Record(n, dict.fromkeys(("reward", "entropy", "value_loss", "grad_norm"), extremes[n % 5]))
        for n in range(60)
    ]
    state = SHORT.start()
    for record in records:
        state, _ = SHORT.step(state, record)
    assert b"Infinity" not in dumps_json(SHORT.save(state))
    assert b"NaN" not in dumps_json(SHORT.save(state))


def test_the_defaults_are_those_of_the_document() -> None:
    by_name: dict[str, Any] = {d.name: d for d in Panel().detectors}
    assert by_name["kl"].max_kl == 0.05
    assert by_name["entropy"].min_entropy == 0.01
    assert by_name["value_loss"].max_value_loss == 50.0
    assert {by_name[n].patience for n in ("kl", "entropy", "value_loss")} == {3}
    assert by_name["drawdown"].drop == 0.3
    assert list(by_name)[:5] == ["non_finite", "kl", "entropy", "value_loss", "drawdown"]
    assert Panel.from_mapping({}) == Panel()


def test_the_first_detector_that_trips_gives_the_reason() -> None:
    (judgement,) = judge(Panel((NonFinite(), KlSpike(patience=1))), [Record(4, {"kl": math.nan})])
    assert judgement.trip is not None
    assert judgement.trip.detector == "non_finite"
    assert [f.detector for f in judgement.sick] == ["non_finite", "kl"]


def test_a_checkpoint_without_metrics_is_no_data() -> None:
    (judgement,) = judge(Panel(), [Record(5, checkpoint="/tmp/model")])
    assert judgement.health is Health.NO_DATA


def test_tables_set_switch_off_and_add_detectors() -> None:
    panel = Panel.from_mapping(
        {
            "kl": {"max_kl": 0.02, "patience": 5},
            "entropy": {"enabled": False},
            "jump": {"kl": {"enabled": False}, "my_loss": {"unit": 0.5, "bad": "both"}},
            "drift": {"enabled": False},
            "stalled": {"after_s": 30},
        }
    )
    names = [d.name for d in panel.detectors]
    assert panel.detectors[1] == KlSpike(0.02, 5)
    assert not {"entropy", "jump.kl", "drift.kl"} & set(names)
    assert Jump(metric="my_loss", unit=0.5, bad="both") in panel.detectors
    assert panel.stalled == Stalled(after_s=30)
    assert Panel.from_mapping({"stalled": {"enabled": False}}).stalled is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"klx": {}}, r"\[detectors\] klx: there is no such key; did you mean 'kl'"),
        ({"kl": 0.05}, r"\[detectors.kl\] is 0.05, must be a table"),
        ({"kl": {"enabled": "no"}}, r"\[detectors.kl\] enabled = 'no': must be true or false"),
        ({"jump": {"limit": 5}}, r"\[detectors.jump\] limit = 5: no such key"),
        ({"jump": {"kl": {"limt": 5}}}, r"\[detectors.jump.kl\] limt: .*did you mean 'limit'"),
        ({"jump": {"kl": {"metric": "x"}}}, r"\[detectors.jump.kl\] metric: there is no such key"),
        ({"drift": {"kl": {"block": 0}}}, r"\[detectors.drift.kl\] block = 0: must be a whole number from 1"),
        ({"stalled": {"after_s": -1}}, r"\[detectors.stalled\] after_s = -1: must be"),
    ],
)
def test_tables_that_make_no_sense_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Panel.from_mapping(table)


def test_a_panel_without_detectors_is_refused() -> None:
    off = {name: {"enabled": False} for name in ("kl", "entropy", "value_loss", "non_finite", "drawdown")}
    with pytest.raises(UsageError, match="nothing would ever trip"):
        Panel.from_mapping({**off, "jump": {"enabled": False}, "drift": {"enabled": False}})
    with pytest.raises(UsageError, match="same name"):
        Panel((KlSpike(), KlSpike(0.1)))


def test_a_detector_whose_settings_have_changed_begins_anew() -> None:
    state = Panel().start()
    for n in range(2):
        state, _ = Panel().step(state, Record(n, {"kl": 0.2, "value_loss": 99.0}))
    saved = Panel().save(state)
    changed = Panel.from_mapping({"kl": {"max_kl": 0.1}})
    _, judgement = changed.step(changed.restore(saved), Record(2, {"kl": 0.2, "value_loss": 99.0}))
    assert judgement.trip is not None
    assert judgement.trip.detector == "value_loss"
    assert changed.restore({})["value_loss"] == changed.start()["value_loss"]


@pytest.mark.parametrize("saved", [None, [], {"kl": 3}, {"kl": {"state": []}}])
def test_a_saved_state_of_another_kind_is_refused(saved: object) -> None:
    with pytest.raises(DataError, match="saved detectors"):
        Panel().restore(saved)


def test_a_long_healthy_run_stays_healthy() -> None:
    rng = np.random.default_rng(0)
    records = [
        Record(
            n,
            {
                "kl": float(0.01 * np.exp(0.3 * rng.standard_normal())),
                "entropy": 1.3 - n / 4000,
                "value_loss": float(np.exp(0.3 * rng.standard_normal())),
                "reward": float(n / 10 + 5 * rng.standard_normal()),
                "grad_norm": float(np.exp(0.3 * rng.standard_normal())),
                "lr": 3e-4,
            },
        )
        for n in range(3000)
    ]
    assert {j.health for j in judge(Panel(), records)} == {Health.HEALTHY}
