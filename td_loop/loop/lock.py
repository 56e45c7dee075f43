"""One driver a run directory, by a lock that dies with its process, and an epoch that outlives it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from td_loop.fence import epoch
from td_loop.lock import locked
from td_loop.loop.orphans import end_orphans

_EPOCH = re.compile(r"epoch (\d+), ")


@contextlib.contextmanager
def run_lock(path: Path) -> Iterator[int]:
    """Hold `path` locked while the block runs, in an epoch of its own (see `td_loop.fence`).

    A stage that outlives its driver does not hold the lock; it is ended before the block begins. Where it cannot
    be (it runs on another machine), the new epoch refuses what it still writes. Epochs count up from the one in
    the file, from 1 where there is none.

    Yields:
        How many processes of an earlier driver were ended.

    Raises:
        RunInUse: another process holds it; the message says which and since when; or a process of an earlier
            driver cannot be ended.
        StorageError: the folder cannot be written.
    """
    with locked(path, "wait for it to end, stop it, or use another --tag") as lock:
        before = _EPOCH.match(lock.before)
        line = lock.sign(f"epoch {int(before[1]) + 1 if before else 1}, ")
        ended = end_orphans(line, path)
        with epoch(line, path):
            yield ended
