"""A submission whose child process is a few lines of a test: nothing is compiled, and it misbehaves at will."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from td_loop.games.orbit_wars import kaggle_agent
from td_loop.games.orbit_wars.trial import load_agent

SOURCES = Path(kaggle_agent.__file__).parent

_WORKER = """
import json, os, sys, time
def say(**message):
    print(json.dumps(message), flush=True)
def requests():
    for line in sys.stdin:
        yield json.loads(line)
starts = open("starts", "a+"); starts.write("x"); starts.flush(); starts.seek(0); n_starts = len(starts.read())
"""
OBEDIENT = """
say(ready=True)
for r in requests():
    say(number=r["number"], moves=[[0, 0.5, r["obs"]["step"]]])
"""


def fake_submission(folder: Path, worker: str) -> Callable[[Any, Any], Any]:
    """The agent of a submission in `folder` whose child runs `worker`."""
    package = folder / "td_loop" / "games" / "orbit_wars"
    package.mkdir(parents=True)
    for room in (package, *package.parents[:2]):
        (room / "__init__.py").touch()
    shutil.copy(SOURCES / "kaggle_agent.py", folder / "main.py")
    shutil.copy(SOURCES / "fast_rule.py", folder)
    (package / "search_worker.py").write_text(_WORKER + worker)
    return load_agent(str(folder / "main.py"))


def observation(step: int, overage: float = 60.0, **changes: Any) -> dict[str, Any]:
    """Seat 0 has 100 ships on planet 0; planet 1 is easily taken."""
    planets = [[0, 0, 10.0, 10.0, 2.0, 100, 3], [1, -1, 30.0, 5.0, 2.0, 5, 3], [2, 1, 90.0, 90.0, 2.0, 100, 3]]
    return {
        "step": step,
        "player": 0,
        "planets": planets,
        "initial_planets": planets,
        "fleets": [],
        "angular_velocity": 0.03,
        "next_fleet_id": 0,
        "comets": [],
        "comet_planet_ids": [],
        "remainingOverageTime": overage,
        **changes,
    }


RULES_MOVE = (0, 6)
"""Source and ships of the rule's move on that observation."""
