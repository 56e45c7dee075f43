"""Who holds a run directory now, asked without disturbing him."""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

from td_loop.fence import first_line
from td_loop.loop.layout import LOCK

_LINE = re.compile(r"(?:epoch \d+, )?(.+?)(?: since (.+))?")


@dataclass(frozen=True)
class Holder:
    """The driver that is at work in a run directory.

    Attributes:
        who: process and machine, in words.
        since: when it started (ISO, local time); None where the lock file does not say yet.
    """

    who: str
    since: str | None


def named(line: str) -> Holder:
    """Whom the line of a lock file names that is held."""
    found = _LINE.fullmatch(line)
    return Holder("a process that is just starting", None) if found is None else Holder(found[1], found[2])


def holder(run: Path) -> Holder | None:
    """The driver that holds `run` at this moment; None when nobody does.

    A shared lock is asked for and given back at once: that never waits, is refused beside a driver's lock, and
    several who ask at the same time do not see each other. The content of the lock file alone says nothing: it
    outlives a driver that was killed.
    """
    try:
        fd = os.open(run / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no driver ever started here, or a file that nobody may read
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return named(first_line(os.pread(fd, 1000, 0)))
    else:
        return None
    finally:
        os.close(fd)
