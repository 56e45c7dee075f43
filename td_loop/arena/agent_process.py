"""The program of one outside agent's process: load the file at the first call, then answer observations.

It imports the standard library only, so that the agent finds the process as empty as its own would be.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from td_loop.channel import framed, read_framed
from td_loop.kaggle import Agent, call_agent, load_agent
from td_loop.signals import die_with

ANSWERED = "answered"
CRASHED = "crashed"
INVALID = "invalid"


def main() -> None:
    """Serve the socket on the command line: descriptor, parent's process id, file, bytes of memory."""
    fd, parent, path, memory = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5])
    die_with(parent)()
    # Data, not address space: numeric libraries reserve far more addresses than they ever touch.
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    os.chdir(path.parent)
    agent: Agent | None = None
    with socket.socket(fileno=fd) as pipe, pipe.makefile("rb") as incoming:
        while True:
            try:
                obs, config = read_framed(incoming)
            except EOFError:
                return
            start = perf_counter()
            try:
                # The official environment too loads the file within the first call's time.
                agent = agent or load_agent(path)
                action = call_agent(agent, obs, config)
            except BaseException as e:  # sys.exit() too: it ends the agent's game, not more
                pipe.sendall(framed((CRASHED, f"{type(e).__name__}: {e}"[:500], perf_counter() - start)))
                return
            seconds = perf_counter() - start
            try:
                answer = (ANSWERED, plain(action) if isinstance(action, list) else None, seconds)
            except (TypeError, ValueError, RecursionError) as e:
                answer = (INVALID, f"{type(e).__name__}: {e}"[:500], seconds)
            pipe.sendall(framed(answer))


def plain(x: Any) -> Any:
    """`x` in Python's own types, so that the other side needs none of the agent's modules to read it.

    Raises:
        TypeError: there is something in it that is neither number, text nor a sequence of those.
    """
    if hasattr(x, "tolist"):  # numpy, torch
        x = x.tolist()
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, list | tuple):
        return [plain(v) for v in x]
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items()}
    raise TypeError(f"an action cannot hold a {type(x).__name__}")
