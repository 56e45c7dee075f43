"""The breaker's log, `breaker.jsonl`: one transition a line, appended and made durable before anything follows.

A kill or a power cut may leave the last line torn. Readers pass over it, and whoever goes on writing cuts it off
first. Any other line that does not parse is damage, and an error: it is the only memory of what happened.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import orjson

from td_loop import fence
from td_loop.errors import DataError
from td_loop.files import dumps_json, fsync_dir, make_dir, storage_errors, write_bytes
from td_loop.guard.breaker import Transition

NAME = "breaker.jsonl"
"""Its name in the guard's folder."""


def read_log(path: Path) -> list[Transition]:
    """All transitions, oldest first; none where there is no file. A torn last line does not count.

    Raises:
        DataError: a line is damaged, or the file cannot be read; the message names file and line.
    """
    return _parse(path, _whole_lines(_read(path)))


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
        content = _read(path)
        lines = _whole_lines(content)
        self.transitions = _parse(path, lines)
        if len(whole := b"".join(lines)) < len(content):
            write_bytes(path, whole)

    def append(self, transition: Transition) -> None:
        """Add a line; when this returns, it is on the disk.

        Raises:
            StorageError: the disk is full, read-only or failing; the file holds what it held before.
            RunInUse: another driver has taken over (see `fence.py`).
        """
        line = dumps_json(transition.as_json()) + b"\n"
        make_dir(self.path.parent)
        fence.check()
        with storage_errors(self.path, len(line)):
            new = not self.path.exists()
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                end = os.fstat(fd).st_size
                try:
                    left = memoryview(line)
                    while left:
                        left = left[os.write(fd, left) :]
                    os.fsync(fd)
                except BaseException:
                    with contextlib.suppress(OSError):  # else the next reader cuts it off
                        os.ftruncate(fd, end)
                    raise
            finally:
                os.close(fd)
            if new:
                fsync_dir(self.path.parent)
        self.transitions.append(transition)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}; see to the disk and the permissions") from e


def _whole_lines(content: bytes) -> list[bytes]:
    return [line + b"\n" for line in content.split(b"\n")[:-1]]


def _parse(path: Path, lines: Iterable[bytes]) -> list[Transition]:
    found = []
    for n, line in enumerate(lines, start=1):
        try:
            found.append(Transition.from_json(orjson.loads(line)))
        except (orjson.JSONDecodeError, DataError) as e:
            raise DataError(
                f"{path}, line {n}: {e}; the breaker's state rests on this file: put a sound copy in its place, "
                "or move the folder away and begin anew"
            ) from e
    return found
