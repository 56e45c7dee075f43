"""Stopping a guarded process for good: asked, then made to, then proven gone, with the memory that it held."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from td_loop import processes
from td_loop.errors import RunInUse
from td_loop.guard import gpu
from td_loop.guard.children import FOLDER, Child
from td_loop.signals import kill_group

KILL_S = 10.0
"""How long processes may take to be gone after SIGKILL: one that waits for a dead disk does not go."""
GPU_S = 30.0
"""How long the driver may take to give back the GPU memory of a process that has gone."""
_LONGEST_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Proof:
    """That a process and all that it started are gone.

    Attributes:
        processes: ids of those that were there, itself first; all have ended.
        how: what ended them: "by itself", "SIGTERM" or "SIGKILL".
        seconds: that took.
        memory_bytes: resident memory that they held before; now it is 0.
        gpu_mib: GPU memory that they held before, now none; None where there is no nvidia-smi to ask.
        exit_code: of the process itself, or minus the signal that killed it.
    """

    processes: tuple[int, ...]
    how: str
    seconds: float
    memory_bytes: int
    gpu_mib: int | None
    exit_code: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Family:
    """All that belongs to a guarded process: its group, what it started, and what inherited the guard's folder."""

    def __init__(self, folder: Path) -> None:
        """Before the process is started: what is there now is never one of them."""
        self._folder = folder
        self._spared = frozenset(processes.children(os.getpid()) | processes.lineage())

    def members(self, child: Child) -> set[int]:
        """Those that have not ended."""
        ours, found = os.getpid(), set[int]()
        below = processes.descendants(ours, without=self._spared)
        for pid in processes.living():
            stat = processes.status(pid)
            if stat is None or stat.ended or pid in self._spared:
                continue
            if stat.group == child.pid or pid in below or self._inherited(pid):
                found.add(pid)
        return found

    def reap(self, child: Child) -> None:
        """Take note of the end of those that became ours when their parents ended."""
        for pid in processes.children(os.getpid()) - self._spared - {child.pid}:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _inherited(self, pid: int) -> bool:
        return processes.inherited_path(processes.environment(pid), FOLDER, self._folder)


def stop(child: Child, family: Family, *, grace_s: float, pump: Callable[[], None], ask: bool = True) -> Proof:
    """End a guarded process, and prove that nothing of it is left.

    Args:
        child: it may have ended already; it is reaped.
        family: who belongs to it.
        grace_s: between SIGTERM and SIGKILL.
        pump: called again and again meanwhile, and must not wait: reads what the process says.
        ask: send SIGTERM; otherwise it was told already to end.

    Raises:
        RunInUse: a process does not go, or its GPU memory is not given back.
    """
    begun = time.monotonic()
    found = family.members(child)
    memory = sum(map(processes.resident_bytes, found))
    on_gpu = _gpu(found)
    how = "SIGTERM" if found else "by itself"
    if ask:
        _send(child, found, signal.SIGTERM)
    if left := _wait(child, family, found, grace_s, pump):
        how = "SIGKILL"
        deadline = time.monotonic() + KILL_S
        while left and time.monotonic() < deadline:
            _send(child, left, signal.SIGKILL)
            left = _wait(child, family, found, 0.2, pump)
        if left:
            names = ", ".join(map(str, sorted(left)))
            raise RunInUse(f"processes of the worker cannot be ended ({names}); end them, then run again")
    code = child.reap()
    family.reap(child)
    _wait_for_gpu(found, on_gpu)
    return Proof(
        processes=(child.pid, *sorted(found - {child.pid})),
        how=how,
        seconds=round(time.monotonic() - begun, 3),
        memory_bytes=memory,
        gpu_mib=None if on_gpu is None else sum(on_gpu.values()),
        exit_code=code,
    )


def end_left_over(folder: Path) -> int:
    """Kill every process that a killed guard of `folder` left behind; how many these were.

    The caller holds the folder's lock.

    Raises:
        RunInUse: one does not go.
    """

    def theirs(pid: int) -> bool:
        return processes.inherited_path(processes.environment(pid), FOLDER, folder)

    killed, left = processes.end_all(theirs, processes.lineage(), KILL_S)
    if left:
        names = ", ".join(map(str, left))
        raise RunInUse(
            f"{folder}: an earlier guard left processes that cannot be ended ({names}); end them, then run again"
        )
    return killed


@contextmanager
def adopting() -> Iterator[None]:
    """Inside the block this process becomes the parent of every descendant whose own parent ends."""
    processes.adopt_orphans(True)
    try:
        yield
    finally:
        processes.adopt_orphans(False)


def _send(child: Child, found: Collection[int], signum: int) -> None:
    kill_group(child.pid, signum)
    for pid in found:
        stat = processes.status(pid)
        if stat is not None and stat.group != child.pid and not stat.ended:
            with suppress(OSError):
                os.kill(pid, signum)


def _wait(child: Child, family: Family, found: set[int], seconds: float, pump: Callable[[], None]) -> set[int]:
    """Wait until nobody is left, or for so long; who is left then. All who were seen are added to `found`."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while True:
        pump()
        left = family.members(child)
        found |= left
        family.reap(child)
        if (not left and child.ended) or time.monotonic() >= deadline:
            return left
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE_S, 1.5 * pause)


def _gpu(pids: Collection[int]) -> dict[int, int] | None:
    used = gpu.used_mib()
    return None if used is None else {pid: mib for pid, mib in used.items() if pid in pids}


def _wait_for_gpu(pids: Collection[int], before: Mapping[int, int] | None) -> None:
    """Wait until none of `pids` is said to hold GPU memory."""
    if not before:
        return
    deadline, pause = time.monotonic() + GPU_S, 0.05
    while held := _gpu(pids):
        if time.monotonic() > deadline:
            names = ", ".join(f"{pid}: {mib} MiB" for pid, mib in held.items())
            raise RunInUse(
                f"the worker has ended, but nvidia-smi still shows GPU memory of it ({names}); see to the driver, "
                "then run again"
            )
        time.sleep(pause)
        pause = min(1.0, 2 * pause)
