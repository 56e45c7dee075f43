"""Append-only logs of JSON lines: small, read by people as well, and the only memory of what happened.

A kill or a power cut may leave the last line torn. Readers pass over it, and whoever goes on writing cuts it off
first. Any other line that does not parse is damage, and an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson

from td_loop import fence
from td_loop.errors import DataError
from td_loop.files import dumps_json, fsync_dir, make_dir, storage_errors, write_bytes

T = TypeVar("T")


def read_lines(path: Path, parse: Callable[[Any], T], remedy: str) -> list[T]:
    """What `parse` makes of each line, oldest first; none where there is no file. A torn last line does not count.

    Args:
        path: of the log.
        parse: one line's JSON value -> what it means; may raise DataError.
        remedy: ends the message about a damaged line.

    Raises:
        DataError: a line is damaged, or the file cannot be read; the message names file and line.
    """
    found = []
    for n, line in enumerate(_whole_lines(_read(path)), start=1):
        try:
            found.append(parse(orjson.loads(line)))
        except (orjson.JSONDecodeError, DataError) as e:
            raise DataError(f"{path}, line {n}: {e}; {remedy}") from e
    return found


def cut_torn(path: Path) -> None:
    """Cut off a torn last line.

    Raises:
        StorageError: the disk is full, read-only or failing.
    """
    content = _read(path)
    if len(whole := b"".join(_whole_lines(content))) < len(content):
        write_bytes(path, whole)


def append_line(path: Path, value: Mapping[str, Any], *, durable: bool = True) -> None:
    """Add a line; when this returns, it is on the disk.

    Args:
        path: of the log; made if it is not there.
        value: the line.
        durable: wait for the disk. If not, the line survives this process, whatever ends it, but no power cut
            until a later line was durable: for what cannot wait.

    Raises:
        StorageError: the disk is full, read-only or failing; the file holds what it held before.
        RunInUse: another driver has taken over (see `fence.py`).
    """
    line = dumps_json(value) + b"\n"
    make_dir(path.parent)
    fence.check()
    with storage_errors(path, len(line)):
        new = not path.exists()
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            end = os.fstat(fd).st_size
            try:
                left = memoryview(line)
                while left:
                    left = left[os.write(fd, left) :]
                if durable:
                    os.fsync(fd)
            except BaseException:
                with contextlib.suppress(OSError):  # else the next reader cuts it off
                    os.ftruncate(fd, end)
                raise
        finally:
            os.close(fd)
        if new and durable:
            fsync_dir(path.parent)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}; see to the disk and the permissions") from e


def _whole_lines(content: bytes) -> list[bytes]:
    return [line + b"\n" for line in content.split(b"\n")[:-1]]
