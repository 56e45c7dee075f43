"""Every knob of a fit, checked when made."""

from __future__ import annotations

import math
from dataclasses import dataclass

from td_loop.errors import UsageError
from td_loop.value.io import MAX_KNOTS


@dataclass(frozen=True)
class FitConfig:
    """Hyperparameters of one fit.

    Raises:
        UsageError: a value out of its range; the message names the flag, the value and the range.
    """

    lr: float = 0.03
    """Peak learning rate, > 0."""
    lr_warmup_frac: float = 0.10
    """Share of the steps in linear warmup, 0..1."""
    lr_hold_frac: float = 0.40
    """Share of the steps at the peak, 0..1; warmup + hold <= 1."""
    lr_floor_frac: float = 0.10
    """The cosine decay ends at this share of the peak, 0..1."""
    epochs: int = 10
    """Epochs, >= 1."""
    batches_per_epoch: int = 64
    """Optimizer steps an epoch, >= 1."""
    batch_size: int = 128
    """Rows a step, >= 1."""
    lambda_mc: float = 0.3
    """Weight of the loss to game outcomes, >= 0."""
    lambda_td: float = 0.7
    """Weight of the loss to V_snap's targets, >= 0; the two weights are not both 0."""
    val_blowup_tau: float = 0.25
    """Abort when val_mc_nll > val_mc_nll_baseline * (1 + tau), >= 0."""
    warmup_steps: int = 0
    """Knot-requantize warmup: flat small-rate steps before the schedule, >= 0 (see `schedule.py`)."""
    seed: int = 0
    """Seed of the batch order, >= 0."""
    n_knots: int = 16
    """Knots a feature, where they are derived, 3..32."""
    smoothness: float = 0.1
    """Weight of the squared second differences along each curve, >= 0."""
    l2: float = 3e-4
    """Weight of the squared coefficients, >= 0."""

    def __post_init__(self) -> None:
        _require(self.lr > 0, "--lr", self.lr, "> 0")
        for flag, x in (
            ("--lr-warmup-frac", self.lr_warmup_frac),
            ("--lr-hold-frac", self.lr_hold_frac),
            ("--lr-floor-frac", self.lr_floor_frac),
        ):
            _require(0 <= x <= 1, flag, x, "in 0..1")
        total = self.lr_warmup_frac + self.lr_hold_frac
        _require(total <= 1 + 1e-9, "--lr-warmup-frac + --lr-hold-frac", total, "<= 1")
        for flag, n in (
            ("--epochs", self.epochs),
            ("--batches-per-epoch", self.batches_per_epoch),
            ("--batch-size", self.batch_size),
        ):
            _require(n >= 1, flag, n, ">= 1")
        for flag, x in (
            ("--lambda-mc", self.lambda_mc),
            ("--lambda-td", self.lambda_td),
            ("--val-blowup-tau", self.val_blowup_tau),
            ("--warmup-steps", self.warmup_steps),
            ("--seed", self.seed),
            ("--smoothness", self.smoothness),
            ("--l2", self.l2),
        ):
            _require(x >= 0, flag, x, ">= 0")
        _require(
            self.lambda_mc + self.lambda_td > 0, "--lambda-mc + --lambda-td", 0, "> 0: there is no loss otherwise"
        )
        _require(3 <= self.n_knots <= MAX_KNOTS, "--n-knots", self.n_knots, f"in 3..{MAX_KNOTS}")

    @property
    def total_steps(self) -> int:
        """Steps of the schedule proper, the knot-requantize warmup not counted."""
        return self.epochs * self.batches_per_epoch


def _require(ok: bool, flag: str, value: float, what: str) -> None:
    if not ok or not math.isfinite(value):
        raise UsageError(f"{flag} is {value:g}, must be {what}")
