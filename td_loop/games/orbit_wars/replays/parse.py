"""A Kaggle episode file (`env.toJSON()`) as a `GameRecord`.

`steps[k][seat]` holds the observation after tick k and the action that was chosen on observation k - 1. Every seat
holds the full observation, so one is read. Real files differ in what they leave out and in how they spell
numbers; what cannot be a game of Orbit Wars raises `ReplayError` with the place in the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from td_loop.errors import ReplayError
from td_loop.games.base import MAX_SEATS, TURN_BITS
from td_loop.games.orbit_wars.replays.moves import accepted_moves
from td_loop.games.orbit_wars.replays.observed import read_comets, read_home, rows_to_indices
from td_loop.games.orbit_wars.replays.record import Array, Frames, GameRecord, ends_game, fleet_block
from td_loop.games.orbit_wars.state import (
    COMET_GROUP,
    COMET_SPEED,
    DONE,
    EPISODE_STEPS,
    HEAD_SIZE,
    N_FLEETS,
    N_PLANETS,
    NEXT_FLEET_ID,
    SHIP_SPEED,
    STEP,
)

Json = dict[str, Any]
CRASHED = ("ERROR", "TIMEOUT", "INVALID")
_MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def parse_episode(data: bytes, name: str) -> GameRecord:
    """One episode file, already unpacked.

    Raises:
        ReplayError: not JSON, another game, or malformed; the message starts with `name` and says where.
    """
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
    if any(crash and crash[0] < 2 for crash in crashes):
        raise ReplayError("a seat crashed on its first move: no frame before it to learn from")
    comet_speed = configuration.get("cometSpeed")
    return GameRecord(
        name=name,
        n_players=n_players,
        frames=_frames(steps, n_players, configuration),
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


def _observation(seats: list[Json], k: int) -> Json:
    """The full observation of step k: seat 0's, or the first that has planets."""
    for seat in seats:
        obs = seat.get("observation")
        if isinstance(obs, dict) and obs.get("planets"):
            if obs.get("step", k) not in (k, None):
                raise ReplayError(f"steps[{k}] holds the observation of step {obs['step']}: steps are missing")
            return obs
    raise ReplayError(f"steps[{k}]: no seat's observation has planets")


def _table(lists: Sequence[list[Any]], what: str) -> tuple[Array, Array]:
    """f64[rows, 7] of all frames' planets or fleets, and i64[T] rows a frame."""
    rows = list(chain.from_iterable(lists))
    if set(map(len, rows)) - {7}:
        raise ReplayError(f"{what} with other than 7 entries")
    table = np.fromiter(chain.from_iterable(rows), np.float64, count=7 * len(rows)).reshape(-1, 7)
    if not np.isfinite(table).all():
        raise ReplayError(f"{what} with a number that is not finite")
    return table, np.fromiter(map(len, lists), np.int64, count=len(lists))


def _whole(table: Array, columns: dict[int, str], what: str, n: Array) -> None:
    """Check that the columns hold whole numbers that fit 31 bits; the message names the first that does not."""
    for column, field in columns.items():
        x = table[:, column]
        bad = np.flatnonzero((x != np.floor(x)) | (np.abs(x) >= 2**31))
        if len(bad):
            k = int(np.searchsorted(np.cumsum(n), bad[0], side="right"))
            row = int(bad[0] - (np.cumsum(n) - n)[k])
            raise ReplayError(f"steps[{k}] {what}[{row}]: {field} is {x[bad[0]]:g}, not a whole number")


