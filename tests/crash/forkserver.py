"""Runs command lines in milliseconds: a process that has imported everything forks, where others start Python.

Stages and workers are forked as well: a driver of ours finds `subprocess` in a state in which the programs of this
project are forked, with the descriptors, signals, group and environment that a new program would have, and all
others are started as ever. One request a line on standard input; on standard output the driver's process id in a
line, and in another how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.crash import door
from tests.crash.faults import session_members

DOOR = str(Path(door.__file__))
LEFT_S = 10.0
"""Orphans have so long to notice that they are orphans."""


class Answer(typing.NamedTuple):
    """How a run ended.

    Attributes:
        code: exit code; minus the signal that killed it.
        left: processes that lived on (and were killed).
        hung: it was killed, for it had taken too long.
    """

    code: int
    left: int
    hung: bool


def serve() -> None:
    """Answer requests until standard input ends."""
    _preload()
    for line in sys.stdin:
        _answer(_run(**json.loads(line)))


def _answer(value: Any) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201


def _preload() -> None:
    """Import what driver, stages and workers import, and load the kernels; start no thread."""
    import numpy as np
    import torch._dynamo  # the optimizer imports it when it takes its first step

    import td_loop.fit.problem
    import td_loop.fit.run
    import td_loop.loop.driver
    import td_loop.prepare.run
    import td_loop.worker  # noqa: F401
    from td_loop import journal
    from td_loop.value.evaluate import evaluate
    from td_loop.value.model import SplineValue
    from tests.toy_game import GAME

    torch.set_num_threads(1)
    journal.SYNC_S = 0.0  # or how often a journal is synced would depend on how busy the machine is
    f = len(GAME.feature_names)
    value = SplineValue(np.tile(np.arange(3.0), (f, 1)), np.zeros((2, f, 3)), GAME.feature_names, {})
    evaluate(value, np.zeros((1, 4, f), np.float32), np.array([2], np.int8), np.ones((1, 4), bool))
    gc.freeze()  # a collection would touch, and so copy, all that forked processes share


def _run(argv: list[str], env: dict[str, str], output: str, timeout_s: float) -> Answer:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        _become(lambda: door.run(argv), os.environ | env, {0: nothing, 1: out, 2: out}, keep=())
    _answer(pid)
    deadline, hung = time.monotonic() + timeout_s, False
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline and not hung:
            hung = True
            _kill(session_members(pid))
        time.sleep(0.002)
    deadline = time.monotonic() + LEFT_S
    while (left := session_members(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    _kill(left)
    return Answer(os.waitstatus_to_exitcode(status), len(left), hung)


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _become(program: Callable[[], int], env: dict[str, str], fds: dict[int, int], keep: Sequence[int]) -> None:
    """What exec does to a forked process, then the program; never returns."""
    code = 1
    try:
        for number, fd in fds.items():
            os.dup2(fd, number)
        for fd in sorted(int(p.name) for p in Path("/proc/self/fd").iterdir()):
            if fd > 2 and fd not in keep:
                with contextlib.suppress(OSError):  # the one that listed them
                    os.close(fd)
        for signum in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(env)
        code = program()
        try:
            sys.stdout.flush()
        except OSError:
            code = 120  # as Python does
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _fork_exec(argv: Sequence[Any], programs: Any, close_fds: bool, keep: Sequence[int], *rest: Any) -> int:
    """In place of `subprocess`'s own: fork for a program that is loaded already, else start it as ever."""
    program = _program([os.fsdecode(a) for a in argv])
    if program is None:
        return _really_fork_exec(argv, programs, close_fds, keep, *rest)
    _cwd, env, p2cread, _, _, c2pwrite, _, errwrite, _, errpipe_write, _, _, group, _, _, _, _, preexec = rest[:18]
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    if group >= 0:
        os.setpgid(0, group)
    if preexec is not None:
        preexec()
    os.close(errpipe_write)  # the parent reads there whether we could be started
    fds = {i: fd for i, fd in enumerate((p2cread, c2pwrite, errwrite)) if fd >= 0}
    pairs = [os.fsdecode(entry).partition("=") for entry in env] if env is not None else []
    _become(
        program, {k: v for k, _, v in pairs} or dict(os.environ), fds, [fd for fd in keep if fd != errpipe_write]
    )
    raise AssertionError


def _program(argv: list[str]) -> Callable[[], int] | None:
    """What a command line of this project runs."""
    if argv[1:2] == [DOOR]:
        return lambda: door.run(argv[2:])
    if argv[1:2] == ["-c"] and "td_loop.prepare import worker" in argv[2]:
        return lambda: _worker(argv)
    return None


def _worker(argv: list[str]) -> int:
    from td_loop.prepare import worker

    sys.argv = argv[1:]
    worker.main()
    return 0


_really_fork_exec = subprocess._fork_exec  # type: ignore[attr-defined]

if __name__ == "__main__":
    subprocess._fork_exec = _fork_exec  # type: ignore[attr-defined]
    serve()
