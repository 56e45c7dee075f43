"""A Kaggle episode file (`env.toJSON()`) as a `GameRecord`.

`steps[k][seat]` holds the observation after tick k and the action that was chosen on observation k - 1. Every seat
holds the full observation, so one is read. Real files differ in what they leave out and in how they spell
numbers; what cannot be a game of Orbit Wars raises `ReplayError` with the place in the file.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
from collections.abc import Iterator
from typing import Any

import orjson

from td_loop.errors import ReplayError
from td_loop.games.base import MAX_SEATS, TURN_BITS
from td_loop.games.orbit_wars.replays.record import GameRecord
from td_loop.games.orbit_wars.replays.tables import read_frames
from td_loop.games.orbit_wars.state import COMET_SPEED

Json = dict[str, Any]
CRASHED = ("ERROR", "TIMEOUT", "INVALID")
_MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def parse_episode(data: bytes, name: str) -> GameRecord:
    """One episode file, already unpacked.

    Raises:
        ReplayError: not JSON, another game, or malformed; the message starts with `name` and says where.
    """
    with _no_cycle_collector():
        return _parse(data, name)


@contextlib.contextmanager
def _no_cycle_collector() -> Iterator[None]:
    """A parsed episode is a great many lists without a cycle: looking for one would take most of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _parse(data: bytes, name: str) -> GameRecord:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as first:
        try:
            document = json.loads(data)  # Python writes NaN and Infinity, which orjson refuses to read
        except ValueError:
            raise ReplayError(f"{name}: not valid JSON ({first})") from first
        except RecursionError as e:
            raise ReplayError(f"{name}: JSON nested too deeply") from e
    try:
        return _episode(document, name)
    except ReplayError as e:
        raise ReplayError(f"{name}: {e}") from e.__cause__
    except _MALFORMED as e:
        raise ReplayError(f"{name}: malformed ({type(e).__name__}: {e})") from e


def _episode(document: Any, name: str) -> GameRecord:
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        raise ReplayError("not an episode file: a JSON object with a list 'steps' was expected")
    game = document.get("name")
    if game not in (None, "orbit_wars"):
        raise ReplayError(f"a game of {game!r}, not of 'orbit_wars'")
    steps = document["steps"]
    if len(steps) < 2:
        raise ReplayError(f"{len(steps)} step(s): a game needs at least two")
    if len(steps) >= 1 << TURN_BITS:
        raise ReplayError(f"{len(steps)} steps: more than {(1 << TURN_BITS) - 1} cannot be numbered")
    n_players = len(steps[0])
    if not 2 <= n_players <= MAX_SEATS:
        raise ReplayError(f"{n_players} seat(s) in steps[0]: a game has 2 to {MAX_SEATS}")
    if short := next((k for k, seats in enumerate(steps) if len(seats) != n_players), None):
        raise ReplayError(f"steps[{short}] has {len(steps[short])} seats, steps[0] has {n_players}")

    configuration = document.get("configuration") or {}
    info = document.get("info") or {}
    crashes = tuple(_crash(steps, seat) for seat in range(n_players))
    comet_speed = configuration.get("cometSpeed")
    return GameRecord(
        name=name,
        n_players=n_players,
        frames=read_frames(steps, n_players, configuration),
        seed=_seed(info.get("seed"), configuration.get("seed")),
        comet_speed=COMET_SPEED if comet_speed is None else float(comet_speed),
        module_version=str(document.get("module_version") or ""),
        rewards=_rewards(document.get("rewards"), steps[-1]),
        crashes=crashes,
    )


def _seed(*candidates: Any) -> int | None:
    for x in candidates:
        if isinstance(x, float) and x.is_integer():
            return int(x)
        if isinstance(x, int) and not isinstance(x, bool):
            return x
    return None


def _crash(steps: list[list[Json]], seat: int) -> tuple[int, str] | None:
    for k, seats in enumerate(steps):
        if (status := seats[seat].get("status")) in CRASHED:
            return k, str(status)
    return None


def _rewards(listed: Any, last: list[Json]) -> tuple[float | None, ...]:
    if not isinstance(listed, list) or len(listed) != len(last):
        listed = [seat.get("reward") for seat in last]
    numbers = [x if isinstance(x, int | float) and math.isfinite(x) else None for x in listed]
    return tuple(None if x is None else float(x) for x in numbers)
