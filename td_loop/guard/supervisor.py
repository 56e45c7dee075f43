"""The supervisor: runs a training command, judges what it says, stops it, rolls back, and starts it again.

    run -> trip -> stop, with proof -> roll back -> purge -> start at half the rate -> trial -> run
                                   \\-> no retry is left: locked

What it decides is in `watch.py` and `breaker.py`, which know no files. Every transition is on disk before what
follows from it is done: a guard that was killed at any moment goes on where the record ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from td_loop.errors import DataError, StorageError, TdLoopError
from td_loop.guard import environment as env
from td_loop.guard import snapshots as rules
from td_loop.guard.attempt import Attempt, Silence, Trip, no_telemetry
from td_loop.guard.breaker import Breaker, Event, State, Transition, replay
from td_loop.guard.breaker_log import NAME as LOG
from td_loop.guard.breaker_log import BreakerLog
from td_loop.guard.config import GuardConfig
from td_loop.guard.console import Console, Faults
from td_loop.guard.evidence import evidence
from td_loop.guard.figures import figures
from td_loop.guard.health import Finding, Health
from td_loop.guard.listener import Listener
from td_loop.guard.metrics import Exporter
from td_loop.guard.purge import Polluted, purge
from td_loop.guard.sources import Poll
from td_loop.guard.stop import Proof
from td_loop.guard.store import Rollback, Store
from td_loop.signals import Signals
from td_loop.text import size

LEFT_OVER = {"how": "ended with the guard before; no process of it is left"}
"""The proof that a worker is gone whose guard was killed: whatever it left has been looked for, and ended."""


class Locked(TdLoopError):
    """The breaker is locked: no retry is left."""

    exit_code = 1


class Supervisor:
    """A guard at work in its folder. Whoever makes one holds the folder's lock; see `run.py`."""

    def __init__(
        self, folder: Path, config: GuardConfig, command: Sequence[str], signals: Signals, console: Console
    ) -> None:
        """Read what an earlier guard left in `folder`.

        Raises:
            DataError: the record of transitions, or state.json, is damaged.
            StorageError: the folder cannot be written.
        """
        self._folder, self._config = folder.absolute(), config
        self._command, self._signals, self._console = list(command), signals, console
        self._faults = Faults(console)
        self._exporter = Exporter(config.metrics, self._faults)
        self._store = Store(self._folder, lambda text: self._faults.add("damaged", text))
        self._log = BreakerLog(self._folder / LOG)
        self._breaker = replay(self._log.transitions, config.breaker)
        attempt = self._breaker.attempt
        self._listener = Listener(self._folder, config, self._store, console, self._faults, attempt)
        self._calm = 0  # healthy steps in a row
        self._crashed_at: tuple[int, int] | None = None

    def run(self) -> int:
        """Guard the command to its end.

        Returns:
            The worker's exit code; 128 + its signal if one killed it.

        Raises:
            Locked: no retry is left.
            DataError: a rollback is needed, and there is no stable snapshot.
            UsageError: the command cannot be started.
            StorageError: a rollback failed, or a transition could not be recorded. The worker stays stopped.
            RunInUse: processes of a worker do not go.
            TdLoopError: the purge command failed.
            Interrupted: SIGINT or SIGTERM came.
        """
        with self._exporter.running():
            try:
                self._resume()
                while True:
                    self._signals.check()
                    end = self._one_worker()
                    if end is not None:
                        return end
            finally:
                self._listener.close()
                self._show()

    def _resume(self) -> None:
        """Go on where the guard before us ended; its worker is gone."""
        if self._breaker.state is State.OPEN:
            if not self._breaker.locked:
                self._console.say("an earlier guard ended before it had rolled back; it is done now")
            if not self._breaker.is_stopped:
                self._move(self._breaker.stopped(LEFT_OVER, t=time.time()))
            self._recover()
        elif (trip := self._listener.hear_rest(self._tell)) is not None:  # what it had no time to read
            self._tripped(trip, None)
            self._recover()
        else:
            last = self._store.settle()
            if self._listener.known:
                step = None if last is None else last.step
                self._move(self._breaker.resumed("started again", t=time.time(), step=step))
                self._listener.resume(self._breaker.attempt)
            if last is not None:
                self._console.say(f"goes on from the snapshot of step {last.step}")

    def _one_worker(self) -> int | None:
        """Run the command once; the exit code to end with, or None to run it again."""
        log = f"worker.a{self._breaker.attempt}.log"
        self._listener.save(now=True)  # a guard after us knows by it that there was a worker
        worker = Attempt(
            self._command, self._environment(), self._folder, log, self._listener.source, self._signals
        )
        try:
            trip = worker.watch(self._hear, self._silence, self._faults.add, self._between)
        except BaseException:  # something of ours failed: it does not train on unwatched
            worker.stop(self._config.run.grace_s)
            raise
        if trip is not None:
            self._tripped(trip, worker)
            self._listener.skip_rest()
        else:
            proof = worker.stop(self._config.run.grace_s, ask=self._signals.received is None)
            trip = self._listener.hear_rest(self._tell)  # its last words
            if trip is None:
                self._listener.save(now=True)
                self._signals.check()
                return self._ended(proof)
            self._tripped(trip, proof)
        self._listener.save(now=True)
        self._signals.check()
        self._recover()
        return None

    def _ended(self, proof: Proof) -> int | None:
        """The worker ended by itself, and nothing tripped: the exit code to end with, or None to run it again."""
        code = proof.exit_code if proof.exit_code >= 0 else 128 - proof.exit_code
        stable = rules.stable(self._store.all)
        furthest = self._listener.watch.furthest
        if proof.how != "by itself":
            n = len(proof.processes) - 1
            self._console.say(
                f"ended {n} process{'es' if n > 1 else ''} that the worker left behind ({proof.how})"
            )
        if code == 0 and self._listener.never_heard:
            self._faults.add("no telemetry", no_telemetry(self._listener.source.address()))
        if code == 0 or self._config.run.on_crash == "exit":
            self._console.say(f"the worker ended with {code}; {_kept(self._store)}")
            return code
        now = (furthest, stable[0].number if stable else 0)
        if self._crashed_at is not None and now <= self._crashed_at:
            self._console.say(
                f"the worker ended with {code} again, and came no further than step {furthest}, as before: a "
                "crash loop, which a smaller learning rate does not mend; it stays stopped"
            )
            return code
        if not stable:
            self._console.say(f"the worker ended with {code}, and there is no stable snapshot to go back to")
            return code
        self._crashed_at = now
        finding = Finding(
            "crash", Health.SICK, True, float(proof.exit_code), None, f"the worker ended with {code}"
        )
        self._tripped(Trip((finding,)), proof)
        self._recover()
        return None

    # --- tripping and going back -------------------------------------------------------------------------------

    def _tripped(self, trip: Trip, worker: Attempt | Proof | None) -> None:
        """Open the breaker and stop the worker, whatever the disk says to the record of it.

        Args:
            worker: what is to be stopped; or the proof that it is gone; None if it went with the guard before.
        """
        first, failure, proof = trip.findings[0], None, LEFT_OVER
        step = self._listener.watch.last if trip.step is None else trip.step
        reason = f"{first.detector}: {first.why}"
        at = "before the first step" if step is None else f"at step {step}"
        self._console.say(f"tripped {at}: {reason}")
        found = evidence(trip.findings, self._listener.recent)
        try:
            self._move(self._breaker.trip(reason, found, t=time.time(), step=step))
        except Exception as e:  # whatever it is, the worker is stopped first
            failure = e
        if isinstance(worker, Attempt):
            worker = worker.stop(self._config.run.grace_s)
            self._console.say(f"stopped after {worker.seconds:.1f} s ({worker.how}): {_gone(worker)}")
        if failure is not None:
            with suppress(TdLoopError):  # a rename may succeed where a record finds no room
                self._store.rollback()
            raise failure
        if worker is not None:
            proof = worker.as_json()
        self._move(self._breaker.stopped(proof, t=time.time()))

    def _recover(self) -> None:
        """From an open breaker, its worker gone, to the next attempt."""
        try:
            back = self._store.rollback()
            self._console.say(f"rolled back {_to(back)}")
        except DataError:
            if not self._breaker.locked:
                raise
        if self._breaker.locked:
            tries = self._breaker.retries
            raise Locked(
                f"{self._folder}: the breaker is locked after {tries} {'retry' if tries == 1 else 'retries'}; "
                "`td-loop guard postmortem` says what the telemetry shows, `td-loop guard reset` lets it run again"
            )
        self._signals.check()
        assert back.target is not None
        polluted = Polluted(
            from_step=back.target.step + 1,
            to_step=max(self._listener.watch.last or 0, *(t.step or 0 for t in self._log.transitions[-2:])),
            from_time=back.target.time,
            to_time=time.time(),
        )
        purge(self._config.purge, polluted, self._folder, self._signals, self._config.run.grace_s)
        said = f"from the snapshot of step {back.target.step}"
        self._move(self._breaker.restart(said, {}, t=time.time(), step=back.target.step))
        self._listener.begin(self._breaker.attempt)
        limits, rate = self._config.breaker, f"learning rate x {self._breaker.multiplier:g}"
        self._console.say(
            f"retry {self._breaker.retries} of {limits.max_retries}: {rate}, seed {self._seed}, on trial for "
            f"{limits.trial_steps} healthy steps"
        )

    def _move(self, moved: tuple[Breaker, Transition]) -> None:
        """Take a step of the breaker, once it is on disk."""
        self._log.append(moved[1])
        self._breaker = moved[0]

    # --- what the attempt asks for -----------------------------------------------------------------------------

    def _hear(self, poll: Poll) -> Trip | None:
        return self._listener.hear(poll, self._tell)

    def _tell(self, step: int, health: Health) -> None:
        """Let the breaker know of a step."""
        if health is Health.SICK:
            self._calm = 0
            self._breaker = self._breaker.sick_step(step)
            return
        self._calm += 1
        breaker, transition = self._breaker.healthy_step(step, t=time.time())
        if transition is None:
            self._breaker = breaker
        else:
            self._improve((breaker, transition), f"trial passed, {transition.reason}: closed again")
        wanted = self._config.run.forgive_after
        if wanted and self._calm >= wanted and self._breaker.state is State.CLOSED and self._breaker.retries:
            reason = f"{self._calm} healthy steps in a row"
            forgiven = self._breaker.forgiven(reason, t=time.time(), step=step)
            self._improve(forgiven, f"retries are forgotten, {reason}")

    def _improve(self, moved: tuple[Breaker, Transition], text: str) -> None:
        """A step for the better. Where it cannot be recorded training goes on, and the next healthy step tries."""
        try:
            self._move(moved)
            self._console.say(text)
        except StorageError as e:
            self._faults.add("record", f"{moved[1].event}: {e}")

    def _between(self) -> None:
        self._listener.save()
        if self._exporter.due:
            self._show()

    def _show(self) -> None:
        watch, silent = self._listener.watch, time.monotonic() - self._listener.heard
        trips = sum(t.event is Event.TRIP for t in self._log.transitions)
        kept, faults = self._store.all, self._faults.counts
        self._exporter.show(figures(self._breaker, watch, self._listener.values, kept, faults, trips, silent))

    @property
    def _silence(self) -> Silence:
        return Silence(self._config.panel.stalled, self._config.run.on_stall == "trip")

    @property
    def _seed(self) -> int:
        return self._config.run.seed + self._breaker.attempt

    def _environment(self) -> dict[str, str]:
        """What the worker finds in its environment: of the guard above us, if there is one, nothing."""
        every = self._config.snapshots.every
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("TD_GUARD_")},
            env.TELEMETRY: self._listener.source.address(),
            env.ATTEMPT: str(self._breaker.attempt),
            env.SEED: str(self._seed),
            env.MULTIPLIER: f"{self._breaker.multiplier:.17g}",
            env.ACTIVE: str(self._store.active),
            env.STAGING: str(self._store.staging),
            **({env.CHECKPOINT_EVERY: str(every)} if every else {}),
        }


def _gone(proof: Proof) -> str:
    n = len(proof.processes)
    text = f"{n} process{'es' if n > 1 else ''} gone, {size(proof.memory_bytes)} of memory released"
    return text if proof.gpu_mib is None else f"{text}, {proof.gpu_mib} MiB on the GPU"


def _kept(store: Store) -> str:
    stable, waiting = rules.stable(store.all), rules.pending(store.all)
    text = f"stable snapshot of step {stable[0].step}" if stable else "no stable snapshot"
    return text + (f", {len(waiting)} pending" if waiting else "")


def _to(back: Rollback) -> str:
    where = "to nothing" if back.target is None else f"to the snapshot of step {back.target.step}"
    return where + (f"; {len(back.fenced)} put into quarantine" if back.fenced else "")
