"""Stalled telemetry: nothing was heard for too long. A function of the clock, not of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from td_loop.errors import UsageError
from td_loop.guard.detectors.settings import Settings, number
from td_loop.guard.health import Finding, Health
from td_loop.text import duration


@dataclass(frozen=True)
class Stalled(Settings):
    """How long a training process may be silent."""

    TABLE: ClassVar[str] = "detectors.stalled"

    after_s: float = number(600.0, 0.0, above=True)
    """Seconds between two records."""
    first_after_s: float = number(1800.0, 0.0, above=True)
    """Seconds before the first record: data are loaded and kernels compiled before training begins."""

    @property
    def name(self) -> str:
        """In the log, in guard.toml and in findings."""
        return "stalled"


def stalled(settings: Stalled, seconds: float, *, first: bool = False) -> Finding:
    """Whether telemetry has stalled.

    Silence says nothing about health until it has lasted too long: then it trips, else it is no data.

    Args:
        settings: how long is too long.
        seconds: since the last record, or since the start where there was none; from a monotonic clock, because
            the clock on the wall jumps.
        first: whether the first record is still awaited.

    Raises:
        UsageError: `seconds` is negative or no number: it is no difference of a monotonic clock.
    """
    if not seconds >= 0:
        raise UsageError(f"stalled: seconds = {seconds}: must be from 0; take them from time.monotonic()")
    limit = settings.first_after_s if first else settings.after_s
    if seconds <= limit:
        return Finding("stalled", Health.NO_DATA, False, seconds, limit)
    what = "no first record" if first else "no record"
    why = f"{what} for {duration(seconds)}, limit {duration(limit)}"
    return Finding("stalled", Health.SICK, True, seconds, limit, why)
