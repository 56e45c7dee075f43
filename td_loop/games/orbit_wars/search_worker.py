"""The child process of a submission: it warms the kernels up, says so, and then answers observations.

Run as `python -m td_loop.games.orbit_wars.search_worker FOLDER`, FOLDER the submission's. Requests come as lines
of JSON on standard input, replies leave on standard output; see `kaggle_agent.Searcher`. It ends when its input
does.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import config

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.features import FEATURE_NAMES, N_FEATURES
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.observe import state_from_observation
from td_loop.games.orbit_wars.state import Action
from td_loop.kernels import compilations
from td_loop.value.model import SplineValue

WEIGHTS = "weights.npz"
KERNELS = "kernels"
"""Folder of a submission with compiled kernels: `kernels/games.orbit_wars/*` are of `td_loop/games/orbit_wars`."""
_PACKAGE = Path(__file__).parents[2]

Reply = dict[str, Any]


def read_weights(path: Path) -> SplineValue:
    """A value function from its npz, which was checked when the submission was made; needs numpy alone."""
    with np.load(path, allow_pickle=False) as z:
        names = tuple(str(name) for name in z["feature_names"])
        return SplineValue(z["knots"], z["coef"], names, json.loads(str(z["meta"])))


def cached_rooms() -> dict[str, Path]:
    """Where numba keeps the kernels of each folder of sources: dotted name -> cache folder."""
    from numba.core.caching import _CacheLocator  # the name has been the same since numba 0.20

    cache = Path(vars(config)["CACHE_DIR"])
    sources = {path.parent for path in _PACKAGE.rglob("*.py")}
    locate: Callable[[str], str] = _CacheLocator.get_suitable_cache_subpath
    return {
        ".".join(folder.relative_to(_PACKAGE).parts) or ".": cache / locate(str(folder / "x.py"))
        for folder in sources
    }


def use_shipped_kernels(folder: Path) -> None:
    """Put the kernels that came with the submission where numba looks for them.

    numba itself refuses those of another version, of another Python or of another kind of processor: then, and
    when anything goes wrong here, they are compiled.
    """
    with suppress(ImportError, AttributeError):
        for name, target in cached_rooms().items():
            shipped = folder / KERNELS / name
            with suppress(OSError):  # another seat's process may have been faster
                if shipped.is_dir() and not any(target.iterdir()):
                    _copy_whole(shipped, target)


def _copy_whole(source: Path, target: Path) -> None:
    """Copy a folder in one step to where an empty one is (numba made it when the kernels were imported)."""
    temporary = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _warm_up_observation() -> dict[str, Any]:
    """A made-up game of two seats with planets, fleets and comets, something to take and something to lose."""
    places = [
        *((20.0, 20.0, 0, 80), (80.0, 80.0, 1, 20), (20.0, 35.0, -1, 5), (80.0, 65.0, -1, 5)),
        *((5.0, 50.0, -1, 9), (95.0, 50.0, -1, 9), (50.0, 30.0, 0, 20), (50.0, 70.0, 1, 40)),
    ]
    planets = [[i, owner, x, y, 2.0, ships, 3] for i, (x, y, owner, ships) in enumerate(places)]
    path = [[10.0 + 2.0 * k, 90.0 - 2.0 * k] for k in range(20)]
    comets = [{"planet_ids": [8], "paths": [path], "path_index": 2}]
    return {
        "step": 52,
        "player": 0,
        "angular_velocity": 0.03,
        "planets": [*planets, [8, -1, *path[2], 1.0, 7, 1]],
        "initial_planets": [*planets, [8, -1, -99, -99, 1.0, 7, 1]],
        "fleets": [[0, 1, 60.0, 75.0, 3.9, 7, 30], [1, 0, 22.0, 25.0, 1.5, 0, 12]],
        "next_fleet_id": 2,
        "comets": comets,
        "comet_planet_ids": [8],
    }


class Decider:
    """Observations to moves under one value function."""

    def __init__(self, weights: Path) -> None:
        self._search = GAME.make_search(read_weights(weights))
        self._rng = np.random.default_rng()

    def warm_up(self) -> None:
        """Compile or load all kernels that decisions use."""
        pos = state_from_observation(_warm_up_observation())
        # A value function that likes more of everything, so that there is something to launch and to take back.
        knots = np.tile([0.0, 1.0], (N_FEATURES, 1))
        wants_all = GAME.make_search(SplineValue(knots, np.stack([knots, knots]), FEATURE_NAMES, {"gamma": 0.97}))
        for search in (wants_all, self._search):
            for budget in (Budget(evals=2), Budget(evals=500), Budget(seconds=0.02)):
                search(pos, 0, budget, self._rng)

    def __call__(self, request: dict[str, Any]) -> Reply:
        """`{"moves": ...}`, or `{"error": ...}` when the observation cannot be read."""
        until = float(request["until"])
        try:
            obs = request["obs"]
            pos = state_from_observation(obs, request["config"], n_players=request["n_players"])
            left = max(1e-3, until - time.monotonic())
            with compilations() as compiled:
                decision = self._search(pos, int(obs["player"]), Budget(seconds=left), self._rng)
            return {"moves": _moves(decision.action, obs), "evals": decision.evals, "compiled": compiled}
        except Exception as e:
            return {"error": f"{type(e).__name__}: {e}"}


def _moves(action: Action | npt.NDArray[Any], obs: dict[str, Any]) -> list[list[Any]]:
    ids = [row[0] for row in obs["planets"]]
    return [[ids[int(planet)], angle, int(ships)] for planet, angle, ships in action.tolist()]


def _read_requests(requests: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)  # the game is over: nobody wants what is still being compiled or searched


def main(folder: Path) -> None:
    """Serve until standard input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get between the replies
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()

    def reply(message: Reply) -> None:
        replies.write(json.dumps(message).encode() + b"\n")
        replies.flush()

    use_shipped_kernels(folder)
    decide = Decider(folder / WEIGHTS)
    decide.warm_up()
    reply({"ready": True})
    while True:
        request = json.loads(requests.get())
        reply({**decide(request), "number": request["number"]})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
