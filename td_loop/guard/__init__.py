"""The guard: a watchdog outside of the training process, that stops a run which diverges and rolls it back."""

from td_loop.guard.environment import resume_path, scaled, seed
from td_loop.guard.telemetry import Telemetry

__all__ = ["Telemetry", "resume_path", "scaled", "seed"]
