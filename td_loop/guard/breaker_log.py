"""The breaker's log, `breaker.jsonl`: one transition a line, appended and made durable before anything follows.

It is the only memory of what happened (`td_loop/jsonl.py` says what becomes of a torn or damaged line).
"""

from __future__ import annotations

from pathlib import Path

from td_loop.guard.breaker import Transition
from td_loop.jsonl import append_line, cut_torn, read_lines

NAME = "breaker.jsonl"
"""Its name in the guard's folder."""
_REMEDY = (
    "the breaker's state rests on this file: put a sound copy in its place, or move the folder away and begin anew"
)


def read_log(path: Path) -> list[Transition]:
    """All transitions, oldest first; none where there is no file. A torn last line does not count.

    Raises:
        DataError: a line is damaged, or the file cannot be read; the message names file and line.
    """
    return read_lines(path, Transition.from_json, _REMEDY)


class BreakerLog:
    """The log, for the one process that writes it.

    Attributes:
        path: of the file.
        transitions: all of them, oldest first.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, and cut off a torn last line.

        Raises:
            DataError: a line is damaged, or the file cannot be read.
            StorageError: the disk is full, read-only or failing.
        """
        self.path = path
        self.transitions = read_log(path)
        cut_torn(path)

    def append(self, transition: Transition) -> None:
        """Add a line; when this returns, it is on the disk.

        Raises:
            StorageError: the disk is full, read-only or failing; the file holds what it held before.
            RunInUse: another driver has taken over (see `fence.py`).
        """
        append_line(self.path, transition.as_json())
        self.transitions.append(transition)
