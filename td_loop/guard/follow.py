"""A file of telemetry, followed as it grows."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from td_loop.guard.sources import MAX_BYTES, Batch, Complaints, Lines, Poll, Position

_MARK = 64
"""So many bytes before the place that has been read up to are compared: a file may have been written anew."""


class FileSource:
    """Follows one path. A file that is cut short, written anew, or replaced by another is read from its start."""

    def __init__(self, path: Path, at: Position | None = None) -> None:
        """`path` may not be there yet. `at`: a `position()` of earlier; None: from the start."""
        self._path = path.absolute()
        self._at = at or {}
        self._fd = -1
        self._inode = 0
        self._complaints = Complaints()
        self._start(0)

    def poll(self) -> Poll:
        """Read at most MAX_BYTES."""
        batch = Batch()
        try:
            if self._fd < 0:
                self._open(batch)
            self._read_on(batch)
            self._complaints.over()
        except FileNotFoundError:
            if self._inode:  # before it is first there, there is nothing to say
                self._complaints.say(batch, f"{self._path}: is gone; waiting for another one")
        except OSError as e:
            self._complaints.say(batch, f"{self._path}: cannot be read: {e.strerror}; trying again")
        return batch.poll()

    def address(self) -> str:
        """The absolute path."""
        return str(self._path)

    def position(self) -> Position:
        """The start of the first line that has not been handed out, and how to know the file again."""
        if self._fd < 0:
            return self._at
        offset = self._lines.start
        return {"inode": self._inode, "offset": offset, "crc32": self._crc(offset)}

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            self._at = self.position()
            os.close(self._fd)
            self._fd = -1

    def _open(self, batch: Batch) -> None:
        # O_NONBLOCK: opening a pipe would wait for a writer.
        self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._inode = os.fstat(self._fd).st_ino
        self._start(0)
        at, self._at = self._at, {}
        if not at:
            return
        offset = at.get("offset")
        if (
            at.get("inode") == self._inode
            and isinstance(offset, int)
            and 0 <= offset <= os.fstat(self._fd).st_size
            and at.get("crc32") == self._crc(offset)
        ):
            self._start(offset)
        else:
            batch.faults.append(
                f"{self._path}: is another file than the one read before; it is read from its start"
            )

    def _start(self, offset: int) -> None:
        """Read on from `offset`."""
        self._read = offset  # so many bytes of the file have been read,
        self._mark = self._before(offset)  # and these are the last of them
        self._lines = Lines(str(self._path), offset)

    def _read_on(self, batch: Batch) -> None:
        found = os.pread(self._fd, len(self._mark) + MAX_BYTES, self._read - len(self._mark))
        if not found.startswith(self._mark):
            batch.faults.append(f"{self._path}: was cut short or written anew; it is read from its start")
            batch.more = True
            self._start(0)
            return
        data = found[len(self._mark) :]
        self._read += len(data)
        self._mark = found[-_MARK:]
        self._lines.feed(data, batch)
        batch.more = len(data) == MAX_BYTES
        if not data and self._path.stat().st_ino != self._inode:  # all of the old file has been read
            self._lines.end(batch)
            batch.faults.append(f"{self._path}: was replaced by another file; that one is read from its start")
            batch.more = True
            os.close(self._fd)
            self._fd = -1

    def _crc(self, offset: int) -> int:
        return zlib.crc32(self._before(offset))

    def _before(self, offset: int) -> bytes:
        """The last bytes before `offset`, at most _MARK."""
        n = min(_MARK, offset)
        return os.pread(self._fd, n, offset - n) if n else b""