def _frames(steps: list[list[Json]], n_players: int, configuration: Json) -> Frames:
    observations = [_observation(seats, k) for k, seats in enumerate(steps)]
    planets = [obs["planets"] for obs in observations]
    fleets = [obs.get("fleets") or [] for obs in observations]
    episode = int(configuration.get("episodeSteps") or EPISODE_STEPS)
    speed = configuration.get("shipSpeed")
    cfg = np.array(
        [observations[0]["angular_velocity"], SHIP_SPEED if speed is None else speed, episode], np.float64
    )

    p, n_p = _table(planets, "planets")
    f, n_f = _table(fleets, "fleets")
    _whole(p, {0: "id", 1: "owner", 5: "ships", 6: "production"}, "planets", n_p)
    _whole(f, {0: "id", 1: "owner", 5: "from_planet_id", 6: "ships"}, "fleets", n_f)
    for owners, what, lowest in ((p[:, 1], "planet", -1), (f[:, 1], "fleet", 0)):
        if len(owners) and (owners.min() < lowest or owners.max() >= n_players):
            raise ReplayError(f"a {what} with an owner outside {lowest}..{n_players - 1}")

    T = len(steps)
    home = read_home(observations[0])
    M = home.shape[1]
    C = int(max(n_p.max(), M + COMET_GROUP))
    frame_of_p = np.repeat(np.arange(T), n_p)
    slot = np.arange(len(p)) - np.repeat(np.cumsum(n_p) - n_p, n_p)
    index_of = rows_to_indices(p[:, 0], frame_of_p, slot, n_p)
    group, path, comet_at, comet, member = read_comets(observations, planets, C)

    planet_f = np.zeros((T, 3, C))
    planet_f[frame_of_p, :, slot] = p[:, 2:5]
    planet_i = np.zeros((T, 5, C), np.int32)
    planet_i[frame_of_p, :3, slot] = p[:, [1, 5, 6]]
    planet_i[:, 3], planet_i[:, 4] = comet, member
    padding = np.arange(C) >= n_p[:, None]
    planet_i[:, 3][padding] = planet_i[:, 4][padding] = 0

    frame_of_f = np.repeat(np.arange(T), n_f)
    came_from = _from_index(f[:, 5], frame_of_f, index_of)
    fleet_f = fleet_block((f[:, 2], f[:, 3], f[:, 4]), n_f, np.float64)
    fleet_i = fleet_block((f[:, 0], f[:, 1], came_from, f[:, 6]), n_f, np.int32)

    head = np.zeros((T, HEAD_SIZE), np.int32)
    head[:, STEP], head[:, N_PLANETS], head[:, N_FLEETS] = np.arange(T), n_p, n_f
    head[:, NEXT_FLEET_ID] = _next_fleet_ids(observations, f, frame_of_f)
    owners = np.concatenate([p[frame_of_p == T - 1, 1], f[frame_of_f == T - 1, 1]])
    head[-1, DONE] = ends_game(T - 1, owners, episode)
    launch, launch_end = _launches(steps, planets, n_players, index_of)
    return Frames(
        cfg,
        home,
        group,
        path,
        head,
        planet_f,
        planet_i,
        comet_at,
        fleet_f,
        fleet_i,
        np.cumsum(n_f),
        launch,
        launch_end,
    )


def _from_index(ids: Array, frames: Array, index_of: list[dict[float, int]] | None) -> Array:
    """Planet indices that fleets left. A planet that is gone (a comet) keeps its id, which was its index."""
    if index_of is None:
        return ids
    return np.array([index_of[k].get(i, i) for k, i in zip(frames.tolist(), ids.tolist(), strict=True)])


def _next_fleet_ids(observations: list[Json], f: Array, frame_of_f: Array) -> Array:
    given = [obs.get("next_fleet_id") for obs in observations]
    if all(isinstance(x, int | float) for x in given):
        return np.array(given, np.int64)
    largest = np.full(len(observations), -1, np.int64)
    np.maximum.at(largest, frame_of_f, f[:, 0].astype(np.int64))
    return np.maximum.accumulate(largest) + 1


def _launches(
    steps: list[list[Json]], planets: list[Any], n_players: int, index_of: list[dict[float, int]] | None
) -> tuple[Array, Array]:
    """f64[L, 3] launches and i64[T, MAX_SEATS] their cumulative count; the last frame has none."""
    launches: list[tuple[float, float, float]] = []
    ends = np.zeros((len(steps), MAX_SEATS), np.int64)
    for k, seats in enumerate(steps[1:]):
        for seat in range(MAX_SEATS):
            if seat < n_players and (action := seats[seat].get("action")):
                launches += accepted_moves(action, seat, planets[k], index_of[k] if index_of else None)
            ends[k, seat] = len(launches)
    ends[-1] = len(launches)
    return np.array(launches, np.float64).reshape(-1, 3), ends
