from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from td_loop.errors import DataError, UsageError
from td_loop.guard.audits import (
    Audit,
    Buffer,
    Facts,
    Outcome,
    advantage_normalisation,
    gradient_clip,
    rate_decay,
    replay_buffer,
    reward_scale,
)
from td_loop.guard.declared import advantages, buffer
from td_loop.guard.history import RateTrace, Series

Floats = npt.NDArray[np.float64]
PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.NOT_CHECKABLE


def series(values: Any) -> Series:
    values = np.asarray(values, dtype=np.float64)
    return Series(np.arange(len(values)), values)


def normal(n: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(n)


# --- replay buffer -----------------------------------------------------------------------------------------------


def audit(b: Buffer | None, *, stable: int | None = 500, stopped: bool = True, rewards: Any = None) -> Audit:
    reported = None if rewards is None else series(rewards)
    return replay_buffer(b, reported, attempt=1, stable_step=stable, stopped=stopped)


def test_a_sound_buffer_passes() -> None:
    found = audit(Buffer(normal(400), normal(4000).reshape(400, 10), np.arange(400)))
    assert (found.outcome, found.figures["newer_than_stable"]) == (PASS, 0)
    assert "age is unknown" in audit(Buffer(normal(400))).sentence


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e4])
def test_invalid_rewards_fail_with_their_number(value: float) -> None:
    rewards = normal(400)
    rewards[[7, 300]] = value
    found = audit(Buffer(rewards, steps=np.arange(400)))
    assert found.outcome is FAIL
    assert found.sentence.startswith("of 400 transitions: 2 rewards are")


def test_rewards_are_compared_with_those_before_the_rollback_point() -> None:
    rewards = np.concatenate([normal(600), normal(400) * 1000])  # too many to be outliers of the whole
    steps = np.arange(1000)
    assert audit(Buffer(rewards, steps=steps)).figures["wild_rewards"] > 300
    assert audit(Buffer(rewards)).figures["wild_rewards"] == 0


def test_a_sparse_reward_is_not_wild() -> None:
    rewards = np.zeros(1000)
    rewards[500] = 1.0
    assert audit(Buffer(rewards)).outcome is PASS


def test_observations_that_are_not_finite_fail_by_rows() -> None:
    observations = normal(4000).reshape(400, 2, 5)
    observations[3] = math.nan
    observations[9, 1, 1] = math.inf
    assert audit(Buffer(normal(400), observations)).figures["non_finite_observations"] == 2
    assert audit(Buffer(normal(400), np.zeros((400, 3), np.uint8))).outcome is PASS


def test_transitions_newer_than_the_stable_snapshot_fail_while_training_is_stopped() -> None:
    b = Buffer(normal(1000), steps=np.arange(1000))
    assert audit(b).figures["newer_than_stable"] == 499
    assert audit(b).outcome is FAIL
    assert audit(b, stable=None).outcome is PASS
    running = audit(b, stopped=False)  # the present attempt collects the same steps again
    assert (running.outcome, running.figures["newer_than_stable"]) == (PASS, None)


def test_attempts_tell_old_transitions_from_those_collected_since() -> None:
    attempts = np.where(np.arange(1000) < 900, 1, 2)
    b = Buffer(normal(1000), steps=np.arange(1000), attempts=attempts)
    assert audit(b, stopped=False).figures["newer_than_stable"] == 399


def test_without_a_buffer_only_bad_rewards_of_the_telemetry_can_fail() -> None:
    assert audit(None, rewards=normal(50)).outcome is UNKNOWN
    assert audit(None).outcome is UNKNOWN
    found = audit(None, rewards=[1.0, math.nan, 2.0])
    assert (found.outcome, found.figures["non_finite_in_telemetry"]) == (FAIL, 1)


