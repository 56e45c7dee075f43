"""The circuit breaker: a state machine without clocks, files or processes.

    closed     --trip-->     open       training is to be stopped at once
    open       --stopped-->  open       proof that its processes are gone and their memory is free
    open       --restart-->  half_open  a trial from the last stable snapshot, at half the learning rate
    half_open  --healthy_step, `trial_steps` of them-->  closed
    half_open  --trip-->     open       locked, once `max_retries` are used up: no restart until `reset`
    open       --reset-->    closed     by a person, who has seen to the cause
    closed     --forgiven--> closed     after a long calm, where that is configured: all retries are there again
    closed, half_open --resumed--> the same: the worker was started anew though nothing had tripped

A retry stays used when its trial went well, unless `[guard] forgive_after` says otherwise: a job that diverges
once a day has a fault, and the limit is on what the whole job may cost. The log of transitions is all there is to
remember (`replay`), but for the healthy steps of a trial that is under way: a supervisor that comes back counts
them anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from td_loop.errors import DataError, UsageError
from td_loop.guard.detectors.settings import Settings, whole


class State(StrEnum):
    """Where the breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Event(StrEnum):
    """What moves it. Healthy steps are not logged one by one: `recovered` is the last of a trial."""

    TRIP = "trip"
    STOPPED = "stopped"
    RESTART = "restart"
    RECOVERED = "recovered"
    RESET = "reset"
    RESUMED = "resumed"
    FORGIVEN = "forgiven"


class IllegalEvent(UsageError):
    """An event that the breaker's state does not allow: a fault of who asks for it, never of the training."""


