"""The fence: what a process of an earlier driver writes late is refused.

A driver that takes a run directory writes a line with a new epoch number into the lock file, and names line and
file in its environment, which its stages and their workers inherit. A driver that was killed may leave processes
behind; once another driver has taken over, the line in the file is not theirs any more, and `check` stops them. It
stops the driver itself and its stages where the run directory was moved or deleted under them: they would make it
anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from td_loop.errors import RunInUse

EPOCH = "TD_LOOP_EPOCH"
"""Environment variable: the line that the lock file held when the driver above us took it."""
EPOCH_FILE = "TD_LOOP_EPOCH_FILE"
"""Environment variable: the absolute path of that lock file."""


def check() -> None:
    """Object if another driver has taken over the run that this process works for, or if the run is not there.

    Every change in `td_loop/files.py` asks this right before it becomes visible. A process that works for no
    driver is no reason to object.

    Raises:
        RunInUse: another driver has taken over, or the run directory was moved or deleted.
    """
    ours, file = os.environ.get(EPOCH), os.environ.get(EPOCH_FILE)
    if not ours or not file:
        return
    try:
        theirs = first_line(Path(file).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as e:
        raise RunInUse(
            f"{Path(file).parent} was moved or deleted under the driver ({file} is gone); this process writes "
            "nothing more; to go on with a run that was moved, give --runs-dir and --tag of its new place"
        ) from e
    if theirs != ours:
        raise RunInUse(
            f"{Path(file).parent} was taken over by another driver ({theirs or 'just starting'}); this process "
            f"worked for an earlier one ({ours}) and writes nothing more"
        )


def first_line(content: bytes) -> str:
    """The line of a lock file: what stands behind it is left over from a longer one."""
    return content.partition(b"\n")[0].decode(errors="replace").strip()


@contextlib.contextmanager
def epoch(line: str, file: Path) -> Iterator[None]:
    """Work in the epoch that `line` in `file` announces, and all child processes with us."""
    before = {name: os.environ.get(name) for name in (EPOCH, EPOCH_FILE)}
    os.environ.update({EPOCH: line, EPOCH_FILE: str(file.absolute())})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
