"""SIGKILL at random moments, to the driver alone, to all, to a stage or to a worker; the run is started again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.crash.faults import session_members

VICTIMS = ("driver", "all", "stage", "worker")
LEFT_S = 10.0
"""Orphans have so long to notice that they are orphans."""
HARD_ABORT = 4


class Running(Protocol):
    """A driver that was started as the leader of a session."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code (minus a signal); None while it runs."""
        ...


@dataclass
class Tally:
    """What was done to a run until it ended."""

    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    problems: list[str] = field(default_factory=list)


def soak(
    start: Callable[[], Running],
    check: Callable[[], list[str]],
    *,
    rng: random.Random,
    mean_s: float,
    max_starts: int,
    slower: float = 1.0,
) -> Tally:
    """Start a run again and again, and kill a part of it every `mean_s` seconds or so, until it ends with 0.

    Args:
        start: starts it.
        check: what is wrong with the run directory, asked whenever the driver has ended.
        rng: chooses moments and victims.
        mean_s: mean of the seconds between kills, which are distributed exponentially.
        max_starts: give up then.
        slower: factor of `mean_s` with every start; above 1, a machine of any speed comes to the end.
    """
    tally = Tally()
    while tally.starts < max_starts:
        tally.starts += 1
        driver = start()
        code, stage_killed = _disturb(driver, tally, rng, mean_s * slower ** (tally.starts - 1))
        deadline = time.monotonic() + LEFT_S
        while (left := session_members(driver.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        tally.problems += [f"{len(left)} processes outlived the driver"] if left else []
        tally.problems += check()
        if code == 0:
            return tally
        # A stage that is killed is a failed stage: the driver says so and stops.
        if code != -signal.SIGKILL and not (code == HARD_ABORT and stage_killed):
            tally.problems.append(f"exit code {code}")
    tally.problems.append(f"not done after {max_starts} starts")
    return tally


def _disturb(driver: Running, tally: Tally, rng: random.Random, mean_s: float) -> tuple[int, bool]:
    """Kill parts of a run until the driver ends; its exit code, and whether a stage was killed."""
    hit: set[int] = set()  # stages that were killed, or lost a worker: a second one could cost a row its search
    stage_killed = False
    due = time.monotonic() + rng.expovariate(1.0 / mean_s)
    while (code := driver.poll()) is None:
        time.sleep(0.01)
        if time.monotonic() < due:
            continue
        parents = {pid: _parent(pid) for pid in session_members(driver.pid)}
        stages = [pid for pid, parent in parents.items() if parent == driver.pid]
        workers = [pid for pid, parent in parents.items() if parent in stages and parent not in hit]
        found = {"driver": [driver.pid], "all": [*parents], "stage": stages, "worker": workers}
        victim = rng.choice([name for name in VICTIMS if found[name]])
        if victim != "all":
            found[victim] = [rng.choice(found[victim])]
        for pid in found[victim]:
            _kill(pid)
        tally.kills[victim] += 1
        hit |= {parents.get(pid, 0) for pid in found[victim]}
        stage_killed |= victim == "stage"
        due = time.monotonic() + rng.expovariate(1.0 / mean_s)
    return code, stage_killed


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
