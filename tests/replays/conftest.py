"""Games of the official engine, made on the spot, as the bytes that Kaggle would serve."""

from __future__ import annotations

import contextlib
import copy
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

Json = dict[str, Any]

SHARED = Path(__file__).parents[2].parent / "shared" / "replays"
CRASH_STEP = 20  # the observation on which the crashing agent raises


@pytest.fixture(scope="session")
def real_replays() -> Path:
    """The folder of real ladder games beside the clone."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} does not exist")
    return SHARED


def _launcher(seed: int, crash_at: int | None = None) -> Callable[[Any], list[Any]]:
    """An agent that launches from every planet it owns, now and then with moves that are illegal."""
    rng = random.Random(seed)

    def agent(obs: Any) -> list[Any]:
        if crash_at is not None and obs.step >= crash_at:
            raise RuntimeError("the agent is broken")
        moves: list[Any] = []
        for planet in obs.planets:
            if planet[1] == obs.player and planet[5] > 4:
                moves.append([planet[0], rng.uniform(-3.2, 3.2), planet[5] // 3])
                moves.append([float(planet[0]), rng.uniform(-3.2, 3.2), rng.choice([1.5, 2.0, 0, 10_000])])
        return moves

    return agent


def _play(seed: int, steps: int, *agents: Any) -> bytes:
    kaggle = pytest.importorskip("kaggle_environments", reason="plays games of the official engine")
    with contextlib.redirect_stdout(io.StringIO()):
        env = kaggle.make("orbit_wars", configuration={"seed": seed, "episodeSteps": steps})
        env.run(list(agents))
    return orjson.dumps(env.toJSON())


@pytest.fixture(scope="session")
def game_2p() -> bytes:
    """60 steps, 2 seats, with a comet group from step 50."""
    return _play(7, 60, _launcher(1), _launcher(2))


@pytest.fixture(scope="session")
def game_4p() -> bytes:
    """40 steps, 4 seats."""
    return _play(11, 40, *(_launcher(seed) for seed in range(4)))


@pytest.fixture(scope="session")
def game_won_by_1() -> bytes:
    """40 steps, 2 seats; seat 1 keeps its ships at home and has more of them at the end."""
    return _play(12, 40, "starter", lambda obs: [])


@pytest.fixture(scope="session")
def crashed_game() -> bytes:
    """60 steps, seat 1 raises on the observation of CRASH_STEP."""
    return _play(7, 60, _launcher(1), _launcher(2, crash_at=CRASH_STEP))


@pytest.fixture
def edit() -> Callable[..., bytes]:
    """edit(data, change): the episode after `change(document)`."""

    def apply(data: bytes, change: Callable[[Json], object]) -> bytes:
        document = copy.deepcopy(orjson.loads(data))
        change(document)
        return orjson.dumps(document)

    return apply