# --- gradient clip -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clip", "outcome"),
    [(0.3, PASS), (0.5, PASS), (1.0, PASS), (50.0, FAIL), (None, UNKNOWN)],
)
def test_a_clip_norm_that_never_binds_fails(clip: float | None, outcome: Outcome) -> None:
    norms = np.exp(0.5 * normal(500))
    found = gradient_clip(series(norms), clip)
    assert found.outcome is outcome
    assert found.figures["median"] == pytest.approx(1.0, abs=0.1)
    if clip is not None:
        share = (norms[:-20] > clip).mean()
        assert found.figures["binding_share"] == pytest.approx(share)
        assert f"{share:.1%}" in found.sentence


def test_a_small_clip_norm_that_norms_never_reach_is_not_loose() -> None:
    assert gradient_clip(series(np.full(100, 0.01)), 0.5).outcome is PASS


def test_norms_near_the_trip_are_no_measure_of_what_was_normal() -> None:
    norms = np.concatenate([np.ones(200), np.full(20, 1e6)])
    assert gradient_clip(series(norms), 5.0).outcome is FAIL


def test_a_norm_that_is_not_finite_fails_whatever_the_clip() -> None:
    found = gradient_clip(series([1.0, math.nan, math.inf]), 0.1)
    assert (found.outcome, found.figures["non_finite"]) == (FAIL, 2)
    assert gradient_clip(series([math.nan]), 0.1).outcome is FAIL


def test_without_norms_clipping_cannot_be_checked() -> None:
    assert gradient_clip(None, 0.5).outcome is UNKNOWN


# --- advantages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("std", "eps", "outcome"),
    [
        ([0.5, 1.0], None, PASS),
        ([0.5, 0.0], None, FAIL),
        ([0.5, 0.0], 0.0, FAIL),
        ([0.5, 0.0], 1e-12, FAIL),
        ([0.5, 0.0], 1e-8, PASS),
        ([0.5, math.nan], 1e-8, FAIL),
    ],
)
def test_a_deviation_of_zero_needs_a_constant(std: list[float], eps: float | None, outcome: Outcome) -> None:
    assert advantage_normalisation(series(std), None, eps).outcome is outcome


def test_deviations_are_computed_from_a_file_of_advantages() -> None:
    batches = np.stack([normal(64), np.full(64, 0.1)])
    found = advantage_normalisation(None, batches, None)
    assert (found.outcome, found.figures["zero"], found.figures["batches"]) == (FAIL, 1, 2)
    assert advantage_normalisation(None, normal(64), None).outcome is PASS
    assert advantage_normalisation(None, None, 1e-8).outcome is UNKNOWN


# --- reward scale ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, PASS), (2.0, PASS), (10.0, FAIL), (0.05, FAIL)])
def test_a_reward_whose_scale_changes_before_the_trip_fails(factor: float, outcome: Outcome) -> None:
    rewards = 100.0 + 5.0 * normal(400)
    rewards[-50:] *= factor
    found = reward_scale(series(rewards))
    assert found.outcome is outcome
    assert found.figures["ratio"] == pytest.approx(factor, rel=0.5)


def test_learning_is_no_drift_of_scale() -> None:
    assert reward_scale(series(np.linspace(0.0, 400.0, 400) + 5.0 * normal(400))).outcome is PASS


@pytest.mark.parametrize("rewards", [[1.0] * 300, normal(60).tolist(), [math.nan] * 300])
def test_too_few_different_rewards_have_no_scale(rewards: list[float]) -> None:
    assert reward_scale(series(rewards)).outcome is UNKNOWN


def test_without_rewards_their_scale_cannot_be_checked() -> None:
    assert reward_scale(None).outcome is UNKNOWN


# --- learning rate -----------------------------------------------------------------------------------------------


def trace(rates: Any) -> RateTrace:
    first, *rest = (float(r) for r in rates)
    out = RateTrace(first, first, first, 0, 0)
    for step, rate in enumerate(rest, start=1):
        out.add(step, rate)
    return out


