"""What a guarded process says: to its log, and on to our own output as far as somebody reads it.

The process must never wait for its guard, and the guard never for a reader: a full disk under the log, or a
terminal that was stopped with Ctrl-S, costs lines and never training.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
from collections import deque
from pathlib import Path

_PIECE = 1 << 16
_WRITE = 4096
"""Bytes that a pipe takes without blocking once it says that it takes any (PIPE_BUF)."""
_WAITING = 1 << 20
"""Bytes that may wait for a reader of ours; what comes then is left to the log."""


class Output:
    """Copies what comes from pipes to a log, and to a descriptor of ours each."""

    def __init__(self, log: Path) -> None:
        """Append to `log`, if the disk lets us."""
        self.log_fault: str | None = None
        """Why the log is not whole; None while it is."""
        self._log = -1
        self._pipes: dict[int, _Echo] = {}
        try:
            self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as e:
            self._lost(log, e)
        self._path = log

    def follow(self, pipe: int, echo: int | None) -> None:
        """Read the descriptor `pipe`, now ours, from now on; copy it to `echo`, too, unless that is None."""
        os.set_blocking(pipe, False)
        with contextlib.suppress(OSError, AttributeError):  # more room, for the time that a checkpoint takes us
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _WAITING)
        self._pipes[pipe] = _Echo(echo)

    def wait(self, seconds: float) -> None:
        """Wait until something is said, for so long at most, and copy it."""
        select.select(list(self._pipes), [], [], seconds)
        self.copy()

    def copy(self) -> None:
        """Copy what was said so far; never wait."""
        for pipe, echo in list(self._pipes.items()):
            for _ in range(16):  # then others have their turn
                try:
                    piece = os.read(pipe, _PIECE)
                except BlockingIOError:
                    break
                if not piece:
                    os.close(pipe)
                    del self._pipes[pipe]
                    break
                self._write(piece)
                echo.add(piece)
            echo.flush()

    def close(self) -> None:
        """Read no more."""
        self.copy()
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = {}
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _write(self, piece: bytes) -> None:
        try:
            while piece and self._log >= 0:
                piece = piece[os.write(self._log, piece) :]
        except OSError as e:
            self._lost(self._path, e)

    def _lost(self, log: Path, e: OSError) -> None:
        self.log_fault = self.log_fault or f"{log}: what the process says is not kept: {e.strerror}"


class _Echo:
    """What still has to be written to a descriptor of ours."""

    def __init__(self, fd: int | None) -> None:
        self._fd, self._left, self._size = fd, deque[bytes](), 0

    def add(self, piece: bytes) -> None:
        if self._fd is not None and self._size < _WAITING:
            self._left.append(piece)
            self._size += len(piece)

    def flush(self) -> None:
        while self._left and self._fd is not None:
            piece = self._left.popleft()
            try:
                # It may block, and others write to it, too: it is asked first, and given no more than it takes.
                ready = select.select([], [self._fd], [], 0)[1]
                written = os.write(self._fd, piece[:_WRITE]) if ready else 0
            except BlockingIOError:
                written = 0
            except (OSError, ValueError):  # nobody reads any more
                self._fd, self._left = None, deque()
                return
            self._size -= written
            if written < len(piece):
                self._left.appendleft(piece[written:])
            if not written:
                return
