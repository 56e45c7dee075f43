"""What a guarded process finds in its environment."""

from __future__ import annotations

from td_loop.guard.record import ATTEMPT

TELEMETRY = "TD_GUARD_TELEMETRY"
"""Where to write telemetry: a file path, `unix:PATH`, or `redis://HOST:PORT/DB?stream=NAME`."""
SEED = "TD_GUARD_SEED"
"""The seed of the attempt: another one after each rollback."""
MULTIPLIER = "LEARNING_RATE_MULTIPLIER"
"""What to multiply the learning rate by: 1, 0.5, 0.25 ... as text."""
ACTIVE = "TD_GUARD_ACTIVE"
"""Path of the link to the checkpoint to load; where there is none, training begins anew."""
STAGING = "TD_GUARD_STAGING"
"""Folder for checkpoints: what is announced from there is moved by the guard."""
EVERY = "TD_GUARD_CHECKPOINT_EVERY"
"""Steps between two checkpoints; absent where it is not configured."""
FOLDER = "TD_GUARD_DIR"
"""The guard's folder. Processes that a killed guard left behind are known by it."""

FROM_STEP, TO_STEP = "TD_GUARD_FROM_STEP", "TD_GUARD_TO_STEP"
FROM_TIME, TO_TIME = "TD_GUARD_FROM_TIME", "TD_GUARD_TO_TIME"
"""For the purge command: the first and the last step, and the moments (Unix seconds), of what is polluted."""

__all__ = [
    "ACTIVE", "ATTEMPT", "EVERY", "FOLDER", "FROM_STEP", "FROM_TIME", "MULTIPLIER", "SEED", "STAGING", "TELEMETRY",
    "TO_STEP", "TO_TIME",
]  # fmt: skip
