"""The labelled traces, and the detectors on a few of each kind; benchmarks/bench_detectors.py has all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.bench_detectors import ANY, BareRule, watch
from benchmarks.guard_traces import FAULTS, STYLES, faulty, healthy, late_dip
from td_loop.guard.panel import Panel

SEED = 20  # not the benchmark's


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("index", range(5))
def test_a_labelled_fault_is_found_in_its_time_and_not_before(kind: str, index: int) -> None:
    outcome = watch(faulty(SEED, kind, index), Panel())
    assert outcome.alarms[ANY] == 0
    assert 0 <= outcome.first[ANY] < FAULTS[kind][2]


@pytest.mark.parametrize("index", range(len(STYLES)))
def test_healthy_training_of_every_style_does_not_trip(index: int) -> None:
    assert watch(healthy(SEED, index, 2500), Panel()).alarms[ANY] == 0


@pytest.mark.parametrize("index", range(4))
def test_a_late_dip_that_recovers_does_not_trip(index: int) -> None:
    assert watch(late_dip(SEED, index), Panel()).alarms[ANY] == 0


def test_traces_come_from_their_seed_alone() -> None:
    for kind in FAULTS:
        one, same, other = faulty(1, kind, 3), faulty(1, kind, 3), faulty(2, kind, 3)
        assert one.onset == same.onset
        assert all(np.array_equal(one.columns[m], same.columns[m], equal_nan=True) for m in one.columns)
        assert any(not np.array_equal(one.columns[m], other.columns.get(m), equal_nan=True) for m in one.columns)


@pytest.mark.parametrize("kind", FAULTS)
def test_nothing_is_wrong_before_the_onset(kind: str) -> None:
    trace = faulty(SEED, kind, 0)
    assert trace.onset is not None
    for column in trace.columns.values():
        assert np.isfinite(column[: trace.onset]).all()
    rule = BareRule()
    assert not any(rule.trips(r.values) for r in trace.records() if r.step < trace.onset)


def test_the_bare_rule_is_the_documents() -> None:
    rule = BareRule()
    corrupted = {"kl": 0.12, "entropy": 0.005, "value_loss": 120.0}
    assert [rule.trips(corrupted) for _ in range(3)] == [False, False, True]
    assert BareRule().trips({"kl": math.nan})
    assert not BareRule().trips({"reward": math.nan})
