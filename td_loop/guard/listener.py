"""Listens to an attempt: judges its records, keeps its snapshots, and remembers where it stands."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from td_loop.errors import DataError, StorageError
from td_loop.guard import snapshots as rules
from td_loop.guard import watch as watching
from td_loop.guard.attempt import Trip, address, telemetry_file
from td_loop.guard.config import FILE, GuardConfig
from td_loop.guard.console import Console, Faults
from td_loop.guard.evidence import RECENT
from td_loop.guard.health import Health
from td_loop.guard.record import Record, encode
from td_loop.guard.sources import Poll, Source, open_source
from td_loop.guard.state import Saved, StateFile, read_state
from td_loop.guard.store import Store

UNKEPT = 100
"""Healthy steps without any checkpoint after which a person is told that nothing could be rolled back to."""


class Listener:
    """What the guard knows of the attempt that runs.

    Attributes:
        watch: what its records came to.
        values: metrics of the last record that had any.
        heard: when the last record was read, by the monotonic clock.
        recent: the last records, oldest first.
        known: whether a worker of this attempt was started before.
    """

    def __init__(
        self, folder: Path, config: GuardConfig, store: Store, console: Console, faults: Faults, attempt: int
    ) -> None:
        """Go on from what an earlier guard of `folder` saved of this attempt.

        Raises:
            DataError: state.json is damaged.
        """
        self._folder, self._config, self._store = folder, config, store
        self._console, self._faults = console, faults
        self._file = StateFile(folder)
        self.recent: deque[Record] = deque(maxlen=RECENT)
        self.known = False
        self.watch = watching.begun(config.panel, attempt)
        self.values: Mapping[str, float] = {}
        self.heard = time.monotonic()
        self._source: Source | None = None
        self._saved: Saved | None = None
        self._restore()

    # --- the attempt -------------------------------------------------------------------------------------------

    def begin(self, attempt: int) -> None:
        """An attempt after a rollback. Detectors begin anew: their past is that of a run that diverged."""
        self._begin(watching.begun(self._config.panel, attempt, self.watch.furthest))

    def resume(self, attempt: int) -> None:
        """An attempt that goes on from the one before, in which nothing had tripped; detectors remember it."""
        self._begin(watching.resumed(self.watch, attempt))

    def _begin(self, watch: watching.Watch) -> None:
        self.close()
        self.watch, self._saved, self.known = watch, None, False
        self.recent.clear()

    @property
    def source(self) -> Source:
        """The telemetry of the attempt, from where the guard before us stood.

        Raises:
            UsageError: it cannot be had.
        """
        if self._source is None:
            where, saved = self._address, self._saved
            at = saved.position if saved is not None and saved.telemetry == where else None
            self._source = open_source(where, at)
        return self._source

    def close(self) -> None:
        """Listen no more."""
        if self._source is not None:
            self._source.close()
            self._source = None

    # --- what is heard -----------------------------------------------------------------------------------------

    def hear(self, poll: Poll, tell: Callable[[int, Health], None]) -> Trip | None:
        """Judge what has come, take in what was announced, promote what is due.

        Args:
            poll: of the source.
            tell: is told each step that is healthy, once, and each that is sick.

        Returns:
            What trips first; nothing after it is judged.
        """
        for fault in poll.faults:
            self._faults.add("telemetry", fault)
        if poll.records:
            self.heard = time.monotonic()
            self._keep(poll)
        last = {record.checkpoint: i for i, record in enumerate(poll.records)}
        for i, record in enumerate(poll.records):
            path = record.checkpoint
            if path is not None and last[path] != i:
                self._overwritten(record, path)
                path = None
            if (trip := self._record(record, path, tell)) is not None:
                self._only_steps(Poll(poll.records[i + 1 :]))
                return trip
        return None

    def hear_rest(self, tell: Callable[[int, Health], None]) -> Trip | None:
        """Hear all that is there, now that nobody writes any more; piece by piece, for it may be a large file."""
        trip: Trip | None = None
        while (poll := self.source.poll()).more or poll.records or poll.faults:
            if trip is None:
                trip = self.hear(poll, tell)
            else:
                self._only_steps(poll)
        return trip

    def skip_rest(self) -> None:
        """Of what came after a trip it counts how far it went, and no more."""
        while (poll := self.source.poll()).more or poll.records or poll.faults:
            self._only_steps(poll)

    def _only_steps(self, poll: Poll) -> None:
        ours = [r.step for r in poll.records if r.attempt in (None, self.watch.attempt)]
        if ours:
            self.watch = replace(self.watch, last=max(self.watch.last or 0, *ours))

    def _record(self, record: Record, path: str | None, tell: Callable[[int, Health], None]) -> Trip | None:
        panel, settings = self._config.panel, self._config.snapshots
        self.watch, seen = watching.look(panel, self.watch, record, self._store.all, settings.promote_after)
        for kind, text in seen.faults:
            self._faults.add(kind, text)
        if seen.judgement is None:
            return None
        self.recent.append(record)
        if record.values:
            self.values = record.values
        for snapshot in seen.due:
            self._promote(snapshot)
        if seen.counted or seen.judgement.health is Health.SICK:
            tell(record.step, seen.judgement.health)
        if (trip := seen.judgement.trip) is not None:
            return Trip((trip, *(f for f in seen.judgement.sick if f is not trip)), record.step)
        if path is not None:
            self._take(record, path)
        elif seen.counted and self.watch.steps[Health.HEALTHY] == UNKEPT and not self._store.all:
            self._faults.add(
                "no checkpoint",
                f"no checkpoint in {UNKEPT} healthy steps: a trip could not be rolled back; save one to "
                "$TD_GUARD_STAGING and announce it with Telemetry.checkpoint(step, path)",
            )
        return None

    def _keep(self, poll: Poll) -> None:
        """Write down what came by a socket or a server, for the postmortem; a file is there already."""
        if self._config.run.telemetry == FILE:
            return
        try:
            with telemetry_file(self._folder, self.watch.attempt).open("ab") as f:
                f.write(b"".join(map(encode, poll.records)))
        except OSError as e:
            self._faults.add("copy", f"telemetry cannot be kept for the postmortem: {e}")

    def _overwritten(self, record: Record, path: str) -> None:
        self._faults.add(
            "snapshot",
            f"{path} of step {record.step} was saved once more before it was taken in; give each checkpoint a "
            "name of its own",
        )

    def _take(self, record: Record, path: str) -> None:
        """Take in a checkpoint. What does not work costs that one, and training goes on."""
        when = time.time() if record.time is None else record.time
        try:
            new = self._store.take(
                Path(path), step=record.step, attempt=self.watch.attempt, initial=record.initial, when=when
            )
        except (DataError, StorageError, OSError) as e:
            self._faults.add("snapshot", f"the checkpoint of step {record.step} is not kept: {e}")
            return
        self._console.progress(f"snapshot of step {new.step} taken in")
        for snapshot in rules.due(self._store.all, self.watch.counts, self._config.snapshots.promote_after):
            self._promote(snapshot)

    def _promote(self, snapshot: rules.Snapshot) -> None:
        """Promote one, and let old ones go. What does not work now is tried again at the next healthy step."""
        try:
            new = self._store.promote(snapshot, self.watch.counts.get(snapshot.name, 0))
            self._console.progress(f"snapshot of step {new.step} is stable")
            self._store.prune(self._config.snapshots.keep)
        except (StorageError, OSError) as e:
            self._faults.add("promotion", f"snapshot {snapshot.name}: {e}")

    # --- remembering -------------------------------------------------------------------------------------------

    def save(self, *, now: bool = False) -> None:
        """Save where we stand, if the last time is long enough ago, or `now`."""
        if not now and not self._file.due:
            return
        saved = Saved(
            watch=self.watch.as_json(self._config.panel),
            telemetry=self._address,
            position={} if self._source is None else self._source.position(),
            faults=self._faults.counts,
            values=self.values,
        )
        try:
            self._file.save(saved)
        except StorageError as e:
            self._faults.add("state", f"{e}; a guard that is killed now would learn anew")

    @property
    def _address(self) -> str:
        return address(self._config.run.telemetry, self._folder, self.watch.attempt)

    def _restore(self) -> None:
        saved = read_state(self._folder)
        if saved is None:
            return
        try:
            watch = watching.restored(saved.watch, self._config.panel)
        except DataError as e:
            self._faults.add("state", f"{self._folder / 'state.json'}: {e}; detectors begin anew")
            return
        if watch.attempt == self.watch.attempt:
            self.watch, self._saved, self.known = watch, saved, True
            self.values = {name: float(x) for name, x in saved.values.items()}
        else:
            self.watch = replace(self.watch, furthest=watch.furthest)
        self._faults.counts.update(saved.faults)
