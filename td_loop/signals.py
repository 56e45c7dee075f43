"""SIGINT and SIGTERM as one exception, wherever the program stands: in a search, a warm-up or a write."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from td_loop.errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
