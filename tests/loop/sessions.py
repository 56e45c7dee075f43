"""Drivers in sessions of their own: whatever they start and leave behind can be found there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAUSING = str(Path(__file__).with_name("pausing.py"))
FAKES = str(Path(__file__).with_name("fakes.py"))


@contextmanager
def start(moment: str, words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`td-loop run WORDS`, stopping at `moment` if there is one (see pausing.py), with `folder` to tell by."""
    with subprocess.Popen(
        [sys.executable, *pausing(moment), "run", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PAUSE_FOLDER": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pausing(moment: str) -> list[str]:
    return [PAUSING, moment] if moment else ["-m", "td_loop"]


def stage_command(stage: str, moment: str = "") -> str:
    """Our stage, stopping at `moment`, for --prepare-cmd and --fit-cmd."""
    return shlex.join([sys.executable, *pausing(moment), stage])


def fake_command(stage: str) -> str:
    """A stage that takes milliseconds."""
    return shlex.join([sys.executable, FAKES, stage])


def session(leader: int) -> set[int]:
    """Processes of a session that have not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _ppid, _group, sid = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # ended meanwhile
            continue
        if int(sid) == leader and state not in "ZX":
            found.add(int(stat.parent.name))
    return found


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for it; not for ever, and no longer than `process` lives."""
    deadline = time.monotonic() + 300
    while not condition():
        if process is not None and process.poll() is not None:
            assert process.stderr is not None
            raise AssertionError(f"it ended with {process.returncode}: {process.stderr.read()}")
        assert time.monotonic() < deadline
        time.sleep(0.005)
