"""Where lines of telemetry go: a file, a Unix socket. Redis Streams are in `redis_stream.py`.

A sink never raises because of what happens outside, and never waits for anybody. What it cannot deliver it
counts.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from typing import Protocol

RETRY_S = 1.0
"""Seconds between two tries to get at a file or a reader that failed."""

MAX_WAITING = 1000
"""Lines that wait for a reader who is slow or has gone. Later ones are lost."""

UNIX = "unix:"
REDIS = ("redis://", "rediss://")


class Sink(Protocol):
    """Takes lines."""

    @property
    def lost(self) -> int:
        """Lines that were not delivered, and will not be."""
        ...

    def write(self, line: bytes) -> None:
        """Take one line, newline included."""
        ...

    def close(self) -> None:
        """Take no more. What waits for a reader gets a last try."""
        ...

    def abandon(self) -> None:
        """Let go in a forked child: send nothing, for that is the parent's to do."""
        ...


def open_sink(where: str) -> Sink:
    """The sink of an address: a file's path, `unix:/path/of.sock`, `redis://host:port/db?stream=NAME`.

    Raises:
        UsageError: an address of Redis that cannot be meant, or the package `redis` is not installed.
    """
    if where.startswith(UNIX):
        return UnixSink(where.removeprefix(UNIX))
    if where.startswith(REDIS):
        from td_loop.guard.redis_stream import RedisSink

        return RedisSink(where)
    return FileSink(where)


class FileSink:
    """Appends to a file, each line by one `write`: lines of several processes do not mix.

    A full disk may take the first half of a line. The next line that fits then begins with a newline, so that the
    half spoils nothing but itself.
    """

    def __init__(self, path: str) -> None:
        self.lost = 0
        self._path = path
        self._fd = -1
        self._retry_at = 0.0
        self._torn = False  # whether the file ends in mid-line
        self._open()

    def write(self, line: bytes) -> None:
        """Append one line."""
        if self._fd < 0 and not (time.monotonic() >= self._retry_at and self._open()):
            self.lost += 1
            return
        if self._torn:
            line = b"\n" + line
        try:
            written = os.write(self._fd, line)
        except OSError:
            written = 0
        if written == len(line):
            self._torn = False
            return
        if written:
            self._torn = line[written - 1] != 0x0A
        self.lost += 1
        self.close()
        self._retry_at = time.monotonic() + RETRY_S

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def abandon(self) -> None:
        """Close the child's descriptor."""
        self.close()

    def _open(self) -> bool:
        # O_NONBLOCK is for what is no regular file: a pipe that nobody empties must not stop training.
        flags = os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self._fd = os.open(self._path, os.O_WRONLY | flags, 0o666)
        except OSError:
            self._retry_at = time.monotonic() + RETRY_S
            return False
        self._torn = self._torn or _ends_in_mid_line(self._path)
        return True


def _ends_in_mid_line(path: str) -> bool:
    """Whether a killed process left half a line at the end of a file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        size = os.fstat(fd).st_size
        return size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    except OSError:  # a device, a pipe
        return False
    finally:
        os.close(fd)


class UnixSink:
    """Sends to a stream socket. While its reader is slow or gone, MAX_WAITING lines wait.

    What waits is sent with the next line, and once more when closed: there is no thread.
    """

    def __init__(self, path: str) -> None:
        self.lost = 0
        self._path = path
        self._socket: socket.socket | None = None
        self._waiting: deque[bytes] = deque()
        self._sent = 0  # bytes of the first waiting line that the reader has
        self._retry_at = 0.0

    def write(self, line: bytes) -> None:
        """Send one line, or let it wait."""
        if len(self._waiting) >= MAX_WAITING:
            self._flush()
        if len(self._waiting) >= MAX_WAITING:
            self.lost += 1
            return
        self._waiting.append(line)
        self._flush()

    def close(self) -> None:
        """Send what the reader takes at once, and hang up."""
        self._flush()
        self.lost += len(self._waiting)
        self._waiting.clear()
        self._hang_up()

    def abandon(self) -> None:
        """Close the child's descriptor; the connection stays the parent's."""
        self._hang_up()

    def _flush(self) -> None:
        if self._socket is None and not (time.monotonic() >= self._retry_at and self._connect()):
            return
        assert self._socket is not None
        try:
            while self._waiting:
                line = self._waiting[0]
                self._sent += self._socket.send(line[self._sent :], socket.MSG_NOSIGNAL)
                if self._sent < len(line):
                    return
                self._waiting.popleft()
                self._sent = 0
        except BlockingIOError:
            return
        except OSError:  # the reader has gone; whoever reads next gets the line from its start
            self._hang_up()

    def _connect(self) -> bool:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.setblocking(False)
        try:
            s.connect(self._path)
        except (OSError, ValueError):  # ValueError: a path with a null byte in it
            s.close()
            self._retry_at = time.monotonic() + RETRY_S
            return False
        self._socket = s
        return True

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._sent = 0
        self._retry_at = time.monotonic() + RETRY_S
