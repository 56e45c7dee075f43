"""A progress bar with ETA on the terminal, when a person looks; nothing at all when piped."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

TERMINAL = "TD_LOOP_TERMINAL"
"""Environment variable: descriptor of the terminal to draw on.

The loop sets it for its stages, whose standard error it reads itself.
"""


@contextmanager
def progress(what: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show `what` advancing from `done` towards `total`; the block receives a function that adds steps done.

    What was done before says nothing about the speed, so it is no step.
    """
    with _terminal() as stream:
        if total <= 0 or stream is None:
            yield lambda _: None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        )
        console = Console(file=stream, width=os.get_terminal_size(stream.fileno()).columns or None)
        own = stream is sys.stderr  # otherwise our errors go to the loop, which writes them to its log
        with Progress(*columns, console=console, transient=True, redirect_stderr=own, redirect_stdout=own) as bar:
            task = bar.add_task(what, total=total, completed=done)
            yield lambda n: bar.advance(task, n)


@contextmanager
def _terminal() -> Iterator[TextIO | None]:
    """Standard error, or the terminal that the loop lends; None where there is none."""
    if sys.stderr.isatty():
        yield sys.stderr
        return
    with contextlib.ExitStack() as stack:
        lent = None
        with contextlib.suppress(KeyError, ValueError, OSError):
            fd = int(os.environ[TERMINAL])
            if os.isatty(fd):
                lent = stack.enter_context(os.fdopen(os.dup(fd), "w"))
        yield lent
