"""A lock on a folder that dies with the process that holds it, and a line in it that says who that is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from td_loop.errors import RunInUse
from td_loop.fence import first_line
from td_loop.files import storage_errors

PATIENCE_S = 0.5
"""How long a lock may stay held before it counts as held: a process that was just killed takes a moment to go."""
_LINE = re.compile(r"(?:epoch \d+, )?(.+?)(?: since (.+))?")


@dataclass(frozen=True)
class Holder:
    """Who is at work in a folder.

    Attributes:
        who: process and machine, in words.
        since: when it started (ISO, local time); None where the lock file does not say yet.
    """

    who: str
    since: str | None


class LockFile:
    """A lock file that is held."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd, self.path = fd, path
        self.before = _read(fd)
        """The line that it held when it was taken: of an earlier holder, or empty."""

    def sign(self, prefix: str = "") -> str:
        """Write the line that names this process, after `prefix`; return it."""
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        line = f"{prefix}process {os.getpid()} on {socket.gethostname()} since {since}"
        with storage_errors(self.path):
            # In this order the file holds a whole line at every moment; its first is the one that counts.
            os.ftruncate(self._fd, os.pwrite(self._fd, f"{line}\n".encode(), 0))
        return line


@contextlib.contextmanager
def locked(path: Path, remedy: str) -> Iterator[LockFile]:
    """Hold `path` locked while the block runs.

    The kernel holds the lock (flock), not the file's existence or content: a killed holder, or a zero-byte file,
    blocks nobody. The descriptor is not inherited, so a child that outlives its parent holds nothing either.

    Args:
        path: made if it is not there; its folder is what is in use.
        remedy: ends the message about a lock that is held: "wait for it to end, or ...".

    Raises:
        RunInUse: another process holds it; the message says which and since when.
        StorageError: the folder cannot be written.
    """
    with storage_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if not _take(fd):
            other = named(_read(fd))
            since = "" if other.since is None else f" since {other.since}"
            raise RunInUse(f"{path.parent} is in use by {other.who}{since}; {remedy}")
        yield LockFile(fd, path)
    finally:
        os.close(fd)


def holder(path: Path) -> Holder | None:
    """Who holds the lock file `path` at this moment; None when nobody does.

    A shared lock is asked for and given back at once: that never waits, is refused beside a holder's lock, and
    several who ask at the same time do not see each other. The content of the lock file alone says nothing: it
    outlives a holder that was killed.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # nobody ever started here, or a file that nobody may read
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return named(_read(fd))
    else:
        return None
    finally:
        os.close(fd)


def named(line: str) -> Holder:
    """Whom the line of a lock file names that is held."""
    found = _LINE.fullmatch(line)
    return Holder("a process that is just starting", None) if found is None else Holder(found[1], found[2])


def _take(fd: int) -> bool:
    """Lock it; False if somebody else keeps it locked."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _read(fd: int) -> str:
    return first_line(os.pread(fd, 1000, 0))
