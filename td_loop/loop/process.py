"""Stages as child processes: signals are passed on, and nothing is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from td_loop.errors import Interrupted, UsageError
from td_loop.files import storage_errors

GRACE_S = 30.0
"""How long a stage may take to end after a signal before it is killed."""
_PR_SET_PDEATHSIG = 1


class Signals:
    """SIGINT and SIGTERM, noted while the block runs and passed on to the stage that runs.

    They do not interrupt the driver where it stands, between manifest and symlink say: it asks with `check`.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.times = 0
        self.group: int | None = None
        """Process group of the stage that runs."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.received = signum
        self.times += 1
        self.forward()

    def forward(self) -> None:
        """Send what was received to the running stage; asked twice, do not ask politely again."""
        if self.received is not None and self.group is not None:
            kill_group(self.group, self.received if self.times == 1 else signal.SIGKILL)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.received is not None:
            raise Interrupted(self.received)


StageRunner = Callable[[Sequence[str], Path, Signals], int]
"""(command line, log file, signals) -> exit code; raises Interrupted. Tests have one that starts no process."""


def run_stage(argv: Sequence[str], log: Path, signals: Signals) -> int:
    """Run a stage to its end.

    Its standard output goes to `log`; its standard error, with progress bars and errors, is ours.

    Returns:
        The exit code; minus the signal number if a signal killed it.

    Raises:
        Interrupted: SIGINT or SIGTERM came; the stage and all processes of its group are gone.
        UsageError: the program cannot be started.
    """
    signals.check()
    with storage_errors(log), log.open("ab") as out:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                # Its own group: a Ctrl-C reaches the driver alone, which passes it on once, and workers that a
                # stage leaves behind can be found.
                process_group=0,
                preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509 (the driver has no threads)
            )
        except (FileNotFoundError, PermissionError) as e:
            raise UsageError(f"cannot start {argv[0]!r}: {e.strerror}; see --prepare-cmd and --fit-cmd") from e
    signals.group = child.pid
    try:
        signals.forward()  # one that came while the stage was being started
        _wait(child.pid, signals)
    finally:
        signals.group = None
        # The stage is not reaped yet (or is still running, after an error of ours), so its id cannot name others.
        kill_group(child.pid, signal.SIGKILL)
        code = child.wait()
    signals.check()
    return code


def _wait(pid: int, signals: Signals) -> None:
    """Wait until `pid` has ended, without reaping it; kill its group when it ignores a signal for too long."""
    deadline = None
    pause = 0.001
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if signals.received is not None:
            deadline = deadline or time.monotonic() + GRACE_S
            if time.monotonic() > deadline:
                return
        time.sleep(pause)
        pause = min(0.05, 1.5 * pause)


def kill_group(group: int, signum: int) -> None:
    """Signal a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    """What the child does before it starts: ask the kernel to kill it when the driver dies.

    A stage that outlived a killed driver could write its output into the folder of the next attempt.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask
