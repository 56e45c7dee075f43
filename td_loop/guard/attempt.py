"""One worker, from its start to a reason to end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from td_loop.guard.children import FOLDER, Child
from td_loop.guard.config import FILE
from td_loop.guard.detectors import Stalled, stalled
from td_loop.guard.health import Finding
from td_loop.guard.sources import Poll, Source
from td_loop.guard.stop import Family, Proof, stop
from td_loop.signals import Signals

HINT_S = 60.0
"""Seconds without a first record after which the guard says what may be missing."""
_POLL_S = 0.02
_TICK_S = 1.0
"""Of the time between two polls so much counts as silence: longer, we were stopped or busy, and heard nothing."""
_QUIET_S = 0.5
"""So long a source of another kind than a file is listened to after its writers have gone."""


@dataclass(frozen=True, slots=True)
class Trip:
    """A reason to stop training.

    Attributes:
        findings: the one that trips, and others that were sick with it.
        step: of the record that they judged; None for silence, and before the first.
    """

    findings: tuple[Finding, ...]
    step: int | None = None


@dataclass(frozen=True)
class Silence:
    """What silence does.

    Attributes:
        settings: when it has lasted too long; None: never.
        trips: whether it then trips, or is only warned of.
    """

    settings: Stalled | None
    trips: bool


class Attempt:
    """A worker that runs, and what it is heard to say."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path, log: str, source: Source, signals: Signals
    ) -> None:
        """Start it.

        Args:
            argv: command line.
            env: its environment.
            folder: the guard's, by which its processes are known.
            log: name of a file there that receives what it prints, as our own output does.
            source: its telemetry.
            signals: are passed on to its group from now on.

        Raises:
            UsageError: it cannot be started.
        """
        self._family = Family(folder)
        self._child = Child(argv, {**env, FOLDER: str(folder)}, folder / log, echo=True)
        self._source, self._signals = source, signals
        self._idle, self._heard = 0.0, False
        self._said = set[str]()  # warnings that hold until the next record, or for good
        signals.group = self._child.pid
        signals.forward()  # one that came while it was being started

    def watch(
        self,
        see: Callable[[Poll], Trip | None],
        silence: Silence,
        warn: Callable[[str, str], None],
        between: Callable[[], None],
    ) -> Trip | None:
        """Follow the telemetry until something trips, the worker ends, or a signal comes.

        Args:
            see: is given what has come; answers with what trips.
            silence: what it does.
            warn: is told kind and text of what a person should know.
            between: is called between two polls.

        Returns:
            What tripped; None if nothing has. Then see `ended`.
        """
        last = time.monotonic()
        quiet_since: float | None = None
        while self._signals.received is None:
            ended = self._child.ended  # asked first: what it wrote before its end is read after it
            poll = self._source.poll()
            if (trip := see(poll)) is not None:
                return trip
            now = time.monotonic()
            if poll.records:
                self._idle, self._heard = 0.0, True
                self._said.discard("stalled")
            elif not poll.more:
                self._idle += min(now - last, _TICK_S)
                if (trip := self._silent(silence, warn)) is not None:
                    return trip
            last = now
            if self._child.output.log_fault is not None:
                self._once("log", self._child.output.log_fault, warn)
            between()
            if ended and not poll.more and not poll.records:
                quiet_since = quiet_since or now
                if now - quiet_since >= self._last_words_s:
                    return None
            if not poll.more:
                self._child.output.wait(_POLL_S)
            else:
                self._child.output.copy()
        return None

    @property
    def ended(self) -> bool:
        """Whether the worker has."""
        return self._child.ended

    def stop(self, grace_s: float, *, ask: bool = True) -> Proof:
        """End it, and all that it started.

        Raises:
            RunInUse: something does not go.
        """
        try:
            return stop(self._child, self._family, grace_s=grace_s, pump=self._child.output.copy, ask=ask)
        finally:
            self._signals.group = None
            self._child.close()

    @property
    def _last_words_s(self) -> float:
        return 0.0 if Path(self._source.address()).is_absolute() else _QUIET_S

    def _silent(self, silence: Silence, warn: Callable[[str, str], None]) -> Trip | None:
        if not self._heard and self._idle > HINT_S:
            self._once("no telemetry", no_telemetry(self._source.address()), warn)
        if silence.settings is None:
            return None
        finding = stalled(silence.settings, self._idle, first=not self._heard)
        if not finding.trips:
            return None
        if silence.trips:
            return Trip((finding,))
        self._once("stalled", f"{finding.why}; the worker is left running, see [guard] on_stall", warn)
        return None

    def _once(self, kind: str, text: str, warn: Callable[[str, str], None]) -> None:
        if kind not in self._said:
            self._said.add(kind)
            warn(kind, text)


def no_telemetry(address: str) -> str:
    """What to do about a worker that says nothing."""
    return (
        f"no telemetry so far: no record was written to {address}; let the training call "
        "td_loop.guard.Telemetry().log(step, ...) for every batch, or write lines to $TD_GUARD_TELEMETRY"
    )


def telemetry_file(folder: Path, attempt: int) -> Path:
    """The file that holds the telemetry of an attempt, whatever way it came."""
    return folder.absolute() / f"telemetry.a{attempt}.jsonl"


def address(configured: str, folder: Path, attempt: int) -> str:
    """Where the telemetry of an attempt is expected, for `open_source`."""
    if configured == FILE:
        return str(telemetry_file(folder, attempt))
    if configured.startswith("redis") and "stream=" not in configured:
        # Of several guards at one server each has a stream of its own, and finds it again.
        import hashlib
        import socket

        own = hashlib.sha256(f"{socket.gethostname()}:{folder.resolve()}".encode()).hexdigest()[:12]
        return f"{configured}{'&' if '?' in configured else '?'}stream=td_loop:guard:{own}"
    return configured
