"""What a killed driver left behind is ended by the next one, whatever program it is.

A stage behind a shell outlives a driver that is killed. One of ours notices (the lifeline, `td_loop.signals`), and
what one writes through `td_loop.files` is refused (`td_loop.fence`); a program of a user's own knows neither, and
would write over files that the next driver promoted. It is known by its environment: it has inherited the name of
the run's lock file, and the epoch that its driver began.
"""

from __future__ import annotations

import os
from pathlib import Path

from td_loop.errors import RunInUse
from td_loop.fence import EPOCH, EPOCH_FILE
from td_loop.processes import end_all, environment, inherited_path, lineage

WAIT_S = 2.0
"""How long processes that were killed may take to be gone."""


def end_orphans(line: str, file: Path) -> int:
    """Kill every process of this user on this machine that works for an earlier driver of the run.

    The caller holds the lock. Never killed are this process and those above it.

    Args:
        line: what the lock file says: our epoch.
        file: the lock file.

    Returns:
        How many were killed; all of them are gone.

    Raises:
        RunInUse: one does not go.
    """

    def orphan(pid: int) -> bool:
        found = environment(pid)
        theirs = found.get(os.fsencode(EPOCH))
        return bool(theirs) and theirs != os.fsencode(line) and inherited_path(found, EPOCH_FILE, file)

    killed, left = end_all(orphan, lineage(), WAIT_S)
    if left:
        raise RunInUse(
            f"{file.parent}: an earlier driver left processes that cannot be ended ({', '.join(map(str, left))}); "
            "end them, then run again"
        )
    return killed
