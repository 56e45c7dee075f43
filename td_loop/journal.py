"""An append-only file of records, for work that is too long to lose: a kill costs the one being written, no more.

    magic | length u32, crc32 u32, payload | length u32, crc32 u32, payload | ...

A file is never repaired in place. Whoever goes on from one writes what is whole of it to a new file under the same
name, and appends to that: a process that was left over and still appends does so to a file without a name.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from td_loop import fence
from td_loop.errors import CacheError
from td_loop.files import atomic_file, remove, storage_errors

SYNC_S = 5.0
"""Seconds between two fsyncs: so much work may a power cut cost. A kill costs none of what was appended."""

_MAGIC = b"td_loop journal 1\n"
_HEADER = struct.Struct("<II")


def read_records(path: Path) -> Iterator[bytes]:
    """The payloads of a journal up to the first that is torn or damaged; none where there is no file.

    Raises:
        CacheError: the file is not a journal.
    """
    try:
        with path.open("rb") as f:
            if f.read(len(_MAGIC)) != _MAGIC:
                raise CacheError(f"{path}: is not a journal of td_loop; move it away, or give another --out")
            left = os.fstat(f.fileno()).st_size - len(_MAGIC)
            while left > _HEADER.size:
                length, crc = _HEADER.unpack(f.read(_HEADER.size))
                left -= _HEADER.size + length
                # No record is empty: zeros, which a power cut may leave at the end of a file, would read as such.
                if not length or left < 0 or zlib.crc32(payload := f.read(length)) != crc:
                    return
                yield payload
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as e:
        raise CacheError(f"{path}: cannot be read: {e.strerror}; remove it, or give another --out") from e


class Journal:
    """A journal that is being written. Close it, or use it in a `with` block; the file stays until `remove`."""

    def __init__(self, path: Path, records: Iterable[bytes]) -> None:
        """Begin a new file with `records`, which may come from the file that it replaces.

        Raises:
            StorageError: the disk is full, read-only or failing; an old file is as it was.
        """
        self.path = path
        with atomic_file(path) as f:
            f.write(_MAGIC)
            for payload in records:
                f.write(_framed(payload))
            self._end = f.tell()
        with storage_errors(path):
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._synced = time.monotonic()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, payload: bytes) -> None:
        """Add a record (not empty), which is there whole or not at all.

        Raises:
            StorageError: the disk is full or failing; the file holds what it held before.
            RunInUse: another driver has taken over (see `fence.py`).
        """
        fence.check()
        with storage_errors(self.path):
            try:
                left = memoryview(_framed(payload))
                while left:
                    left = left[os.write(self._fd, left) :]
            except BaseException:
                with contextlib.suppress(OSError):  # what is left of it is cut off when the file is read
                    os.ftruncate(self._fd, self._end)
                raise
            self._end += _HEADER.size + len(payload)
            if time.monotonic() - self._synced >= SYNC_S:
                os.fsync(self._fd)
                self._synced = time.monotonic()

    def close(self) -> None:
        """Append no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Delete the file: what it was for is done.

        Raises:
            StorageError: it cannot be deleted.
        """
        self.close()
        remove(self.path)


def _framed(payload: bytes) -> bytes:
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload
