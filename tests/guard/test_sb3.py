"""With the real library, on environments that take no time."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from td_loop.guard import Telemetry
from td_loop.guard.record import Record, parse

pytest.importorskip("stable_baselines3", reason="the extra guard-sb3 is not installed")

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC

from td_loop.guard.adapters.sb3 import GuardCallback, resume_path, scaled, seed


class Walk(gym.Env[Any, Any]):
    """Four steps an episode; action 1 (or a high one) pays."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, discrete: bool = True) -> None:
        self.action_space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1, 1, (1,), np.float32)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        return self._observation(), float(np.ravel(action)[0]), self._t == 4, False, {}

    def _observation(self) -> Any:
        return np.array([self._t / 4, 1.0], np.float32)


@pytest.fixture(autouse=True)
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TD_GUARD_") or name == "LEARNING_RATE_MULTIPLIER":
            monkeypatch.delenv(name)
    torch.set_num_threads(1)  # as fit does; on so small networks more of them only wait for each other
    monkeypatch.setenv("TD_GUARD_TELEMETRY", str(tmp_path / "telemetry.jsonl"))
    return tmp_path


def records(folder: Path) -> list[Record]:
    return [parse(line) for line in (folder / "telemetry.jsonl").read_bytes().splitlines()]


def ppo(lr: Any = 1e-3, **more: Any) -> PPO:
    return PPO("MlpPolicy", Walk(), learning_rate=lr, n_steps=16, batch_size=8, n_epochs=2, device="cpu", **more)


def test_ppo_reports_every_round(guard: Path) -> None:
    ppo(seed=0).learn(16 * 4, GuardCallback())
    found = records(guard)
    assert [r.step for r in found] == [16, 32, 48, 64]
    for r in found:
        assert r.values.keys() >= {"kl", "entropy", "value_loss", "reward", "grad_norm", "grad_norm_max", "lr"}
        assert 0 < r.values["entropy"] <= math.log(2) + 1e-6
        assert 0 <= r.values["reward"] <= 4
        assert r.values["lr"] == 1e-3
    assert found[0].values["reward"] != found[1].values["reward"]


def test_what_is_reported_is_of_its_own_round(guard: Path) -> None:
    logged: list[tuple[int, float]] = []

    class Watched(PPO):
        def train(self) -> None:
            super().train()
            logged.append((self.num_timesteps, self.logger.name_to_value["train/approx_kl"]))

    model = Watched("MlpPolicy", Walk(), n_steps=16, batch_size=8, n_epochs=2, device="cpu", seed=0)
    model.learn(16 * 5, GuardCallback(), log_interval=2)
    assert [(r.step, r.values["kl"]) for r in records(guard)] == logged


def test_the_gradient_norm_is_that_before_clipping(guard: Path) -> None:
    ppo(max_grad_norm=1e-6, seed=0).learn(16, GuardCallback())
    clipped = records(guard)[0].values["grad_norm"]
    (guard / "telemetry.jsonl").unlink()
    ppo(max_grad_norm=1e6, seed=0).learn(16, GuardCallback())
    free = records(guard)[0].values["grad_norm"]
    assert clipped > 1e-3
    assert clipped == pytest.approx(free, rel=0.5)


def test_the_callback_does_not_change_what_is_learned(guard: Path) -> None:
    def learned(callback: GuardCallback | None) -> list[bytes]:
        model = ppo(seed=3).learn(48, callback)
        return [p.detach().numpy().tobytes() for p in model.policy.parameters()]

    assert learned(GuardCallback()) == learned(None)


@pytest.mark.parametrize(("algorithm", "discrete"), [(A2C, True), (PPO, False)])
def test_an_entropy_that_may_be_negative_has_another_name(guard: Path, algorithm: Any, discrete: bool) -> None:
    more = {"batch_size": 8} if algorithm is PPO else {}
    algorithm("MlpPolicy", Walk(discrete), n_steps=8, device="cpu", **more).learn(16, GuardCallback())
    values = records(guard)[0].values
    assert ("entropy" in values) == discrete
    assert ("differential_entropy" in values) != discrete
    assert "value_loss" in values


@pytest.mark.parametrize(("algorithm", "discrete"), [(DQN, True), (SAC, False)])
def test_algorithms_with_a_replay_buffer_report_every_round(guard: Path, algorithm: Any, discrete: bool) -> None:
    model = algorithm(
        "MlpPolicy", Walk(discrete), learning_starts=10, train_freq=2, batch_size=4, buffer_size=100, device="cpu"
    )
    model.learn(30, GuardCallback(), log_interval=1)
    found = records(guard)
    assert [r.step for r in found] == list(range(12, 31, 2))
    assert all(r.values.keys() >= {"value_loss", "lr", "grad_norm"} for r in found)
    assert sum("reward" in r.values for r in found) in (4, 5)  # an episode ends in every second round
    assert "entropy" not in found[0].values


