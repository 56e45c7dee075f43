from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.checks import knot_coverage
from td_loop.checks.knots import ABOVE, BELOW

fractions = st.floats(0.0, 1.0)


@given(
    st.dictionaries(st.sampled_from("abcde"), st.fixed_dictionaries({ABOVE: fractions, BELOW: fractions})),
    st.booleans(),
)
def test_drift_is_flagged_exactly_when_a_fraction_exceeds_its_limit(
    stats: dict[str, dict[str, float]], nested: bool
) -> None:
    coverage = knot_coverage({"features": stats} if nested else stats, above_top_tau=0.3, below_first_tau=0.7)
    expected = sum((v[ABOVE] > 0.3) + (v[BELOW] > 0.7) for v in stats.values())
    assert coverage.available is bool(stats)
    assert coverage.drift_flag is (expected > 0)
    assert len(coverage.warnings) == expected


@pytest.mark.parametrize("value", ["NaN", None, "many"])
def test_a_fraction_that_is_no_number_is_flagged(value: Any) -> None:
    assert knot_coverage({"c_prod": {ABOVE: value}}, above_top_tau=0.3, below_first_tau=0.7).drift_flag


@pytest.mark.parametrize("stats", [None, {}, [], "none", {"c_prod": {"knots": 16}}])
def test_missing_coverage_is_not_available_and_no_drift(stats: Any) -> None:
    coverage = knot_coverage(stats, above_top_tau=0.3, below_first_tau=0.7)
    assert (coverage.available, coverage.drift_flag, coverage.warnings) == (False, False, ())


def test_a_warning_names_feature_fraction_and_limit() -> None:
    coverage = knot_coverage({"c_prod": {ABOVE: 0.45, BELOW: 0.1}}, above_top_tau=0.3, below_first_tau=0.7)
    assert coverage.warnings == ("c_prod: 45.0% of the values lie above the top knot (limit 30%)",)
    assert coverage.as_json()["coverage"] == {"c_prod": {ABOVE: 0.45, BELOW: 0.1}}
