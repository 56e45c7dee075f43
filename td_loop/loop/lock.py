"""One driver a run directory, by a lock that dies with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from td_loop.errors import RunInUse
from td_loop.files import storage_errors


@contextlib.contextmanager
def run_lock(path: Path) -> Iterator[None]:
    """Hold `path` locked while the block runs.

    The kernel holds the lock (flock), not the file's existence or content: a killed driver, or a zero-byte file,
    blocks nobody. The descriptor is not inherited, so a stage that outlives its driver holds nothing either.

    Raises:
        RunInUse: another process holds it; the message says which and since when.
        StorageError: the folder cannot be written.
    """
    with storage_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 1000, 0).decode(errors="replace").strip() or "a process that is just starting"
            raise RunInUse(
                f"{path.parent} is in use by {holder}; wait for it to end, stop it, or use another --tag"
            ) from None
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        with storage_errors(path):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
