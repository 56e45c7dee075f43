"""Processes that are started once and fed tasks, and whose death or silence costs one task and nothing else.

Every worker has a socket of its own. With the shared queues of `multiprocessing.Pool`, `ProcessPoolExecutor` or
pebble, a worker that is killed while it holds the queue's lock takes the others with it; here there is no lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from td_loop.errors import TdLoopError
from td_loop.prepare.channel import Channel
from td_loop.prepare.worker import OUT_OF_MEMORY, READY, Raised

T = TypeVar("T")
R = TypeVar("R")

START_LIMIT_S = 300.0
"""Seconds in which a worker must be ready: imports and the loading of compiled kernels, on a slow disk."""

MAX_FAILED_STARTS = 5
"""Workers that died in a row before any of them was ready, after which starting more is pointless."""

SUSPENDED_S = 5.0
"""A wait that overruns by this much means that we were stopped ourselves, and so were the workers."""

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from td_loop.prepare import worker; worker.main()"
)
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Outcome(Generic[T, R]):
    """How a task ended: with a result, or lost.

    Attributes:
        worker: index of the worker, 0 .. n-1; a replacement takes over the index.
        lost: None, or why there is no result, in words.
    """

    worker: int
    task: T
    result: R | None
    lost: str | None = None


@dataclass
class _Slot(Generic[T]):
    process: subprocess.Popen[bytes]
    pipe: Channel
    deadline: float
    ready: bool = False
    task: list[T] = field(default_factory=list)  # the one under way, if any


class Pool(Generic[T, R]):
    """`n` workers, each of which calls `recipe()` once and then the function that this returned on every task.

    A worker that asks for more than `memory` bytes (None: no limit) ends, and is replaced.
    """

    def __init__(self, recipe: Callable[[], Callable[[T], R]], n: int, memory: int | None = None) -> None:
        self._recipe, self._memory, self._failed_starts = recipe, memory, 0
        self._slots: list[_Slot[T]] = []
        try:
            for _ in range(n):
                self._slots.append(self._start())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Pool[T, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill every worker, whatever it does: there is nothing in it that is not here already."""
        for slot in self._slots:
            slot.process.kill()
        for slot in self._slots:
            slot.process.wait()
            slot.pipe.close()
        self._slots.clear()

    def run(self, take: Callable[[], T | None], limit_s: Callable[[T], float]) -> Iterator[Outcome[T, R]]:
        """Give tasks to idle workers until `take` has none and all are done; yield each as it ends.

        Args:
            take: the next task, or None when there is none now (a task that is lost may bring new ones).
            limit_s: seconds after which a task's worker counts as stuck.

        Raises:
            TdLoopError: workers cannot be started.
        """
        while True:
            for slot in self._slots:
                if slot.ready and not slot.task and (task := take()) is not None:
                    slot.task.append(task)
                    slot.deadline = time.monotonic() + limit_s(task)
                    with contextlib.suppress(OSError):  # it died while idle; the wait below finds out
                        slot.pipe.send(task)
            busy = [s for s in self._slots if s.task]
            if not busy and (any(s.ready for s in self._slots) or not self._slots):
                return
            yield from self._wait(busy + [s for s in self._slots if not s.ready])

    def _wait(self, slots: list[_Slot[T]]) -> Iterator[Outcome[T, R]]:
        """Wait until one of `slots` says something, dies, or is overdue."""
        began = time.monotonic()
        patience = max(0.0, min(s.deadline for s in slots) - began)
        heard = _wait_for([s.pipe for s in slots], patience)
        now = time.monotonic()
        overrun = now - began - patience
        if overrun > SUSPENDED_S:
            for slot in slots:
                slot.deadline += overrun
        for slot in slots:
            if slot.pipe in heard:
                yield from self._hear(slot)
            waiting = slot in self._slots and (slot.task or not slot.ready)
            if waiting and now > slot.deadline:
                yield from self._replace(slot, "gave no sign of life within its time limit")

    def _hear(self, slot: _Slot[T]) -> Iterator[Outcome[T, R]]:
        try:
            slot.pipe.flush()
            messages = slot.pipe.receive()
        except (EOFError, OSError):
            yield from self._replace(slot, "died")
            return
        for message in messages:
            if not slot.ready:
                if isinstance(message, Raised):
                    raise TdLoopError(f"a worker could not start:\n{message.text}")
                assert message == READY
                slot.ready, self._failed_starts = True, 0
                continue
            task = slot.task.pop()
            index = self._slots.index(slot)
            if isinstance(message, Raised):
                yield Outcome(index, task, None, message.text)
            else:
                yield Outcome(index, task, message)

    def _replace(self, slot: _Slot[T], what: str) -> Iterator[Outcome[T, R]]:
        """Start a new worker in place of one that is dead or stuck, and report the task that it had."""
        slot.process.kill()
        code = slot.process.wait()
        slot.pipe.close()
        if not slot.ready:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise TdLoopError(
                    f"{self._failed_starts} workers in a row ended while they started (the last {what}, "
                    f"{self._ending(code)}); is there memory for {len(self._slots)}? try fewer --workers"
                )
        index = self._slots.index(slot)
        self._slots[index] = self._start()
        for task in slot.task:
            yield Outcome(index, task, None, f"its worker {what} ({self._ending(code)})")

    def _ending(self, code: int) -> str:
        """An exit status in words."""
        if code == OUT_OF_MEMORY and self._memory:
            return f"out of memory: {self._memory / 1e9:.2g} GB is the share of a worker"
        if code >= 0:
            return f"exit code {code}"
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
        return f"signal {-code}"

    def _start(self) -> _Slot[T]:
        """Start a worker in a fresh interpreter: a fork would copy locks that other threads may hold."""
        ours, theirs = socket.socketpair()
        # The worker inherits the mask: Ctrl-C goes to the whole process group, but ending workers is our business.
        numbers = theirs.fileno(), os.getpid(), self._memory or 0
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(_paths()), *map(str, numbers)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        pipe = Channel(ours)
        with contextlib.suppress(OSError):  # died at once; the wait finds out
            pipe.send(self._recipe)
        return _Slot(process, pipe, time.monotonic() + START_LIMIT_S)


def _paths() -> list[str]:
    """Our module search path; an empty entry means the current folder to us, and another to `python -c`."""
    return [path or str(Path.cwd()) for path in sys.path]


def _wait_for(pipes: Sequence[Channel], seconds: float) -> list[Channel]:
    """Those of `pipes` that can be read, or take more of what is unsent, within `seconds`."""
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ | (selectors.EVENT_WRITE if pipe.has_unsent else 0), pipe)
        return [key.data for key, _ in selector.select(seconds)]
