"""The book of decisions: which of the last ones have had their reward. Shared by all processes of a server.

Every process numbers its own decisions, and for each of the last WINDOW there is one byte: 0 it waits for its
reward, 1 it has had it. So a reward is counted once, whichever process takes it, and memory is bounded: the file
is sparse, and older decisions count as unknown.

It outlives the server, so that rewards of long episodes find their decision after a restart. After a reboot, when
the disk may hold an older state of it, a new book begins, and names of decisions in the old one are unknown.
"""

from __future__ import annotations

import enum
import fcntl
import secrets
from pathlib import Path

from td_loop.deploy.server.decision_id import DecisionId
from td_loop.deploy.server.mapped import HEAD_BYTES, Mapped
from td_loop.files import storage_errors

FILE, LOCK = "decisions", "decisions.lock"
WINDOW = 1 << 21
"""Decisions of one process that can still be rewarded: three hours at 200 a second."""
MOST_PROCESSES = 64

_MARGIN = (
    1024  # numbers at the far end of the window that are refused already: their bytes are about to be cleared
)
_ID, _NEXT = 64, 65  # words of the head: id of the book; next number of each process
_OPEN, _REWARDED = 0, 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Redeemed(enum.Enum):
    """What became of a reward."""

    COUNTED = "counted"
    DUPLICATE = "the decision has had its reward"
    UNKNOWN = "no such decision"
    EXPIRED = "the decision is too old"


class Ledger:
    """The book of one folder, as one process sees it. Not for use by several threads at the same time."""

    def __init__(self, folder: Path, processes: int, window: int = WINDOW) -> None:
        """Open the book, or begin a new one if there is none for so many processes since the machine was started.

        Raises:
            StorageError: it cannot be made.
        """
        path = folder / FILE
        what = f"td_loop decisions 1: {processes} processes, window {window}, boot {_boot_id()}\n"
        self._file = Mapped(path, what, processes * window)
        self._words = self._file.words
        if not self._words[_ID]:
            self._words[_ID] = secrets.randbits(32) | 1
        self._processes, self._window = processes, window
        with storage_errors(path):
            self._lock = (folder / LOCK).open("wb")

    def close(self) -> None:
        """Give the files back."""
        self._lock.close()
        self._file.close()

    @property
    def id(self) -> int:
        """Which book it is, u32."""
        return self._words[_ID]

    def next_number(self, process: int) -> int:
        """Enter a new decision of `process` (this one, nobody else's), and return its number."""
        number = self._words[_NEXT + process]
        self._file.buffer[self._place(process, number)] = _OPEN
        self._words[_NEXT + process] = number + 1
        return number

    def redeem(self, x: DecisionId) -> Redeemed:
        """Take note of a reward for a decision, once."""
        if x.ledger != self.id or x.process >= self._processes:
            return Redeemed.UNKNOWN
        age = self._words[_NEXT + x.process] - x.number
        if age <= 0:
            return Redeemed.UNKNOWN
        if age > self._window - min(_MARGIN, self._window // 2):
            return Redeemed.EXPIRED
        at = self._place(x.process, x.number)
        # Of the file's range that stands for the byte: two processes may be told of one reward at the same time.
        fcntl.lockf(self._lock, fcntl.LOCK_EX, 1, at)
        try:
            if self._file.buffer[at] != _OPEN:
                return Redeemed.DUPLICATE
            self._file.buffer[at] = _REWARDED
            return Redeemed.COUNTED
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN, 1, at)

    def _place(self, process: int, number: int) -> int:
        return HEAD_BYTES + process * self._window + number % self._window


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
