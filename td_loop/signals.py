"""SIGINT and SIGTERM as one exception, wherever the program stands: in a search, a warm-up or a write."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from td_loop.errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside the block the first SIGINT or SIGTERM raises `Interrupted`; later ones are ignored until it ends.

    Whoever presses Ctrl-C twice must not cut short the cleaning up that the first one began. Outside of the main
    thread, where Python delivers no signals, the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, _frame: FrameType | None) -> None:
        for s in STOP_SIGNALS:
            signal.signal(s, signal.SIG_IGN)
        raise Interrupted(signum)

    before = {s: signal.signal(s, stop) for s in STOP_SIGNALS}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def die_with(parent: int) -> Callable[[], None]:
    """What a child process calls first, so that the kernel kills it when `parent` ends, however that ends.

    An orphan would work on for nobody, and could write into a folder that is somebody else's by now. The library
    is loaded here, before a fork, after which little is safe to call. Only Linux can be asked.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)

    return ask
