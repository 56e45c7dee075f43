"""What the controller says: events as lines on standard error, and one line of progress for people alone."""

from __future__ import annotations

import contextlib
import shutil
import sys


class Console:
    """Writes to standard error. A line that nobody can read any more is no reason to stop."""

    def __init__(self) -> None:
        self._shown = 0

    def say(self, line: str) -> None:
        """An event."""
        with contextlib.suppress(OSError, ValueError):
            self._wipe()
            sys.stderr.write(f"canary: {line}\n")
            sys.stderr.flush()

    def progress(self, line: str) -> None:
        """Where the release stands: replaces the line before. Nothing unless a person looks."""
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.isatty():
                self._wipe()
                shown = line[: shutil.get_terminal_size().columns - 1]  # what wraps cannot be replaced
                sys.stderr.write(shown)
                sys.stderr.flush()
                self._shown = len(shown)

    def end(self) -> None:
        """Leave nothing half-shown."""
        with contextlib.suppress(OSError, ValueError):
            self._wipe()
            sys.stderr.flush()

    def _wipe(self) -> None:
        if self._shown:
            sys.stderr.write(f"\r{' ' * self._shown}\r")
            self._shown = 0
