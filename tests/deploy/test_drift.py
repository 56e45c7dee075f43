"""Feature drift: zero for what training looked like, large for what it did not, and additive."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.observe.drift import LARGE, Bins, Drift
from td_loop.games.served import Inputs
from td_loop.policy.reference import Column, bins, reference_of
from tests.deploy.toy_policy import decisions
from tests.deploy.toy_served import COLUMNS, CONTRACT, GAME

TRAINING = [GAME.policy_inputs(state, seat) for state, seat in decisions(range(20))]
REFERENCE = reference_of(CONTRACT, TRAINING)
BINS = Bins(CONTRACT, REFERENCE)
LIVE = [GAME.policy_inputs(state, seat) for state, seat in decisions(range(100, 110))]


def drifted(shown: list[Inputs], **options: int) -> dict[str, float]:
    drift = Drift(BINS, **options)
    for inputs in shown:
        drift.add(inputs)
    return BINS.psi(drift.counts)


def shifted(column: str, by: float) -> list[Inputs]:
    c = COLUMNS.index(column)
    return [{**x, "seats": x["seats"] + by * (np.arange(len(COLUMNS)) == c).astype(np.float32)} for x in LIVE]


def test_games_like_those_of_training_show_no_drift() -> None:
    psi = drifted(TRAINING)
    assert psi.keys() == REFERENCE.keys()
    assert max(psi.values()) < 1e-3
    assert max(drifted(LIVE).values()) < LARGE


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("by", [-2.0, 2.0])
def test_a_shift_shows_in_its_column_alone(column: str, by: float) -> None:
    usual, psi = drifted(LIVE), drifted(shifted(column, by))
    assert psi[f"seats.{column}"] > LARGE
    assert {k: v for k, v in psi.items() if k != f"seats.{column}"} == {
        k: v for k, v in usual.items() if k != f"seats.{column}"
    }


def test_without_decisions_drift_is_not_zero_but_unknown() -> None:
    assert all(math.isnan(x) for x in drifted([]).values())


@given(cut=st.integers(0, len(LIVE)))
def test_the_counts_of_two_processes_add_up(cut: int) -> None:
    parts = [Drift(BINS), Drift(BINS)]
    for part, shown in zip(parts, (LIVE[:cut], LIVE[cut:]), strict=True):
        for inputs in shown:
            part.add(inputs)
    assert BINS.psi(parts[0].counts + parts[1].counts) == drifted(LIVE)


def test_the_window_forgets() -> None:
    odd = shifted("turn", 5.0)
    assert drifted(odd + TRAINING, decisions=len(TRAINING) // 2)["seats.turn"] < LARGE
    assert drifted(odd + TRAINING, decisions=10_000)["seats.turn"] > LARGE


def test_padding_does_not_count() -> None:
    padded = [{k: np.concatenate([x, 0 * x[:, :1] + 9 * (k == "seats")], 1) for k, x in i.items()} for i in LIVE]
    assert drifted(padded) == drifted(LIVE)


def test_of_a_long_sequence_a_part_is_counted_and_each_part_in_its_turn() -> None:
    long = {name: np.repeat(x, 100, axis=1) for name, x in LIVE[0].items()}
    drift = Drift(BINS)
    for _ in range(20):
        drift.add(long)
    entries = drift.counts[BINS.inputs[0].place][-1] / 20
    assert 30 <= entries <= 64


@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=60))
def test_psi_is_that_of_the_definition(live: list[float]) -> None:
    n = len(live)
    values = np.zeros((1, n, len(COLUMNS)), np.float32)
    values[0, :, 1] = live
    psi = drifted([{"seats": values, "present": np.ones((1, n), np.float32)}])["seats.troops"]
    column: Column = REFERENCE["seats.troops"]
    k = len(column.shares)
    p = (bins(column.edges, values[0, :, 1]) + 0.5) / (n + 0.5 * k)
    q = (np.array(column.shares) * column.count + 0.5) / (column.count + 0.5 * k)
    assert psi == pytest.approx(float(((p - q) * np.log(p / q)).sum()))
    assert psi >= 0