@dataclass(frozen=True)
class BreakerSettings(Settings):
    """How often to try again, and how long a trial lasts."""

    TABLE: ClassVar[str] = "breaker"

    max_retries: int = whole(3, 0)
    """Restarts of the whole job before the breaker locks. 0: the first trip locks."""
    trial_steps: int = whole(100, 1)
    """Healthy steps after which a trial counts as recovered."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One line of the breaker's log.

    Attributes:
        t: Unix seconds, for people alone.
        event: what happened.
        before, after: states; `from` and `to` in JSON.
        reason: a sentence.
        evidence: figures behind it, JSON data.
        attempt: number of the attempt that the event is about; after `restart`, `reset` and `resumed` the new one.
        step: of training, at which it happened; for `restart` the step of the snapshot; None where there is none.
        retries: used up, this event included.
        locked: whether no restart is allowed until `reset`.
    """

    t: float
    event: Event
    before: State
    after: State
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 0
    step: int | None = None
    retries: int = 0
    locked: bool = False

    def as_json(self) -> dict[str, Any]:
        """The line, before it is text."""
        return {
            "t": self.t,
            "event": str(self.event),
            "from": str(self.before),
            "to": str(self.after),
            "reason": self.reason,
            "evidence": dict(self.evidence),
            "attempt": self.attempt,
            "step": self.step,
            "retries": self.retries,
            "locked": self.locked,
        }

    @classmethod
    def from_json(cls, line: Any) -> Self:
        """The transition of a line.

        Raises:
            DataError: it is none; the message names the key.
        """
        if not isinstance(line, Mapping):
            raise DataError("is no JSON object")
        kinds: dict[str, Any] = {
            "t": int | float,
            "event": str,
            "from": str,
            "to": str,
            "reason": str,
            "evidence": Mapping,
            "attempt": int,
            "step": int | None,
            "retries": int,
            "locked": bool,
        }
        for key, kind in kinds.items():
            flag = isinstance(line.get(key), bool)  # which is an int to Python
            if key not in line or not isinstance(line[key], kind) or flag is not (kind is bool):
                raise DataError(f"'{key}' is {line.get(key)!r}")
        try:
            event, before, after = Event(line["event"]), State(line["from"]), State(line["to"])
        except ValueError as e:
            raise DataError(str(e)) from e
        rest = {k: line[k] for k in ("t", "reason", "evidence", "attempt", "step", "retries", "locked")}
        return cls(event=event, before=before, after=after, **rest)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state, and what may happen in it. Every event gives a new breaker and the transition to log.

    Attributes:
        settings: limits.
        state: closed, open or half-open.
        is_stopped: whether an open breaker has the proof that the worker is gone.
        locked: whether an open breaker stays so until `reset`.
        retries: restarts used up.
        attempt: number of the present attempt, from 0; it never goes back, so that files of attempts never meet.
        healthy: healthy steps of the trial so far.
        last_step: the one that was counted last: several records of a step count once.
    """

    settings: BreakerSettings = field(default_factory=BreakerSettings)
    state: State = State.CLOSED
    is_stopped: bool = False
    locked: bool = False
    retries: int = 0
    attempt: int = 0
    healthy: int = 0
    last_step: int | None = None

    @property
    def multiplier(self) -> float:
        """What the learning rate is multiplied with: 1 / 2^retries."""
        return 0.5**self.retries

    def trip(
        self, reason: str, evidence: Mapping[str, Any], *, t: float, step: int | None = None
    ) -> tuple[Breaker, Transition]:
        """Training has to be stopped now. Locks if no retry is left.

        Raises:
            IllegalEvent: it is open already.
        """
        self._allow(Event.TRIP, self.state is not State.OPEN)
        locked = self.retries >= self.settings.max_retries
        after = replace(self, state=State.OPEN, is_stopped=False, locked=locked, healthy=0, last_step=None)
        return after, self._transition(Event.TRIP, after, reason, evidence, t, step)

    def stopped(self, proof: Mapping[str, Any], *, t: float) -> tuple[Breaker, Transition]:
        """The worker's processes are gone, and `proof` says how that is known.

        Raises:
            IllegalEvent: it is not open, or that is known already.
        """
        self._allow(Event.STOPPED, self.state is State.OPEN and not self.is_stopped)
        after = replace(self, is_stopped=True)
        return after, self._transition(Event.STOPPED, after, "the worker is gone", proof, t, None)

    def restart(
        self, reason: str, evidence: Mapping[str, Any], *, t: float, step: int | None = None
    ) -> tuple[Breaker, Transition]:
        """A new attempt begins from the snapshot of `step`, as a trial; it uses up a retry.

        Raises:
            IllegalEvent: it is not open, is locked, or the worker may still be there.
        """
        self._allow(Event.RESTART, self.state is State.OPEN and self.is_stopped and not self.locked)
        after = Breaker(self.settings, State.HALF_OPEN, retries=self.retries + 1, attempt=self.attempt + 1)
        return after, self._transition(Event.RESTART, after, reason, evidence, t, step)

    def healthy_step(self, step: int, *, t: float) -> tuple[Breaker, Transition | None]:
        """One more step that the panel found healthy. The last one of a trial closes the breaker.

        Raises:
            IllegalEvent: it is open: whatever is still reported comes from a worker that is to be stopped.
        """
        self._allow("healthy_step", self.state is not State.OPEN)
        if self.state is State.CLOSED or step == self.last_step:
            return self, None
        healthy = self.healthy + 1
        if healthy < self.settings.trial_steps:
            return replace(self, healthy=healthy, last_step=step), None
        after = replace(self, state=State.CLOSED, healthy=0, last_step=None)
        evidence = {"healthy_steps": healthy}
        reason = f"{healthy} healthy steps in a row"
        return after, self._transition(Event.RECOVERED, after, reason, evidence, t, step)

    def sick_step(self, step: int) -> Breaker:
        """A step that the panel found sick: a trial begins to count anew, and other records of it do not count."""
        return replace(self, healthy=0, last_step=step) if self.state is State.HALF_OPEN else self

    def reset(self, reason: str, *, t: float) -> tuple[Breaker, Transition]:
        """A person unlocks it: all retries are there again, and the next attempt has a new number.

        Raises:
            IllegalEvent: it is not open, or the worker may still be there.
        """
        self._allow(Event.RESET, self.state is State.OPEN and self.is_stopped)
        after = Breaker(self.settings, attempt=self.attempt + 1)
        return after, self._transition(Event.RESET, after, reason, {}, t, None)

    def resumed(self, reason: str, *, t: float, step: int | None = None) -> tuple[Breaker, Transition]:
        """The worker is started anew though nothing had tripped: the machine was down, say. A trial counts anew.

        Raises:
            IllegalEvent: it is open: that takes a restart or a reset.
        """
        self._allow(Event.RESUMED, self.state is not State.OPEN)
        after = replace(self, attempt=self.attempt + 1, healthy=0, last_step=None)
        return after, self._transition(Event.RESUMED, after, reason, {}, t, step)

    def forgiven(self, reason: str, *, t: float, step: int | None = None) -> tuple[Breaker, Transition]:
        """The run has been healthy for so long that the retries it took no longer count.

        Raises:
            IllegalEvent: it is not closed.
        """
        self._allow(Event.FORGIVEN, self.state is State.CLOSED)
        after = replace(self, retries=0)
        return after, self._transition(Event.FORGIVEN, after, reason, {}, t, step)

    def _allow(self, event: str, fine: bool) -> None:
        if fine:
            return
        where = str(self.state)
        if self.state is State.OPEN and not self.is_stopped:
            where += " and the worker may still be there: that it is gone has to be known first"
        elif self.locked:
            where += " and locked: see to the cause, then 'td-loop guard reset'"
        raise IllegalEvent(f"breaker: {event} is not possible while it is {where}")

    def _transition(
        self, event: Event, after: Breaker, reason: str, evidence: Mapping[str, Any], t: float, step: int | None
    ) -> Transition:
        return Transition(
            t, event, self.state, after.state, reason, evidence, after.attempt, step, after.retries, after.locked
        )


_EDGES = {
    Event.TRIP: {(State.CLOSED, State.OPEN), (State.HALF_OPEN, State.OPEN)},
    Event.STOPPED: {(State.OPEN, State.OPEN)},
    Event.RESTART: {(State.OPEN, State.HALF_OPEN)},
    Event.RECOVERED: {(State.HALF_OPEN, State.CLOSED)},
    Event.RESET: {(State.OPEN, State.CLOSED)},
    Event.FORGIVEN: {(State.CLOSED, State.CLOSED)},
    Event.RESUMED: {(State.CLOSED, State.CLOSED), (State.HALF_OPEN, State.HALF_OPEN)},
}


def replay(transitions: Iterable[Transition], settings: BreakerSettings | None = None) -> Breaker:
    """The breaker after these transitions, from the first one on.

    A lock stays a lock even if `settings` now allow more retries: only a reset takes it.

    Raises:
        DataError: they do not follow from each other; the message gives the number of the first that does not.
    """
    breaker = Breaker(settings or BreakerSettings())
    for n, x in enumerate(transitions, start=1):
        if x.before is not breaker.state or (x.before, x.after) not in _EDGES[x.event]:
            raise DataError(
                f"transition {n} ({x.event} from {x.before} to {x.after}) is not possible in a breaker that is "
                f"{breaker.state}"
            )
        breaker = replace(
            breaker,
            state=x.after,
            is_stopped=x.event is Event.STOPPED,
            locked=x.locked,
            retries=x.retries,
            attempt=x.attempt,
        )
    return breaker
