"""A callback for stable-baselines3: PPO, A2C, DQN, SAC, TD3 and what derives from them.

    from td_loop.guard import resume_path, scaled, seed
    from td_loop.guard.adapters.sb3 import GuardCallback

    ours = {"learning_rate": scaled(3e-4), "seed": seed(0)}
    if path := resume_path():
        model = PPO.load(path, env, **ours)
    else:
        model = PPO("MlpPolicy", env, **ours)
    model.learn(100_000 - model.num_timesteps, GuardCallback(), reset_num_timesteps=False)

A saved model brings its optimizer along, but rate and seed are those that `load` is given; a new one draws its
first weights by the seed, too. A saved model brings no replay buffer: an algorithm that has one fills it anew, for
`learning_starts` steps, before it learns on.

One record is one round of optimisation, a call of the algorithm's `train`; its step is the number of environment
steps so far, which a saved model keeps. Without the guard the callback does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from td_loop.guard.environment import resume_path, scaled, seed
from td_loop.guard.staging import Staging
from td_loop.guard.telemetry import Telemetry

try:
    from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete
    from stable_baselines3.common.callbacks import BaseCallback
except ImportError as e:
    raise ImportError(
        f"the callback for stable-baselines3 needs {e.name}; pip install 'td-loop[guard-sb3]'", name=e.name
    ) from e

__all__ = ["GuardCallback", "resume_path", "scaled", "seed"]

EVERY_ON_POLICY = 10
"""Rounds between two checkpoints of algorithms that learn from whole rollouts."""
EVERY_OFF_POLICY = 1000
"""The same of those that learn after every few steps from a replay buffer."""

_NAMES = {"approx_kl": "kl", "learning_rate": "lr", "critic_loss": "value_loss"}
_LEFT_OUT = {"entropy_loss", "n_updates", "clip_range", "clip_range_vf"}


class GuardCallback(BaseCallback):
    """Reports every round of optimisation, and hands checkpoints to the guard.

    `kl`, `value_loss` (the critic's; of DQN, its only loss), `lr` and the other losses are what the algorithm logs
    itself. `entropy` is minus its entropy loss, for policies over discrete actions: a density's entropy may be
    negative and healthy, and is reported as `differential_entropy`. `reward` is the mean return of the episodes
    that have ended since the last round, where there is a `Monitor`; `grad_norm` the mean norm of the gradients
    before they were clipped.
    """

    def __init__(
        self, telemetry: Telemetry | None = None, *, checkpoint_every: int | None = None, grad_norm: bool = True
    ) -> None:
        """
        Args:
            telemetry: where to report; None: what the guard says.
            checkpoint_every: rounds between two checkpoints, where TD_GUARD_CHECKPOINT_EVERY does not say
                otherwise; None: EVERY_ON_POLICY or EVERY_OFF_POLICY.
            grad_norm: measure it, which costs some percent of a round.
        """
        super().__init__()
        self.telemetry = Telemetry() if telemetry is None else telemetry
        self._every = checkpoint_every
        self._wants_norms = grad_norm
        self._norms: _Norms | None = None
        self._staging: Staging | None = None
        self._rounds = 0
        self._returns: list[float] = []
        self._learning_starts: int | None = None  # as the user gave it, where it has been put off

    def _on_training_start(self) -> None:
        self._refill()
        every = self._every or (EVERY_OFF_POLICY if hasattr(self.model, "replay_buffer") else EVERY_ON_POLICY)
        if self._staging is None:  # a second call of `learn` starts from nothing new
            self._staging = Staging(self.telemetry, self._save, suffix=".zip", every=every)
            self._staging.begin(self.model.num_timesteps)
        self._rounds = self.model._n_updates
        self._returns = []
        if self._wants_norms and self.telemetry.where is not None:
            self._norms = _Norms(self.model)

    def _on_rollout_start(self) -> None:
        # What `train` has logged stands in the logger now; it is thrown away when the next rollout ends.
        self._report()

    def _on_step(self) -> bool:
        for info in self.locals.get("infos", ()):
            if "episode" in info:
                self._returns.append(float(info["episode"]["r"]))
        return True

    def _on_training_end(self) -> None:
        self._report()
        if self._norms is not None:
            self._norms.close()
            self._norms = None

    def _refill(self) -> None:
        """Put learning off until the empty replay buffer of a loaded model holds what a new one's would."""
        buffer = getattr(self.model, "replay_buffer", None)
        if (
            buffer is not None
            and resume_path() is not None
            and buffer.size() == 0
            and self._learning_starts is None
        ):
            self._learning_starts = self.model.learning_starts
            self.model.learning_starts += self.model.num_timesteps

    def _save(self, path: Path) -> None:
        put_off = getattr(self.model, "learning_starts", None)
        if self._learning_starts is not None:
            self.model.learning_starts = self._learning_starts
        try:
            self.model.save(path)
        finally:
            if self._learning_starts is not None:
                self.model.learning_starts = put_off

    def _report(self) -> None:
        """Report the round that has just been trained, if one has."""
        if self.model._n_updates == self._rounds:
            return
        self._rounds = self.model._n_updates
        values = self._losses(self.model.logger.name_to_value)
        if self._returns:
            values["reward"] = sum(self._returns) / len(self._returns)
            self._returns = []
        if self._norms is not None:
            values |= self._norms.take()
        step = self.model.num_timesteps
        self.telemetry.log(step, **values)
        assert self._staging is not None
        self._staging.after_step(step)

    def _losses(self, logged: Mapping[str, Any]) -> dict[str, Any]:
        train = {name.removeprefix("train/"): x for name, x in logged.items() if name.startswith("train/")}
        if math.isnan(train.get("explained_variance", 0.0)):
            del train["explained_variance"]  # of returns that are all equal: not measured, and no fault
        values = {_NAMES.get(name, name): x for name, x in train.items() if name not in _LEFT_OUT}
        if "entropy_loss" in train:
            discrete = isinstance(self.model.action_space, Discrete | MultiDiscrete | MultiBinary)
            values["entropy" if discrete else "differential_entropy"] = -train["entropy_loss"]
        if "value_loss" not in values and "loss" in values:  # DQN
            values["value_loss"] = values.pop("loss")
        return values


class _Norms:
    """Norms of gradients, one for each step of the optimizer.

    An algorithm that clips does so between the backward pass and the step, so its gradients are looked at
    parameter by parameter as they come. The others' are looked at right before the step.
    """

    def __init__(self, model: Any) -> None:
        # The critic's where there is one: it is the loss of that which explodes.
        optimizer = (getattr(model, "critic", None) or model.policy).optimizer
        self._clips = getattr(model, "max_grad_norm", None) is not None
        self._parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self._square: Any = 0.0  # of the norm of what has come for the next step: a tensor, where it lies
        self._squares: list[Any] = []  # one a step
        self._hooks = [optimizer.register_step_pre_hook(self._before_step)]
        if self._clips:
            self._hooks += [p.register_post_accumulate_grad_hook(self._add) for p in self._parameters]

    def take(self) -> dict[str, float]:
        """Mean and largest norm since the last call; empty where there was no step."""
        norms = [math.sqrt(x) if (x := float(square)) >= 0 else math.nan for square in self._squares]
        self._squares = []
        if not norms:
            return {}
        worst = next((x for x in norms if not math.isfinite(x)), max(norms))
        return {"grad_norm": sum(norms) / len(norms), "grad_norm_max": worst}

    def close(self) -> None:
        """Look at no more gradients."""
        for hook in self._hooks:
            hook.remove()

    def _add(self, parameter: Any) -> None:
        if parameter.grad is not None:
            self._square = self._square + parameter.grad.detach().square().sum()

    def _before_step(self, *_: Any) -> None:
        if not self._clips:
            for parameter in self._parameters:
                self._add(parameter)
        self._squares.append(self._square)
        self._square = 0.0
