"""Stages as child processes: signals are passed on, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from td_loop import fence
from td_loop.errors import UsageError
from td_loop.files import storage_errors
from td_loop.progress import TERMINAL
from td_loop.signals import GRACE_S, LIFELINE, Signals, die_with, kill_group, lifeline

_PIECE = 1 << 16
_CLEAR_LINE = b"\r\x1b[2K"
"""To the start of the line, and erase it: a progress bar may stand there."""


StageRunner = Callable[[Sequence[str], Path, Signals], int]
"""(command line, log file, signals) -> exit code; raises Interrupted. Tests have one that starts no process."""


def run_stage(argv: Sequence[str], log: Path, signals: Signals) -> int:
    """Run a stage to its end.

    Its standard output goes to `log`, its standard error to `log` and to ours. When ours is a terminal, the stage
    gets it under the number in `$TD_LOOP_TERMINAL` to draw progress bars on, which have no place in a log. Under
    the number in `$TD_LOOP_LIFELINE` it finds a pipe that is closed when we end.

    Returns:
        The exit code; minus the signal number if a signal killed it.

    Raises:
        Interrupted: SIGINT or SIGTERM came; the stage and all processes of its group are gone.
        UsageError: the program cannot be started.
        RunInUse: the run directory was moved or deleted, or another driver has taken it over.
    """
    signals.check()
    fence.check()
    with storage_errors(log), log.open("ab", buffering=0) as out, _terminal() as terminal, lifeline() as line:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                pass_fds=[line, *terminal],
                env=os.environ | {LIFELINE: str(line)} | ({TERMINAL: str(terminal[0])} if terminal else {}),
                # Its own group: a Ctrl-C reaches the driver alone, which passes it on once, and workers that a
                # stage leaves behind can be found.
                process_group=0,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 (the driver has no threads)
            )
        except (FileNotFoundError, PermissionError) as e:
            raise UsageError(f"cannot start {argv[0]!r}: {e.strerror}; see --prepare-cmd and --fit-cmd") from e
        assert child.stderr is not None
        with child.stderr as errors:
            relay = _Relay(errors, out)
            signals.group = child.pid
            try:
                signals.forward()  # one that came while the stage was being started
                _wait(child.pid, signals, relay)
            finally:
                signals.group = None
                # The stage is not reaped yet (or is still running, after an error of ours), so its id cannot name
                # others.
                kill_group(child.pid, signal.SIGKILL)
                code = child.wait()
            relay.copy()
    signals.check()
    return code


@contextlib.contextmanager
def _terminal() -> Iterator[list[int]]:
    """A descriptor of the terminal that our errors go to, for a stage to inherit; none when it is not one."""
    if not sys.stderr.isatty():
        yield []
        return
    fd = os.dup(sys.stderr.fileno())
    try:
        yield [fd]
    finally:
        os.close(fd)


def _wait(pid: int, signals: Signals, relay: _Relay) -> None:
    """Wait until `pid` has ended, without reaping it; kill its group when it ignores a signal for too long."""
    deadline = None
    pause = 0.001
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if signals.received is not None:
            deadline = deadline or time.monotonic() + GRACE_S
            if time.monotonic() > deadline:
                return
        select.select([relay.errors] if relay.copy() else [], [], [], pause)
        pause = min(0.05, 1.5 * pause)


class _Relay:
    """Copies a stage's standard error to its log and to ours."""

    def __init__(self, errors: IO[bytes], log: IO[bytes]) -> None:
        os.set_blocking(errors.fileno(), False)
        self.errors, self._log, self._line_start = errors, log, True

    def copy(self) -> bool:
        """Copy what was written so far; False once there can come no more."""
        while piece := self.errors.read(_PIECE):
            self._log.write(piece)
            own = getattr(sys.stderr, "buffer", None)
            if own is None:  # somebody replaced it by a text stream
                sys.stderr.write(piece.decode(errors="replace"))
            else:
                sys.stderr.flush()
                own.write(_CLEAR_LINE + piece if self._line_start and sys.stderr.isatty() else piece)
            sys.stderr.flush()
            self._line_start = piece.endswith(b"\n")
        return piece is None  # nothing now; b"" is the end


def last_error(log: Path) -> str | None:
    """The last `error: ...` in a stage's log, on one line; None where there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return None
    at = max((i for i, line in enumerate(lines) if line.lower().startswith("error:")), default=None)
    if at is None:
        return None
    # Of an error with a traceback: how it begins, and how it ends.
    first, rest = lines[at][len("error:") :].strip(), [line.strip() for line in lines[at + 1 :] if line.strip()]
    return f"{first} ... {rest[-1]}" if rest else first
