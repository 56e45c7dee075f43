"""The learning rate of every step, as a pure function of the step.

One fit does warmup -> hold -> cosine decay around its peak, because its targets come from a freshly refreshed
V_snap and so jump relative to where the last fit ended. It is computed anew at every step and for every parameter
group from the group's own `base_lr`, so that no optimizer state can bring an old rate back.

Before it can come a *knot-requantize warmup*: where knots have just been derived, no curve fits them yet,
gradients are at their largest and Adam's second moments are empty. For `flat_steps` steps the rate stays where the
warmup starts. A fit that resumes keeps its knots, and so has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from td_loop.errors import UsageError

WARMUP_START = 0.1
"""Warmup begins at this share of the peak."""


@dataclass(frozen=True)
class Schedule:
    """Warmup, hold and decay over `flat_steps + total_steps` steps.

    Attributes:
        total_steps: epochs * batches_per_epoch, >= 1.
        warmup_frac: share of `total_steps` in linear warmup from WARMUP_START to 1 times the base rate.
        hold_frac: share at the base rate. What remains is cosine decay.
        floor_frac: the last step of the decay runs at this share of the base rate.
        flat_steps: steps at WARMUP_START before all that.
    """

    total_steps: int
    warmup_frac: float = 0.10
    hold_frac: float = 0.40
    floor_frac: float = 0.10
    flat_steps: int = 0

    def __post_init__(self) -> None:
        if self.total_steps < 1 or self.flat_steps < 0:
            raise UsageError(f"{self.total_steps} steps after {self.flat_steps} flat ones: must be >= 1 and >= 0")
        fractions = (self.warmup_frac, self.hold_frac, self.floor_frac)
        if not all(0 <= x <= 1 for x in fractions) or self.warmup_frac + self.hold_frac > 1 + 1e-9:
            raise UsageError(
                f"warmup {self.warmup_frac:g}, hold {self.hold_frac:g}, floor {self.floor_frac:g}: "
                "each must be in 0..1, and warmup + hold <= 1"
            )

    @property
    def warmup_steps(self) -> int:
        """Steps of the linear warmup."""
        return round(self.warmup_frac * self.total_steps)

    @property
    def hold_end(self) -> int:
        """First step of the decay, counted without the flat steps."""
        return min(self.total_steps, self.warmup_steps + round(self.hold_frac * self.total_steps))

    @property
    def n_steps(self) -> int:
        """All steps of the fit."""
        return self.flat_steps + self.total_steps

    def multiplier(self, step: int) -> float:
        """Share of the base rate in `step`, 0 <= step < n_steps."""
        if not 0 <= step < self.n_steps:
            raise ValueError(f"step {step} of a schedule of {self.n_steps} steps")
        step -= self.flat_steps
        if step < 0:
            return WARMUP_START
        if step < self.warmup_steps:
            return WARMUP_START + (1.0 - WARMUP_START) * step / self.warmup_steps
        if step < self.hold_end:
            return 1.0
        done = (step - self.hold_end + 1) / (self.total_steps - self.hold_end)  # 1 in the last step
        return self.floor_frac + (1.0 - self.floor_frac) * (1.0 + math.cos(math.pi * done)) / 2.0

    def lr(self, step: int, base_lr: float) -> float:
        """The learning rate in `step` of a parameter group whose peak is `base_lr`."""
        return base_lr * self.multiplier(step)
