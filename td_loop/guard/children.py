"""A guarded process: started in a group of its own, never outliving us, and told apart from all others."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from td_loop.errors import UsageError
from td_loop.guard.output import Output
from td_loop.signals import LIFELINE, die_with, lifeline

FOLDER = "TD_GUARD_DIR"
"""Environment variable: the guard's folder. What a killed guard left behind is known by it."""


class Child:
    """A running process whose group is its own. Close it when it has ended and was reaped."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path, *, echo: bool) -> None:
        """Start it.

        It has no standard input. It dies with us, however we end: the kernel sees to that. What it starts in
        turn finds a pipe that is closed then (`$TD_LOOP_LIFELINE`); a program that does not watch it lives on
        after a SIGKILL of ours, until the next guard of the folder ends it.

        Args:
            argv: command line.
            env: its environment.
            log: receives what it says.
            echo: whether our standard output and error receive that, too.

        Raises:
            UsageError: it cannot be started.
        """
        self._line = contextlib.ExitStack()
        line = self._line.enter_context(lifeline())
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=[line],
                env={**env, LIFELINE: str(line)},
                # Its own group: a Ctrl-C reaches the guard alone, which passes it on once.
                process_group=0,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 (it calls what was loaded before, and no Python lock)
            )
        except OSError as e:
            self._line.close()
            raise UsageError(
                f"cannot start {argv[0]!r}: {e.strerror}; the command stands behind --, as you would type it"
            ) from e
        self._process, self.pid = process, process.pid
        self.output = Output(log)
        for stream, own in ((process.stdout, 1), (process.stderr, 2)):
            assert stream is not None
            self.output.follow(os.dup(stream.fileno()), own if echo else None)
            stream.close()

    @property
    def ended(self) -> bool:
        """Whether the process itself has ended; it is not reaped by this, so that its id stays its own."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def reap(self) -> int:
        """Wait for it to end; its exit code, or minus the signal that killed it."""
        return self._process.wait()

    def close(self) -> None:
        """Copy what it said last, and let go of it."""
        self.output.close()
        self._line.close()
