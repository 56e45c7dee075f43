"""What the guard tells a training process, through its environment, and how a training process asks for it.

Without the guard nothing of this is set, and every function answers as if there were none: the same script runs
with it and without.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import overload

from td_loop.errors import DataError, UsageError

TELEMETRY = "TD_GUARD_TELEMETRY"
"""Where telemetry is to go: a file, `unix:/path/of.sock`, or `redis://host:port/db?stream=NAME`."""

ATTEMPT = "TD_GUARD_ATTEMPT"
"""Number of this attempt, from 0: how often training has been rolled back."""

SEED = "TD_GUARD_SEED"
"""A seed of this attempt's own."""

MULTIPLIER = "LEARNING_RATE_MULTIPLIER"
"""What learning rates are to be multiplied with: 1, 0.5, 0.25, ..."""

ACTIVE = "TD_GUARD_ACTIVE"
"""Path of a link: where it leads is the checkpoint that training goes on from. It may not exist."""

STAGING = "TD_GUARD_STAGING"
"""Folder for new checkpoints, which the guard takes away."""

CHECKPOINT_EVERY = "TD_GUARD_CHECKPOINT_EVERY"
"""Steps between two checkpoints."""

Schedule = Callable[[float], float]
"""A learning rate that depends on something, as stable-baselines3 has them."""


def guarded() -> bool:
    """Whether a guard has said anything to this process that changes what it does."""
    return any(os.environ.get(name) for name in (ATTEMPT, SEED, MULTIPLIER, ACTIVE, STAGING, CHECKPOINT_EVERY))


def attempt() -> int | None:
    """The number of this attempt; None without a guard.

    Raises:
        UsageError: the variable holds no whole number from 0.
    """
    return _whole(ATTEMPT, 0)


def seed(default: int) -> int:
    """The seed to use: `default` in the first attempt and without a guard, the guard's own in a later one.

    Raises:
        UsageError: a variable holds no whole number from 0.
    """
    own = _whole(SEED, 0)
    return default if own is None or not attempt() else own


def multiplier() -> float:
    """What learning rates are to be multiplied with; 1 without a guard.

    Raises:
        UsageError: the variable holds no finite number above 0.
    """
    text = os.environ.get(MULTIPLIER)
    if not text:
        return 1.0
    try:
        x = float(text)
    except ValueError:
        x = math.nan
    if not (math.isfinite(x) and x > 0):
        raise UsageError(f"{MULTIPLIER} is {text!r}, must be a number above 0; unset it to train at the full rate")
    return x


@overload
def scaled(lr: float) -> float: ...
@overload
def scaled(lr: Schedule) -> Schedule: ...
def scaled(lr: float | Schedule) -> float | Schedule:
    """A learning rate, or a schedule of one, times the multiplier.

    Raises:
        UsageError: the multiplier is no finite number above 0.
    """
    by = multiplier()
    if callable(lr):
        schedule = lr
        return lambda x: by * schedule(x)
    return by * lr


def resume_path() -> Path | None:
    """The checkpoint to go on from; None to start anew.

    Raises:
        DataError: the link is there, and what it leads to is not.
    """
    text = os.environ.get(ACTIVE)
    if not text:
        return None
    from td_loop.files import follow  # numpy, which a process that asks for a checkpoint has anyway

    link = Path(text)
    target = follow(link)
    if target.exists():
        return target.resolve()
    if target != link or link.is_symlink():
        raise DataError(
            f"{link} leads to {target.resolve()}, which is not there; point it at a checkpoint, "
            f"or remove it to train from the start"
        )
    return None


def staging() -> Path | None:
    """The folder for new checkpoints; None without a guard."""
    text = os.environ.get(STAGING)
    return Path(text) if text else None


def checkpoint_every(default: int) -> int:
    """Steps between two checkpoints, `default` where the guard does not say.

    Raises:
        UsageError: the variable holds no whole number from 1.
    """
    return _whole(CHECKPOINT_EVERY, 1) or default


def _whole(name: str, least: int) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    try:
        n = int(text)
    except ValueError:
        n = least - 1
    if n < least:
        raise UsageError(f"{name} is {text!r}, must be a whole number from {least}; the guard sets it")
    return n
