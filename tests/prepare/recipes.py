"""Small recipes for tests of the pool: what a worker does with a number."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a worker that squares numbers needs no numpy, and a test looks at that
    from td_loop.value.model import SplineValue


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


class Values:
    """How many kernels a worker compiles to evaluate a value function."""

    def __init__(self, value: SplineValue) -> None:
        self.value = value

    def __call__(self) -> Callable[[int], list[str]]:
        import numpy as np

        from td_loop.kernels import compilations
        from td_loop.value.evaluate import evaluate

        def answer(b: int) -> list[str]:
            f = len(self.value.feature_names)
            with compilations() as names:
                evaluate(
                    self.value, np.zeros((b, 4, f), np.float32), np.full(b, 2, np.int8), np.ones((b, 4), bool)
                )
            return names

        return answer


def half_an_answer() -> Callable[[int], int]:
    """1 stops in the middle of its message; all else is doubled."""

    def answer(x: int) -> int:
        if x == 1:
            os.write(int(sys.argv[-3]), (1000).to_bytes(8, "little") + b"half of it")
            os.kill(os.getpid(), signal.SIGSTOP)
        return 2 * x

    return answer


def length() -> Callable[[bytes], bytes]:
    """As many bytes as it gets."""
    return lambda data: bytes(len(data))


class StopsAtStart:
    """A recipe of many bytes, whose worker was stopped before it could take them; the next one is not."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.ballast = mark, bytes(4_000_000)

    def __call__(self) -> Callable[[int], int]:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return square()


def hog() -> Callable[[int], int]:
    """Takes as many megabytes as it is told, and keeps them."""
    taken = []

    def answer(megabytes: int) -> int:
        taken.extend(bytes(1_000_000) for _ in range(megabytes))
        return len(taken)

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
