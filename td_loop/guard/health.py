"""What a detector says of one record, in words that the breaker, the log and the postmortem share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from td_loop.guard.record import Record

State = TypeVar("State")


class Health(StrEnum):
    """A detector's answer. No data is an answer of its own: it never advances and never trips anything."""

    HEALTHY = "healthy"
    SICK = "sick"
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True)
class Finding:
    """A detector's answer to one record.

    Attributes:
        detector: its name.
        health: of this one record.
        trips: whether training has to be stopped now: patience has run out, or none is due.
        value: what was looked at; None without data.
        limit: what it was compared with; None where there is no single number.
        why: a sentence for people.
    """

    detector: str
    health: Health
    trips: bool = False
    value: float | None = None
    limit: float | None = None
    why: str = ""


class Detector(Protocol[State]):
    """A detector: settings that never change, and pure functions. `State` is plain JSON data and can be saved."""

    @property
    def name(self) -> str:
        """In the log, in guard.toml and in findings."""
        ...

    def start(self) -> State:
        """The state before the first record."""
        ...

    def step(self, state: State, record: Record) -> tuple[State, Finding]:
        """Look at one record. The state that was handed over stays as it is."""
        ...
