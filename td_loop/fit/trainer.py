"""Gradient steps on prepared rows, in torch, on one CPU thread.

Knots are frozen during a fit, so where each feature stands between them is looked up once for all rows: a step is
a gather, a softmax and their gradients. N rows, B rows a batch, 4 seats, F features, K knots, S segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from td_loop.fit.config import FitConfig
from td_loop.fit.data import TrainingRows
from td_loop.fit.schedule import Schedule
from td_loop.rng import Stream, stream
from td_loop.value.kernel import batch_positions
from td_loop.value.model import SEGMENT_PLAYERS, SplineValue
from td_loop.value.torch_module import SplineModule, log_softmax_alive

Floats = npt.NDArray[np.float32]


def batch_order(rng: np.random.Generator, n_rows: int, batch_size: int) -> Iterator[npt.NDArray[np.int64]]:
    """Endless batches of row numbers: pass after pass over all rows, each in a new random order.

    A batch may straddle two passes, so that no row is left out and every batch is full.
    """
    waiting = np.empty(0, np.int64)
    while True:
        while waiting.size < batch_size:
            waiting = np.concatenate((waiting, rng.permutation(n_rows)))
        yield waiting[:batch_size]
        waiting = waiting[batch_size:]


@dataclass(frozen=True)
class Losses:
    """What the batch of a step lost, before the step.

    Attributes:
        total: what the step lowers, penalties included.
        td: mean cross-entropy to the TD targets, not weighted; None without them.
        mc: the same to outcomes, over the rows that have one; None where no row has.
    """

    total: float
    td: float | None
    mc: float | None


@dataclass(frozen=True)
class TrainerState:
    """All that steps change. Together with the rows, the config and the schedule it says what comes next.

    Attributes:
        step: steps taken.
        coef: f64[S, F, K].
        mean: f64[S, F, K], Adam's running mean of the gradient; zeros before the first step.
        square: f64[S, F, K], and of its square.
    """

    step: int
    coef: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    square: npt.NDArray[np.float64]


class Trainer:
    """Adam on the coefficients of one value function; knots stay bit-identical.

    The loss of a batch is `lambda_td * mean CE(td_target, V)` over all rows
    `+ lambda_mc * mean CE(mc_target, V)` over the rows with an outcome
    `+ smoothness * sum of squared second differences of each curve + l2 * sum of squared coefficients`, the last
    two only in segments that have rows: what no data speak about keeps its value.
    """

    def __init__(self, start: SplineValue, rows: TrainingRows, config: FitConfig, schedule: Schedule) -> None:
        """Prepare `rows` (N >= 1) for steps from `start`. Torch is pinned to one thread, deterministic."""
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self._start = start
        self._module = SplineModule(start)
        # Every group carries its own base_lr; the schedule scales that, never the rate of the step before.
        self._optimizer = torch.optim.Adam([{"params": [self._module.coef], "base_lr": config.lr}], lr=config.lr)
        self._schedule = schedule
        self._lambda_td = config.lambda_td if rows.td_target is not None else 0.0
        # Without TD targets there is nothing to weigh the outcomes against.
        self._lambda_mc = config.lambda_mc if rows.td_target is not None else 1.0
        self._order = batch_order(stream(config.seed, Stream.FIT), len(rows.n_players), config.batch_size)
        self._penalty = _penalty_matrix(config, start.knots.shape[1])
        segment = (rows.n_players > SEGMENT_PLAYERS[0]).astype(np.int64)
        position, fraction = _positions(start, rows.features, segment)
        has_rows = np.isin(np.arange(len(SEGMENT_PLAYERS)), segment)
        self._position, self._fraction = torch.from_numpy(position), torch.from_numpy(fraction)
        self._has_rows = torch.from_numpy(has_rows.astype(np.float64))[:, None, None]
        self._alive = torch.from_numpy(np.ascontiguousarray(rows.alive))
        self._mc_target = torch.from_numpy(np.ascontiguousarray(rows.mc_target))
        self._has_mc = torch.from_numpy(np.ascontiguousarray(rows.has_mc))
        td = rows.mc_target if rows.td_target is None else rows.td_target
        self._td_target = torch.from_numpy(np.ascontiguousarray(td))
        self._step = 0
        self._last: tuple[Tensor, Tensor, Tensor] | None = None  # rows, log V and loss of the last batch

    @property
    def steps_done(self) -> int:
        """Steps taken so far."""
        return self._step

    def step(self) -> tuple[float, float]:
        """Take one step; returns its learning rate (of the first group) and the gradient's norm before it."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule.lr(self._step, group["base_lr"])
        self._optimizer.zero_grad(set_to_none=True)
        self._loss(torch.from_numpy(next(self._order))).backward()  # type: ignore[no-untyped-call]
        gradient = self._module.coef.grad
        assert gradient is not None
        norm = float(gradient.norm())
        self._optimizer.step()
        self._step += 1
        return float(self._optimizer.param_groups[0]["lr"]), norm

    def _loss(self, rows: Tensor) -> Tensor:
        alive = self._alive[rows]
        scores = self._module.scores_at(self._position[rows], self._fraction[rows])
        log_v = log_softmax_alive(scores, alive).masked_fill(~alive, 0.0)  # 0 * -inf would be NaN
        # Both losses are linear in log V, so their targets are mixed first.
        with_outcome = self._has_mc[rows].sum().clamp(min=1)
        weight = self._mc_target[rows] * (self._lambda_mc / with_outcome)
        if self._lambda_td:
            weight = weight + self._td_target[rows] * (self._lambda_td / len(rows))
        coef = self._module.coef
        loss = (self._has_rows * coef * (coef @ self._penalty)).sum() - (weight * log_v).sum()
        self._last = rows, log_v.detach(), loss.detach()
        return loss

    def losses(self) -> Losses:
        """What the last step's batch lost. Nobody who does not ask pays for the parts."""
        assert self._last is not None, "no step has been taken"
        rows, log_v, loss = self._last
        n_mc = int(self._has_mc[rows].sum())
        return Losses(
            total=loss.item(),
            td=-(self._td_target[rows] * log_v).sum().item() / len(rows) if self._lambda_td else None,
            mc=-(self._mc_target[rows] * log_v).sum().item() / n_mc if n_mc else None,
        )

    def state(self) -> TrainerState:
        """A copy of what steps change."""
        coef = self._module.coef.detach().numpy().copy()
        adam = self._optimizer.state[self._module.coef]
        if not adam:
            return TrainerState(self._step, coef, np.zeros_like(coef), np.zeros_like(coef))
        return TrainerState(self._step, coef, adam["exp_avg"].numpy().copy(), adam["exp_avg_sq"].numpy().copy())

    def restore(self, state: TrainerState) -> None:
        """Go on from `state`, in a trainer without a step: with the same seed as if it had never stopped."""
        assert self._step == 0, "a trainer is restored before its first step"
        with torch.no_grad():
            self._module.coef.copy_(torch.from_numpy(state.coef))
        if state.step:
            self._optimizer.state[self._module.coef] = {
                "step": torch.tensor(float(state.step)),
                "exp_avg": torch.from_numpy(state.mean.copy()),
                "exp_avg_sq": torch.from_numpy(state.square.copy()),
            }
        for _ in range(state.step):
            next(self._order)
        self._step = state.step

    def value(self) -> SplineValue:
        """The value function as it is now: a copy, with the very knots that the fit started with."""
        coef = self._module.coef.detach().numpy().copy()
        start = self._start
        return SplineValue(knots=start.knots, coef=coef, feature_names=start.feature_names, meta=start.meta)


def _positions(
    v: SplineValue, features: Floats, segment: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.signedinteger[Any]], Floats]:
    """Flat position in `coef` of the left knot, and fraction, of every feature: two [N, 4, F] of f32[N, 4, F].

    Positions are int16 where they fit (2 segments of 32 knots: up to 511 features), because there are many.
    """
    n_features, n_knots = v.knots.shape
    flat = np.ascontiguousarray(features).reshape(-1, n_features)
    interval, fraction = np.empty(flat.shape, np.int8), np.empty(flat.shape, np.float32)
    batch_positions(flat, v.knots, interval, fraction)
    small = np.int16 if v.coef.size < 2**15 else np.int32
    curve = ((segment[:, None] * n_features + np.arange(n_features)) * n_knots).astype(small)  # [N, F]
    return interval.reshape(features.shape) + curve[:, None], fraction.reshape(features.shape)


def _penalty_matrix(config: FitConfig, n_knots: int) -> Tensor:
    """M f64[K, K] with curve @ M @ curve = smoothness * |second differences|^2 + l2 * |curve|^2."""
    second = np.diff(np.eye(n_knots), n=2, axis=0)
    return torch.from_numpy(config.smoothness * second.T @ second + config.l2 * np.eye(n_knots))