@pytest.mark.parametrize(
    ("rates", "total", "schedule", "outcome"),
    [
        (np.full(1000, 1e-3), None, None, PASS),
        (np.full(1000, 1e-3), None, "constant", PASS),
        (np.full(1000, 1e-3), None, "decay", FAIL),
        (np.linspace(1e-3, 0.0, 1000), 1000, "decay", PASS),
        (np.linspace(1e-3, 0.0, 2000)[:1000], 2000, "decay", PASS),
        (np.maximum(np.linspace(1e-3, -2e-3, 1000), 1e-5), 1000, "decay", FAIL),
        (np.maximum(np.linspace(1e-3, -2e-3, 1000), 1e-5), None, "decay", UNKNOWN),
        (np.maximum(np.linspace(1e-3, -2e-3, 1000), 0.0), None, "decay", FAIL),
        (np.concatenate([np.linspace(1e-4, 1e-3, 100), np.linspace(1e-3, 1e-5, 900)]), 1000, "decay", PASS),
    ],
)
def test_a_decay_that_ended_early_fails(
    rates: Floats, total: int | None, schedule: str | None, outcome: Outcome
) -> None:
    assert rate_decay(trace(rates), total, schedule).outcome is outcome


def test_the_step_at_which_the_decay_ended_is_told() -> None:
    found = rate_decay(trace(np.maximum(np.linspace(1e-3, -2e-3, 1000), 1e-5)), 1000, None)
    assert found.figures["flat_since"] == 330
    assert "by step 330, 33% of the planned 1000" in found.sentence
    assert rate_decay(None, 1000, "decay").outcome is UNKNOWN


# --- declared facts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"clip_norm": 0}, r"\[audit\] clip_norm = 0: must be a finite number above 0"),
        ({"clip_norm": "0.5"}, "must be a finite number"),
        ({"advantage_eps": -1e-8}, "advantage_eps"),
        ({"total_steps": 0}, "must be a whole number from 1"),
        ({"lr_schedule": "cosine"}, "must be one of '', 'constant', 'decay'"),
        ({"replay_buffer": 3}, "must be the path of a file"),
        ({"clip": 0.5}, "did you mean 'clip_norm'"),
    ],
)
def test_facts_that_make_no_sense_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Facts.from_mapping(table)


def test_a_buffer_is_read_from_npz_and_npy(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", reward=[1, 2, 3], obs=np.zeros((3, 2)), step=[7, 8, 9])
    found, _ = buffer("b.npz", tmp_path)
    assert found is not None
    assert found.rewards.tolist() == [1.0, 2.0, 3.0]
    assert found.observations is not None
    assert found.steps is not None
    assert found.attempts is None
    np.save(tmp_path / "b.npy", np.ones(5))
    assert len(buffer("b.npy", tmp_path)[0].rewards) == 5  # type: ignore[union-attr]


def test_a_buffer_that_is_not_there_is_told_apart_from_one_that_is_not_declared(tmp_path: Path) -> None:
    assert buffer(None, tmp_path) == (None, "no replay buffer is declared")
    assert "is not there" in buffer("b.npz", tmp_path)[1]
    assert advantages("a.npy", tmp_path) is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"actions": [1]}, "has no rewards; it has actions"),
        ({"rewards": [1.0, 2.0], "steps": [1]}, "'steps' has shape"),
        ({"rewards": [[1.0], [2.0]]}, "must be one number a row"),
        ({"rewards": ["a", "b"]}, "must be one number a row"),
    ],
)
def test_an_npz_that_is_no_buffer_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(DataError, match=message):
        buffer("b.npz", tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"no array"])
def test_a_damaged_file_is_refused_and_nothing_is_unpickled(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.npz").write_bytes(content)
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    for name in ("b.npz", "evil.npy"):
        with pytest.raises(DataError, match="is no sound npz or npy"):
            buffer(name, tmp_path)
        with pytest.raises(DataError, match="is no sound npz or npy"):
            advantages(name, tmp_path)


def test_advantages_of_another_shape_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 2, 2)))
    with pytest.raises(DataError, match=r"\[batches, N\] or \[N\]"):
        advantages("a.npy", tmp_path)
