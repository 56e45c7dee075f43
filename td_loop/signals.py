"""SIGINT and SIGTERM as one exception, wherever the program stands: an import, a search, a warm-up, a write."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from td_loop.errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

GRACE_S = 3.0
"""How long anything may take to end after a signal before it is made to: together with what follows, under 5 s."""

LIFELINE = "TD_LOOP_LIFELINE"
"""Environment variable: descriptor of a pipe whose other end the driver holds, and nobody else."""

_PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Inside the block the first SIGINT or SIGTERM raises `Interrupted`; later ones are ignored until it ends.

    Whoever presses Ctrl-C twice must not cut short the cleaning up that the first one began. An exception in a
    callback of a C library is swallowed there: then it is raised again when the block ends, or the process exits
    after GRACE_S, whatever comes first.

    In a stage the death of the driver counts as a SIGTERM. Outside of the main thread, where Python delivers no
    signals, the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    received: list[int] = []

    def stop(signum: int, _frame: FrameType | None) -> None:
        received.append(signum)
        for s in STOP_SIGNALS:
            signal.signal(s, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + signum))
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
        raise Interrupted(signum)

    before = {s: signal.signal(s, stop) for s in STOP_SIGNALS}
    before[signal.SIGALRM] = signal.getsignal(signal.SIGALRM)
    try:
        _watch_lifeline()
        yield
        if received:
            raise Interrupted(received[0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for s, handler in before.items():
            signal.signal(s, handler)


def _watch_lifeline() -> None:
    """Send ourselves SIGTERM when the driver ends, however that ends, and whatever stands between it and us.

    The kernel tells only a child that its parent died (`die_with`). A stage behind a shell script would not hear
    of it; its end of the lifeline does.
    """
    text = os.environ.pop(LIFELINE, "")  # taken: the number means nothing to processes that we start
    try:
        fd = int(text)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return
    except (ValueError, OSError):  # started by hand, or a wrapper closed it
        return

    def watch() -> None:
        os.read(fd, 1)  # nothing is ever written: this returns when the driver has gone
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def die_with(parent: int) -> Callable[[], None]:
    """What a child process calls first, so that the kernel kills it when `parent` ends, however that ends.

    An orphan would work on for nobody. The library is loaded here, before a fork, after which little is safe to
    call. Only Linux can be asked.
    """
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)

    return ask


class Signals:
    """SIGINT and SIGTERM, noted while the block runs and passed on to the child that runs.

    They do not interrupt the program where it stands, between manifest and symlink say: it asks with `check`.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.times = 0
        self.group: int | None = None
        """Process group of the child that runs."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for signum in STOP_SIGNALS:
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.received = signum
        self.times += 1
        self.forward()

    def forward(self) -> None:
        """Send what was received to the running child; asked twice, do not ask politely again."""
        if self.received is not None and self.group is not None:
            kill_group(self.group, self.received if self.times == 1 else signal.SIGKILL)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.received is not None:
            raise Interrupted(self.received)


@contextlib.contextmanager
def lifeline() -> Iterator[int]:
    """A pipe for a child to watch, which finds its number in `$TD_LOOP_LIFELINE`.

    Nothing but this process, and until its end, holds the other end of it.
    """
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def kill_group(group: int, signum: int) -> None:
    """Signal a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)
