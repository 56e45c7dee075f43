"""Processes of this user on this machine: whose they are, and how they are ended. Only Linux can be asked."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36


def living() -> Iterator[int]:
    """Ids of all processes that have not been waited for; none where the system does not tell."""
    if sys.platform != "linux":
        return
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            yield int(folder.name)


def environment(pid: int) -> dict[bytes, bytes]:
    """The environment that a process of this user was started with.

    Empty if it has ended, or is not ours to look at.
    """
    try:
        folder = _PROC / str(pid)
        if folder.stat().st_uid != os.getuid():
            return {}
        # Of a process that has ended and was not waited for this is empty.
        entries = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return {name: value for name, _, value in (entry.partition(b"=") for entry in entries)}


def inherited_path(found: dict[bytes, bytes], name: str, path: Path) -> bool:
    """Whether the variable `name` of an environment names the file or folder `path`, perhaps by way of a link."""
    theirs = found.get(os.fsencode(name))
    try:
        return bool(theirs) and Path(os.fsdecode(theirs or b"")).samefile(path)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Status:
    """What the system tells of a process.

    Attributes:
        parent: its id.
        group: the process group.
        ended: it has, and was not waited for.
    """

    parent: int
    group: int
    ended: bool


def status(pid: int) -> Status | None:
    """What the system tells of a process; None if there is none."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent, group = stat.rpartition(")")[2].split()[:3]
    return Status(int(parent), int(group), state in "ZX")


def lineage() -> set[int]:
    """This process and those above it."""
    pid, found = os.getpid(), set[int]()
    while pid > 0 and pid not in found:
        found.add(pid)
        above = status(pid)
        if above is None:
            break
        pid = above.parent
    return found


def children(parent: int) -> set[int]:
    """Processes whose parent is `parent`, those included that have ended and were not waited for."""
    return {pid for pid in living() if (found := status(pid)) is not None and found.parent == parent}


def descendants(root: int, without: Collection[int] = ()) -> set[int]:
    """Processes that `root` started, directly or not, and that have not ended; none of `without` and below."""
    below: dict[int, list[int]] = {}
    for pid in living():
        found = status(pid)
        if found is not None and not found.ended and pid not in without:
            below.setdefault(found.parent, []).append(pid)
    all_of_them, wave = set[int](), below.get(root, [])
    while wave:
        all_of_them |= set(wave)
        wave = [pid for parent in wave for pid in below.get(parent, [])]
    return all_of_them


def end_all(which: Callable[[int], bool], spared: Collection[int], wait_s: float) -> tuple[int, list[int]]:
    """Kill every process that `which` is true of, until there is none.

    Args:
        which: asked again right before the kill: an id may have become another process's meanwhile.
        spared: ids that are never killed.
        wait_s: how long they may take to be gone: one that waits for a dead disk does not go.

    Returns:
        How many were killed, and the ids of those that are still there.
    """
    deadline, killed = time.monotonic() + wait_s, 0
    # Again until none is found: one may have started another just before it was killed.
    while found := [pid for pid in living() if pid not in spared and which(pid)]:
        for pid in found:
            with contextlib.suppress(OSError):  # gone already
                fd = os.pidfd_open(pid)
                try:
                    if not which(pid):
                        continue
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                    killed += bool(select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0])
                finally:
                    os.close(fd)
        if time.monotonic() > deadline:
            return killed, found
    return killed, []


def resident_bytes(pid: int) -> int:
    """Memory that a process holds; 0 of one that has ended."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def adopt_orphans(yes: bool) -> None:
    """Become the parent of every descendant whose own parent ends, or no longer. Only Linux can be asked."""
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)
