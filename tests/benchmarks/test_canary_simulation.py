"""Simulated ramps: a canary that is as good is hardly ever rolled back, one that is half as good soon."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.canary_simulation import REWARDS, SCENARIOS, simulate

RAMP_S = 1800.0


@pytest.mark.parametrize("kind", list(REWARDS))
def test_identical_policies_are_rolled_back_in_few_ramps_by_any_trigger(kind: str) -> None:
    found = simulate(REWARDS[kind], SCENARIOS[0], 1.0, 200, RAMP_S, np.random.default_rng(0))
    assert np.isfinite(found.any).mean() <= 0.05
    assert np.isfinite(found.bare).mean() > np.isfinite(found.any).mean()


@pytest.mark.parametrize("kind", ["Gaussian", "Student t3", "Pareto 2.5", "Bernoulli 5 %"])
def test_a_halved_reward_is_found_within_minutes_at_ten_requests_a_second(kind: str) -> None:
    found = simulate(REWARDS[kind], SCENARIOS[-1], 10.0, 50, RAMP_S, np.random.default_rng(1))
    assert np.isfinite(found.reward).all()
    assert np.median(found.reward) < (12 * 60 if kind == "Bernoulli 5 %" else 3 * 60)
    assert found.exposed.mean() < 0.1
