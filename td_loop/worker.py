"""The program of one worker process: receive a recipe, then tasks, and answer each over one socket."""

from __future__ import annotations

import faulthandler
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

from td_loop.signals import die_with

READY = "ready"


@dataclass(frozen=True)
class Raised:
    """An exception of the recipe or of a task, as text."""

    text: str


def main() -> None:
    """Serve the socket whose number, and the parent whose process id, stand last on the command line."""
    fd, parent = int(sys.argv[-2]), int(sys.argv[-1])
    die_with(parent)()
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
