"""One driver a run directory, by a lock that dies with its process, and an epoch that outlives it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from td_loop.errors import RunInUse
from td_loop.fence import epoch, first_line
from td_loop.files import storage_errors
from td_loop.loop.holder import named
from td_loop.loop.orphans import end_orphans

PATIENCE_S = 0.5
"""How long a lock may stay held before it counts as held: a process that was just killed takes a moment to go."""
_EPOCH = re.compile(r"epoch (\d+), ")


@contextlib.contextmanager
def run_lock(path: Path) -> Iterator[int]:
    """Hold `path` locked while the block runs, in an epoch of its own (see `td_loop.fence`).

    The kernel holds the lock (flock), not the file's existence or content: a killed driver, or a zero-byte file,
    blocks nobody. The descriptor is not inherited, so a stage that outlives its driver holds nothing either; it
    is ended before the block begins. Where it cannot be (it runs on another machine), the new epoch refuses what
    it still writes. Epochs count up from the one in the file, from 1 where there is none.

    Yields:
        How many processes of an earlier driver were ended.

    Raises:
        RunInUse: another process holds it; the message says which and since when; or a process of an earlier
            driver cannot be ended.
        StorageError: the folder cannot be written.
    """
    with storage_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if not _locked(fd):
            holder = named(_read(fd))
            since = "" if holder.since is None else f" since {holder.since}"
            raise RunInUse(
                f"{path.parent} is in use by {holder.who}{since}; wait for it to end, stop it, or use another "
                "--tag"
            )
        before = _EPOCH.match(_read(fd))
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        number = int(before[1]) + 1 if before else 1
        line = f"epoch {number}, process {os.getpid()} on {socket.gethostname()} since {since}"
        with storage_errors(path):
            # In this order the file holds a whole line at every moment; its first is the one that counts.
            os.ftruncate(fd, os.pwrite(fd, f"{line}\n".encode(), 0))
        ended = end_orphans(line, path)
        with epoch(line, path):
            yield ended
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
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
