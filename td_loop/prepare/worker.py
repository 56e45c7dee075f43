"""The program of one worker process: receive a recipe, then tasks, and answer each over one socket."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from td_loop.prepare.channel import LENGTH, framed
from td_loop.signals import die_with

READY = "ready"

OUT_OF_MEMORY = 12
"""Exit code of a worker that used up its memory: it could not be sure of anything it did after that."""


@dataclass(frozen=True)
class Raised:
    """An exception of the recipe or of a task, as text."""

    text: str


def main() -> None:
    """Serve the socket whose number stands on the command line, third from last.

    After it come the process id of the parent, and the bytes of memory that may be used (0: as many as there are).
    """
    fd, parent, memory = map(int, sys.argv[-3:])
    die_with(parent)()
    faulthandler.enable()  # a crash in native code names the line of Python that led there
    if memory:
        _limit_memory(memory)
    with socket.socket(fileno=fd) as pipe:
        try:
            _serve(pipe)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # before the pipe is closed: the parent kills whoever closes it


def _serve(pipe: socket.socket) -> None:
    with pipe.makefile("rb") as incoming:
        try:
            compute = _receive(incoming)()
        except MemoryError:
            raise
        except Exception:
            pipe.sendall(framed(Raised(traceback.format_exc())))
            return
        pipe.sendall(framed(READY))
        while True:
            try:
                task = _receive(incoming)
            except EOFError:
                return
            try:
                answer = compute(task)
            except MemoryError:
                raise
            except Exception:
                answer = Raised(traceback.format_exc())
            pipe.sendall(framed(answer))


def _receive(incoming: Any) -> Any:
    head = incoming.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(incoming.read(LENGTH.unpack(head)[0]))


def _limit_memory(most: int) -> None:
    """Let allocations beyond `most` bytes fail here, before the machine runs out and kills whom it likes."""
    with contextlib.suppress(
        ImportError, OSError, ValueError
    ):  # elsewhere than on Linux there may be no such limit
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
