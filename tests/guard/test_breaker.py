from __future__ import annotations

import dataclasses

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from td_loop.errors import DataError, UsageError
from td_loop.guard.breaker import Breaker, BreakerSettings, Event, IllegalEvent, State, Transition, replay

SETTINGS = BreakerSettings(max_retries=2, trial_steps=3)


def tripped(breaker: Breaker | None = None) -> Breaker:
    return (breaker or Breaker(SETTINGS)).trip("kl", {}, t=0.0)[0].stopped({}, t=0.0)[0]


class Machine(RuleBasedStateMachine):
    """Every event in every state: either the state's, or refused; the log alone gives the breaker back."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(SETTINGS)
        self.log: list[Transition] = []
        self.step = 0
        self.since_reset = 0
        self.attempts = [0]

    def note(self, after: Breaker, transition: Transition) -> None:
        self.breaker = after
        self.log.append(transition)
        self.attempts.append(after.attempt)

    @precondition(lambda self: self.breaker.state is not State.OPEN)
    @rule()
    def trip(self) -> None:
        self.note(*self.breaker.trip("kl", {"kl": 0.1}, t=1.0, step=self.step))
        assert self.breaker.state is State.OPEN
        assert not self.breaker.is_stopped
        assert self.breaker.locked is (self.since_reset == SETTINGS.max_retries)

    @precondition(lambda self: self.breaker.state is State.OPEN and not self.breaker.is_stopped)
    @rule()
    def stopped(self) -> None:
        self.note(*self.breaker.stopped({"processes": 0}, t=2.0))

    @precondition(lambda self: self.breaker.is_stopped and not self.breaker.locked)
    @rule()
    def restart(self) -> None:
        self.note(*self.breaker.restart("trial", {}, t=3.0, step=0))
        self.since_reset += 1
        assert self.breaker.state is State.HALF_OPEN
        assert self.breaker.healthy == 0

    @precondition(lambda self: self.breaker.is_stopped)
    @rule()
    def reset(self) -> None:
        self.note(*self.breaker.reset("by hand", t=4.0))
        self.since_reset = 0
        assert self.breaker.state is State.CLOSED

    @precondition(lambda self: self.breaker.state is not State.OPEN)
    @rule()
    def resumed(self) -> None:
        self.note(*self.breaker.resumed("the machine was down", t=5.0))

    @precondition(lambda self: self.breaker.state is State.CLOSED)
    @rule()
    def forgiven(self) -> None:
        self.note(*self.breaker.forgiven("calm", t=6.0, step=self.step))
        self.since_reset = 0
        assert self.breaker.multiplier == 1

    @precondition(lambda self: self.breaker.state is not State.OPEN)
    @rule(records=st.integers(1, 3))
    def healthy_step(self, records: int) -> None:
        self.step += 1
        before = self.breaker
        for _ in range(records):  # several writers report the same step
            after, transition = self.breaker.healthy_step(self.step, t=6.0)
            if transition is None:
                self.breaker = after
            else:
                assert before.healthy == SETTINGS.trial_steps - 1
                self.note(after, transition)
        if before.state is State.HALF_OPEN and self.breaker.state is State.HALF_OPEN:
            assert self.breaker.healthy == before.healthy + 1

    @precondition(lambda self: self.breaker.state is not State.OPEN)
    @rule()
    def sick_step(self) -> None:
        self.step += 1
        self.breaker = self.breaker.sick_step(self.step)
        assert self.breaker.healthy == 0

    @invariant()
    def events_of_other_states_are_refused(self) -> None:
        b = self.breaker
        if b.state is State.OPEN:
            illegal = [
                lambda: b.trip("again", {}, t=0.0),
                lambda: b.healthy_step(10**6, t=0.0),
                lambda: b.resumed("", t=0.0),
            ]
            if b.is_stopped:
                illegal.append(lambda: b.stopped({}, t=0.0))
            else:
                illegal += [lambda: b.restart("", {}, t=0.0), lambda: b.reset("", t=0.0)]
            if b.locked:
                illegal.append(lambda: b.restart("", {}, t=0.0))
        else:
            illegal = [
                lambda: b.stopped({}, t=0.0),
                lambda: b.restart("", {}, t=0.0),
                lambda: b.reset("", t=0.0),
            ]
        for event in illegal:
            with pytest.raises(IllegalEvent):
                event()

    @invariant()
    def the_log_alone_gives_the_breaker_back(self) -> None:
        counted = {"healthy": 0, "last_step": None}  # of a trial that is under way: counted anew
        again = replay([Transition.from_json(x.as_json()) for x in self.log], SETTINGS)
        assert again == dataclasses.replace(self.breaker, **counted)

    @invariant()
    def the_rate_halves_with_every_retry_and_attempts_only_grow(self) -> None:
        assert self.breaker.retries == self.since_reset <= SETTINGS.max_retries
        assert self.breaker.multiplier == 1 / 2**self.since_reset
        assert self.attempts == sorted(self.attempts)


TestMachine = Machine.TestCase


def test_the_road_from_a_trip_to_recovery() -> None:
    breaker, trip = Breaker(SETTINGS).trip("kl 0.2 is above 0.05", {"kl": 0.2}, t=10.0, step=1200)
    assert (trip.before, trip.after, trip.step, trip.attempt) == (State.CLOSED, State.OPEN, 1200, 0)
    breaker, stop = breaker.stopped({"processes": 0}, t=11.0)
    assert stop.evidence == {"processes": 0}
    breaker, restart = breaker.restart("from step 900", {}, t=12.0, step=900)
    assert (restart.after, restart.attempt, restart.retries) == (State.HALF_OPEN, 1, 1)
    assert breaker.multiplier == 0.5
    for step in (901, 902):
        breaker, nothing = breaker.healthy_step(step, t=13.0)
        assert nothing is None
    breaker, recovered = breaker.healthy_step(903, t=14.0)
    assert recovered is not None
    assert (recovered.event, recovered.after) == (Event.RECOVERED, State.CLOSED)
    assert breaker.retries == 1  # what was used stays used


def test_a_sick_step_makes_a_trial_count_anew() -> None:
    breaker = tripped().restart("", {}, t=0.0)[0]
    for step in (1, 2):
        breaker, _ = breaker.healthy_step(step, t=0.0)
    breaker = breaker.sick_step(3)
    for step in (3, 4, 5):  # another record of step 3 does not count
        breaker, transition = breaker.healthy_step(step, t=0.0)
        assert transition is None
    assert breaker.healthy_step(6, t=0.0)[1] is not None


def test_a_trial_is_no_calm_to_forgive_retries_for() -> None:
    half_open, _ = tripped().restart("trial", {}, t=0.0)
    with pytest.raises(IllegalEvent, match="forgiven is not possible while it is half_open"):
        half_open.forgiven("calm", t=0.0)


def test_it_locks_when_the_retries_are_used_up() -> None:
    breaker = Breaker(SETTINGS)
    for k in range(2):
        breaker, _ = tripped(breaker).restart("", {}, t=0.0)
        assert breaker.attempt == k + 1
    breaker = tripped(breaker)
    assert breaker.locked
    with pytest.raises(IllegalEvent, match="locked: see to the cause, then 'td-loop guard reset'"):
        breaker.restart("", {}, t=0.0)
    breaker, _ = breaker.reset("cause found", t=0.0)
    assert (breaker.state, breaker.retries, breaker.attempt, breaker.multiplier) == (State.CLOSED, 0, 3, 1.0)


def test_without_retries_the_first_trip_locks() -> None:
    assert Breaker(BreakerSettings(max_retries=0)).trip("", {}, t=0.0)[0].locked


def test_more_retries_later_do_not_unlock() -> None:
    breaker, log = Breaker(BreakerSettings(max_retries=0)), []
    breaker, trip = breaker.trip("", {}, t=0.0)
    log.append(trip)
    assert replay(log, BreakerSettings(max_retries=9)).locked


def test_a_worker_that_may_still_live_allows_no_restart() -> None:
    breaker, _ = Breaker(SETTINGS).trip("", {}, t=0.0)
    with pytest.raises(IllegalEvent, match="may still be there"):
        breaker.restart("", {}, t=0.0)


def test_transitions_that_do_not_follow_are_refused_by_their_number() -> None:
    _, trip = Breaker(SETTINGS).trip("", {}, t=0.0)
    with pytest.raises(DataError, match=r"transition 2 \(trip from closed to open\).* open"):
        replay([trip, trip])
    with pytest.raises(DataError, match="transition 1"):
        replay([dataclasses.replace(trip, after=State.HALF_OPEN)])


@pytest.mark.parametrize("kwargs", [{"max_retries": -1}, {"trial_steps": 0}])
def test_settings_that_make_no_sense_are_refused(kwargs: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"\[breaker\] .*must be a whole number"):
        BreakerSettings(**kwargs)
