"""Stands in for a kill, or a failing disk, at a chosen change on disk, within this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from td_loop import files


class Killed(BaseException):
    """Stands in for SIGKILL: nothing may catch it."""


@contextmanager
def trouble(moment: int, error: BaseException) -> Iterator[None]:
    """After that many changes on disk (each is made durable) `error` is raised, whatever the program is doing."""
    durable, left = files.fsync_dir, moment

    def later(folder: Path) -> None:
        nonlocal left
        durable(folder)
        left -= 1
        if left < 0:
            raise error

    files.fsync_dir = later
    try:
        yield
    finally:
        files.fsync_dir = durable


def killed_after(moment: int, action: Callable[[], object]) -> bool:
    """Run `action` and kill it after that many changes on disk; False: it ended before."""
    try:
        with trouble(moment, Killed()):
            action()
    except Killed:
        return True
    return False
