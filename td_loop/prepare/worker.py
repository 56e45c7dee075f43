"""The program of one worker process: receive a recipe, then tasks, and answer each over one socket."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

READY = "ready"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Raised:
    """An exception of the recipe or of a task, as text."""

    text: str


def main() -> None:
    """Serve the socket whose number, and the parent whose process id, stand last on the command line."""
    fd, parent = int(sys.argv[-2]), int(sys.argv[-1])
    _die_with(parent)
    faulthandler.enable()  # a crash in native code names the line of Python that led there
    with Connection(fd) as pipe:
        try:
            compute = pipe.recv()()
        except Exception:
            pipe.send(Raised(traceback.format_exc()))
            return
        pipe.send(READY)
        while True:
            try:
                task = pipe.recv()
            except EOFError:
                return
            try:
                answer = compute(task)
            except Exception:
                answer = Raised(traceback.format_exc())
            pipe.send(answer)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill us when the parent ends, however it ends: an orphan would search on for nobody."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)