def test_without_a_guard_it_does_nothing(guard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TD_GUARD_TELEMETRY")
    ppo().learn(32, GuardCallback())
    assert list(guard.iterdir()) == []


def test_checkpoints_are_announced_and_gone_on_from(guard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TD_GUARD_STAGING", str(guard / "staging"))
    monkeypatch.setenv("TD_GUARD_ACTIVE", str(guard / "active"))
    monkeypatch.setenv("TD_GUARD_CHECKPOINT_EVERY", "2")
    assert resume_path() is None
    ppo(scaled(1e-3), seed=seed(0)).learn(16 * 4, GuardCallback())
    saved = [r for r in records(guard) if r.checkpoint]
    assert [(r.step, r.initial) for r in saved] == [(0, True), (32, False), (64, False)]
    assert sorted(p.name for p in (guard / "staging").iterdir()) == sorted(
        Path(str(r.checkpoint)).name for r in saved
    )

    (guard / "active").symlink_to(str(saved[1].checkpoint))
    monkeypatch.setenv("TD_GUARD_ATTEMPT", "1")
    monkeypatch.setenv("TD_GUARD_SEED", "17")
    monkeypatch.setenv("LEARNING_RATE_MULTIPLIER", "0.5")
    (guard / "telemetry.jsonl").unlink()
    path = resume_path()
    assert path is not None
    assert seed(0) == 17
    model = PPO.load(path, Walk(), device="cpu", learning_rate=scaled(1e-3))
    model.set_random_seed(seed(0))
    model.learn(64 - model.num_timesteps, GuardCallback(), reset_num_timesteps=False)
    found = records(guard)
    assert [(r.step, r.initial) for r in found if r.checkpoint] == [(64, False)]
    assert [(r.step, r.attempt) for r in found if not r.checkpoint] == [(48, 1), (64, 1)]
    assert found[0].values["lr"] == 0.5e-3  # and the optimizer that was loaded brings no old rate back
    assert model.policy.optimizer.param_groups[0]["lr"] == 0.5e-3


def test_a_seed_settles_what_is_learned_from_the_start_and_from_a_checkpoint(guard: Path) -> None:
    def weights(model: Any) -> bytes:
        return b"".join(p.detach().numpy().tobytes() for p in model.learn(32).policy.parameters())

    assert weights(ppo(seed=1)) == weights(ppo(seed=1)) != weights(ppo(seed=2))
    ppo(seed=1).save(guard / "model.zip")
    one, same, other = (
        weights(PPO.load(guard / "model.zip", Walk(), device="cpu", seed=seed)) for seed in (5, 5, 6)
    )
    assert one == same != other


def test_an_empty_replay_buffer_is_filled_before_learning_goes_on(
    guard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TD_GUARD_STAGING", str(guard / "staging"))
    monkeypatch.setenv("TD_GUARD_ACTIVE", str(guard / "active"))
    monkeypatch.setenv("TD_GUARD_CHECKPOINT_EVERY", "5")
    model = DQN("MlpPolicy", Walk(), learning_starts=10, train_freq=2, batch_size=4, buffer_size=100, device="cpu")
    model.learn(20, GuardCallback())
    for expected in (20, 40):  # the second time the first one's delay is not added again
        checkpoint = [r for r in records(guard) if r.checkpoint][-1]
        assert checkpoint.step == expected
        (guard / "active").unlink(missing_ok=True)
        (guard / "active").symlink_to(str(checkpoint.checkpoint))
        (guard / "telemetry.jsonl").unlink()
        path = resume_path()
        assert path is not None
        model = DQN.load(path, Walk(), device="cpu")
        assert model.learning_starts == 10
        model.learn(20, GuardCallback(), reset_num_timesteps=False)
        assert [r.step for r in records(guard) if not r.checkpoint] == list(range(expected + 12, expected + 21, 2))


def test_a_checkpoint_that_cannot_be_saved_costs_no_training(
    guard: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (guard / "staging").write_text("in the way")
    monkeypatch.setenv("TD_GUARD_STAGING", str(guard / "staging"))
    ppo().learn(32, GuardCallback(checkpoint_every=1))
    found = records(guard)
    assert [r.step for r in found] == [16, 32]
    assert not any(r.checkpoint for r in found)
    assert "checkpoint of step 16 cannot be saved" in caplog.text


def test_a_client_of_ones_own_is_used(guard: Path) -> None:
    with Telemetry(guard / "own.jsonl") as telemetry:
        ppo().learn(16, GuardCallback(telemetry, grad_norm=False))
    (r,) = [parse(line) for line in (guard / "own.jsonl").read_bytes().splitlines()]
    assert "grad_norm" not in r.values
    assert not (guard / "telemetry.jsonl").exists()
