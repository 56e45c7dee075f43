"""What the guard says: one line an event on standard error; what merely happens is shown to people alone."""

from __future__ import annotations

import contextlib
import sys


class Console:
    """Writes lines to standard error. One that nobody can read any more is no reason to stop."""

    def say(self, text: str) -> None:
        """An event."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"guard: {text}\n")
            sys.stderr.flush()

    def progress(self, text: str) -> None:
        """Shown only on a terminal."""
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.isatty():
                self.say(text)


class Faults:
    """Counts what goes wrong by its kind, and says the first of each kind, then every tenfold."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.counts: dict[str, int] = {}

    def add(self, kind: str, text: str) -> None:
        """Count one."""
        n = self.counts[kind] = self.counts.get(kind, 0) + 1
        if n == 1 or (n >= 10 and set(str(n)[1:]) == {"0"} and str(n)[0] == "1"):
            self._console.say(f"warning: {text}" + (f" (the {n}th of this kind)" if n > 1 else ""))
