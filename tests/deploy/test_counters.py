"""Counters of several processes, and what Prometheus reads of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from td_loop.deploy import names
from td_loop.deploy.canary.exposition import wanted
from td_loop.deploy.canary.window import parse
from td_loop.deploy.server.counters import CELLS, SIZE, Counters
from td_loop.deploy.server.exposition import exposition

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def open_counters(stack: ExitStack, folder: Path, process: int, *, fresh: bool = False) -> Counters:
    counters = Counters(folder, 2, process, fresh=fresh)
    stack.callback(counters.close)
    return counters


def text(totals: list[float]) -> str:
    weights: Any = {"stable": 95.0, "canary": 5.0}
    artefacts: Any = {"stable": "a" * 64, "canary": "b" * 64}
    drift: Any = {"canary": {'odd"name\\': 0.25}}
    return exposition(totals, weights, artefacts, {"stable": float("nan"), "canary": 1.0}, drift).decode()


def read(content: str) -> Samples:
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(content)
        for s in family.samples
    }


def of(subset: str, **labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"subset": subset, **labels}.items()))


def test_what_two_processes_count_is_added_up(tmp_path: Path, stack: ExitStack) -> None:
    one = open_counters(stack, tmp_path, 0, fresh=True)
    other = open_counters(stack, tmp_path, 1)
    cells = CELLS["canary"]
    for counters, n in ((one, 3), (other, 4)):
        for _ in range(n):
            counters.add(cells.requests)
        counters.observe(cells.seconds, 0.004)
        counters.observe(cells.seconds, 7.0)
    assert one.totals() == other.totals()
    found = read(text(other.totals()))
    assert found[names.REQUESTS, of("canary")] == 7
    assert found[names.REQUESTS, of("stable")] == 0
    assert found[names.DECISION_SECONDS + "_count", of("canary")] == 4
    assert found[names.DECISION_SECONDS + "_sum", of("canary")] == pytest.approx(14.008)
    for bound, n in (("0.003", 0), ("0.004", 2), ("0.005", 2), ("1.0", 2), ("+Inf", 4)):
        assert found[names.DECISION_SECONDS + "_bucket", of("canary", le=bound)] == n


def test_a_process_that_is_started_anew_goes_on_and_a_server_begins_at_zero(
    tmp_path: Path, stack: ExitStack
) -> None:
    first = open_counters(stack, tmp_path, 1, fresh=True)
    first.add(CELLS["stable"].requests)
    assert open_counters(stack, tmp_path, 1).own(CELLS["stable"].requests) == 1
    assert sum(open_counters(stack, tmp_path, 1, fresh=True).totals()) == 0


def test_processes_see_who_is_ready(tmp_path: Path, stack: ExitStack) -> None:
    one, other = open_counters(stack, tmp_path, 0, fresh=True), open_counters(stack, tmp_path, 1)
    other.set_ready(7)
    assert one.ready() == [0, 7]
    one.bury(1)
    assert other.ready() == [0, 0]


def test_decisions_of_a_process_that_died_are_errors_of_those_who_were_to_make_them(
    tmp_path: Path, stack: ExitStack
) -> None:
    one, other = open_counters(stack, tmp_path, 0, fresh=True), open_counters(stack, tmp_path, 1)
    for counters in (one, other):
        counters.add(CELLS["canary"].in_flight, 3.0)
    other.add(CELLS["canary"].in_flight, -1.0)
    other.add(CELLS["canary"].requests)
    one.bury(1)
    found = {s: read(text(one.totals())) for s in ("canary", "stable")}
    for subset, requests, errors, in_flight in (("canary", 3, 2, 3), ("stable", 0, 0, 0)):
        told = found[subset]
        assert told[names.REQUESTS, of(subset)] == requests
        assert told[names.ERRORS, of(subset)] == errors
        assert told[names.IN_FLIGHT, of(subset)] == in_flight


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_sum_of_rewards_may_fall_but_no_counter_does(first: float, second: float) -> None:
    cells, totals = CELLS["canary"], [0.0] * SIZE
    before = None
    for reward in (first, second):
        totals[cells.reward_count] += 1
        totals[cells.reward_positive if reward >= 0 else cells.reward_negative] += abs(reward)
        totals[cells.reward_squares] += reward * reward
        found = read(text(totals))
        prefix = "rl_reward_canary_"
        if before is not None:
            for suffix in ("count", "positive_sum", "negative_sum", "squares_sum"):
                assert found[prefix + suffix, ()] >= before[prefix + suffix, ()]
        before = found
    assert found[prefix + "sum", ()] == pytest.approx(first + second, abs=1e-6)


def test_the_canarys_controller_finds_all_that_it_needs() -> None:
    found = list(parse(text([float(k) for k in range(SIZE)])))
    assert {s.name for s in found} == set(wanted())
    reasons = {s.labels["reason"] for s in found if s.name == names.FALLBACKS}
    assert reasons == set(names.FALLBACK_REASONS)


def test_labels_are_escaped_and_what_is_not_known_is_not_a_number() -> None:
    found = read(text([0.0] * SIZE))
    assert found[names.DRIFT, of("canary", feature='odd"name\\')] == 0.25
    assert found[names.CHOICE_ENTROPY, of("stable")] != found[names.CHOICE_ENTROPY, of("stable")]
    assert found[names.WEIGHT, of("canary")] == 5.0
    assert found[names.POLICY_INFO, of("canary", sha256="b" * 64)] == 1.0


def test_every_family_says_what_it_is_once() -> None:
    lines = text([0.0] * SIZE).splitlines()
    told = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(told) == len(set(told))
    assert {line.split()[2] for line in lines if line.startswith("# HELP")} == set(told)
