from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from td_loop.checks import Severity, stage4
from td_loop.checks.stage4 import (
    final_val_mc_nll,
    losses_are_finite,
    no_blowup,
    no_regression,
    td_trend,
)
from td_loop.files import dumps_json

FIELDS = ("train_mc_nll", "val_mc_nll", "sample_td_r_nll", "sample_td_a_nll")
good = st.floats(0.0, 1e8)
bad = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, "NaN", "Infinity", "-Infinity", "oops", True, 1e9]),
    st.floats(1e9, 1e30),
)


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    epochs = draw(st.integers(1, 12))
    series = st.lists(good, min_size=epochs, max_size=epochs)
    return {field: draw(series) for field in FIELDS} | {"lr_first": [1e12] * epochs}


# S4.1


@given(histories())
def test_finite_losses_pass(history: dict[str, Any]) -> None:
    verdict = losses_are_finite(history)
    assert verdict.passed is True
    assert verdict.severity is Severity.HARD


@given(histories(), st.sampled_from(FIELDS), bad, st.data())
def test_one_bad_loss_anywhere_is_found_and_named(
    history: dict[str, Any], field: str, value: Any, data: st.DataObject
) -> None:
    epoch = data.draw(st.integers(0, len(history[field]) - 1))
    history[field][epoch] = value
    verdict = losses_are_finite(history)
    assert verdict.passed is False
    assert f"{field} = {value} in epoch {epoch}" in verdict.message


@given(histories(), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_non_finite_loss_is_found_after_the_round_trip_through_json(
    history: dict[str, Any], value: float
) -> None:
    import orjson

    history["val_mc_nll"][-1] = value
    assert losses_are_finite(orjson.loads(dumps_json(history))).passed is False


@given(histories(), st.sampled_from(["train_mc_nll", "sample_td_r_nll", "sample_td_a_nll"]), st.booleans())
def test_an_absent_branch_is_not_a_failure(history: dict[str, Any], field: str, missing: bool) -> None:
    if missing:
        del history[field]
    else:
        history[field] = [None] * len(history[field])
    assert losses_are_finite(history).passed is True


@pytest.mark.parametrize(
    "history", [{}, {"val_mc_nll": []}, {"val_mc_nll": None}, {"val_mc_nll": [0.5, None]}, {"train_mc_nll": [0.5]}]
)
def test_a_history_without_validation_losses_does_not_pass(history: dict[str, Any]) -> None:
    assert losses_are_finite(history).passed is False


# S4.2


@given(st.integers(-64, 255))
def test_only_exit_code_zero_without_a_marker_is_no_blowup(code: int) -> None:
    assert no_blowup(code, None).passed is (code == 0)


@given(st.integers(0, 255), st.one_of(st.text(min_size=1), st.fixed_dictionaries({"reason": st.text()})))
def test_an_abort_marker_is_a_blowup_whatever_the_exit_code(code: int, marker: Any) -> None:
    verdict = no_blowup(code, marker)
    assert verdict.passed is False
    assert verdict.severity is Severity.HARD


def test_the_message_of_a_blowup_gives_its_numbers() -> None:
    marker = {"reason": "val_mc_nll above threshold", "epoch": 3, "step": 9, "val_mc_nll": 1.5, "threshold": 1.25}
    assert "epoch 3, val_mc_nll 1.5, threshold 1.25" in no_blowup(2, marker).message


# S4.3

finite = st.floats(0.0, 10.0)
reference = st.one_of(st.none(), st.sampled_from([math.nan, math.inf]), finite)


@given(finite, reference, reference, st.floats(0.0, 0.5))
def test_regression_is_judged_against_the_smallest_finite_reference(
    final: float, first: float | None, best: float | None, tau: float
) -> None:
    references = [x for x in (first, best) if x is not None and math.isfinite(x)]
    assume(references)
    verdict = no_regression(final, first, best, tau)
    assert verdict.passed is (final <= min(references) * (1 + tau))
    assert verdict.severity is Severity.SOFT


@given(st.sampled_from([None, math.nan, math.inf, -math.inf]), reference, reference)
def test_a_final_loss_that_is_missing_or_not_finite_never_passes(
    final: float | None, first: float | None, best: float | None
) -> None:
    assert no_regression(final, first, best, 0.05).passed is False


def test_a_nan_best_so_far_does_not_block_a_good_iteration() -> None:
    assert no_regression(0.5, 0.6, math.nan, 0.05).passed is True


def test_without_any_reference_there_is_no_pass() -> None:
    assert no_regression(0.5, None, None, 0.05).passed is False


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"final_val_mc_nll": 0.4, "history": {"val_mc_nll": [0.5]}}, 0.4),
        ({"final_val_mc_nll": None, "history": {"val_mc_nll": [0.5, 0.45]}}, 0.45),
        ({"history": {"val_mc_nll": []}}, None),
        ({}, None),
    ],
)
def test_the_final_loss_is_the_stated_one_or_the_last_epoch(training: dict[str, Any], expected: Any) -> None:
    assert final_val_mc_nll(training) == expected


# S4.4


@given(st.lists(good, min_size=1, max_size=20), st.booleans())
def test_trend_compares_the_outer_quarters_and_never_fails(values: list[float], only_r: bool) -> None:
    history = {"sample_td_r_nll": values, "sample_td_a_nll": [None] * len(values) if only_r else values}
    verdict = td_trend(history)
    quarter = max(1, len(values) // 4)
    assert verdict.passed is True
    assert verdict.severity is Severity.LOG
    assert verdict.numbers["first_r"] == pytest.approx(sum(values[:quarter]) / quarter)
    assert verdict.numbers["last_r"] == pytest.approx(sum(values[-quarter:]) / quarter)
    assert ("first_a" in verdict.numbers) is not only_r


def test_trend_without_data_is_neither_passed_nor_failed() -> None:
    assert td_trend({"sample_td_a_nll": [None, None]}).passed is None


# all together


def test_a_fit_without_a_history_fails_hard_and_soft() -> None:
    for training in ({}, {"history": None}, {"history": []}):
        verdicts = stage4(training, exit_code=0, best_val_so_far=0.5, val_regression_tau=0.05)
        assert {v.id: v.passed for v in verdicts} == {"S4.1": False, "S4.2": True, "S4.3": False, "S4.4": None}
