"""What a killed driver left behind is ended by the next one, whatever program it is.

A stage behind a shell outlives a driver that is killed. One of ours notices (the lifeline, `td_loop.signals`), and
what one writes through `td_loop.files` is refused (`td_loop.fence`); a program of a user's own knows neither, and
would write over files that the next driver promoted. It is known by its environment: it has inherited the name of
the run's lock file, and the epoch that its driver began.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from td_loop.errors import RunInUse
from td_loop.fence import EPOCH, EPOCH_FILE

WAIT_S = 2.0
"""How long processes that were killed may take to be gone: one that waits for a dead disk does not go."""


def end_orphans(line: str, file: Path) -> int:
    """Kill every process of this user on this machine that works for an earlier driver of the run.

    The caller holds the lock. Never killed are this process and those above it. Only Linux can be asked.

    Args:
        line: what the lock file says: our epoch.
        file: the lock file.

    Returns:
        How many were killed; all of them are gone.

    Raises:
        RunInUse: one does not go.
    """
    if sys.platform != "linux":
        return 0
    deadline = time.monotonic() + WAIT_S
    spared, killed = _lineage(), 0
    # Again until none is found: one may have started another just before it was killed.
    while found := [pid for pid in _processes() if pid not in spared and _is_orphan(pid, line, file)]:
        for pid in found:
            with contextlib.suppress(OSError):  # gone already
                fd = os.pidfd_open(pid)
                try:
                    # Asked again: what the descriptor stands for cannot become another process meanwhile.
                    if not _is_orphan(pid, line, file):
                        continue
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                    killed += bool(select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0])
                finally:
                    os.close(fd)
        if time.monotonic() > deadline:
            left = ", ".join(map(str, found))
            raise RunInUse(
                f"{file.parent}: an earlier driver left processes that cannot be ended ({left}); end them, then "
                "run again"
            )
    return killed


def _processes() -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            yield int(folder.name)


def _is_orphan(pid: int, line: str, file: Path) -> bool:
    """Whether a living process has inherited an epoch of `file` that is not `line`."""
    try:
        folder = Path("/proc") / str(pid)
        if folder.stat().st_uid != os.getuid():
            return False
        # Of a process that has ended and was not waited for this is empty.
        entries = (folder / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or not ours to look at
        return False
    found = {name: value for name, _, value in (entry.partition(b"=") for entry in entries)}
    theirs, place = found.get(os.fsencode(EPOCH)), found.get(os.fsencode(EPOCH_FILE))
    return bool(theirs and place) and theirs != os.fsencode(line) and _same(Path(os.fsdecode(place or b"")), file)


def _same(a: Path, b: Path) -> bool:
    """Whether two paths name one file, perhaps by way of a link."""
    try:
        return a.samefile(b)
    except OSError:
        return False


def _lineage() -> set[int]:
    """This process and those above it."""
    pid, found = os.getpid(), set[int]()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            stat = (Path("/proc") / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return found
