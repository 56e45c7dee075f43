"""Small recipes for tests of the pool: what a worker does with a number."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def square() -> Callable[[int], int]:
    return lambda x: x * x


def report() -> Callable[[str], Any]:
    """What the environment of a worker is like."""

    def answer(what: str) -> Any:
        return {
            "pid": os.getpid(),
            "threads": os.environ.get(what),
            "modules": sorted(m for m in sys.modules if m in ("torch", "numba", "numpy", "pytest")),
            "sigint": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        }

    return answer


def troubled() -> Callable[[int], int]:
    """1 dies, 2 hangs, 3 raises, 4 exits, 5 breaks off; all else is doubled."""

    def answer(x: int) -> int:
        if x == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if x == 2:
            time.sleep(1000)
        if x == 3:
            raise ZeroDivisionError("three")
        if x == 4:
            os._exit(7)
        if x == 5:
            os.abort()
        return 2 * x

    return answer


def no_start() -> Callable[[int], int]:
    raise RuntimeError("no search today")


def dead_start() -> Callable[[int], int]:
    os._exit(3)


class DiesOnce:
    """The first worker dies while it starts; whoever comes after finds the mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self) -> Callable[[int], int]:
        if not self.mark.exists():
            self.mark.touch()
            os._exit(3)
        return square()
