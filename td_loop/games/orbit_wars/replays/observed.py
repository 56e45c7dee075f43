"""What observations show of a game's fixed parts: home planets, comet groups, the row of each planet id."""

from __future__ import annotations

from typing import Any

import numpy as np

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.board import orbits
from td_loop.games.orbit_wars.replays.record import GROUP_LEN, GROUP_SHIPS, SPAWN, Array
from td_loop.games.orbit_wars.state import COMET_GROUP, MAX_COMET_PATH

Json = dict[str, Any]


def read_home(observation: Json) -> Array:
    """f64[HOME_ROWS, M]: x, y, orbit radius, angle, rotates (0 or 1), ships of `initial_planets` at the start."""
    comets = set(observation.get("comet_planet_ids") or [])
    initial = [p for p in observation.get("initial_planets") or observation["planets"] if p[0] not in comets]
    if not initial:
        raise ReplayError("steps[0] has no home planet")
    table = np.array(initial, np.float64)
    if not np.isfinite(table).all():
        raise ReplayError("steps[0]: an initial planet with a number that is not finite")
    x, y, radius = table[:, 2], table[:, 3], table[:, 4]
    return np.stack([x, y, *orbits(x, y, radius), table[:, 5]])


def rows_to_indices(ids: Array, frames: Array, slots: Array, counts: Array) -> list[dict[float, int]] | None:
    """Per frame the row of each planet id; None when id and row are the same throughout, as in every modern game.

    Raises:
        ReplayError: an id stands twice in one frame.
    """
    if np.array_equal(ids, slots):
        return None
    maps: list[dict[float, int]] = [{} for _ in counts]
    for k, i, row in zip(frames.tolist(), ids.tolist(), slots.tolist(), strict=True):
        maps[k][i] = row
    for k, (found, n) in enumerate(zip(maps, counts.tolist(), strict=True)):
        if len(found) != n:
            raise ReplayError(f"steps[{k}]: two planets with one id")
    return maps


def read_comets(
    observations: list[Json], planets: list[list[list[Any]]], capacity: int
) -> tuple[Array, Array, Array, Array, Array]:
    """The comet groups that the frames show.

    A group is known by the frame on which it stood at the start of its path. Comets beyond COMET_GROUP a group and
    points beyond MAX_COMET_PATH (older rules), are left out of the board; the frames keep them.

    Returns:
        group i64[3, G] (spawn frame, ships, path length), path f64[2, G, COMET_GROUP, MAX_COMET_PATH],
        comet_at i16[T, G], and per frame and row the group i32[T, C] and member i32[T, C], -1 for home planets.
    """
    T = len(observations)
    comet = np.full((T, capacity), -1, np.int32)
    member = np.full((T, capacity), -1, np.int32)
    spawns: list[int] = []
    ships: list[int] = []
    paths: list[list[list[list[float]]]] = []
    where: list[tuple[int, int, int]] = []  # frame, group, path_index
    for k, observation in enumerate(observations):
        groups = observation.get("comets") or []
        if not groups:
            continue
        row_of = {planet[0]: row for row, planet in enumerate(planets[k])}
        for shown in groups:
            at = int(shown["path_index"])
            if at < 0 or k - at < 0:
                raise ReplayError(f"steps[{k}]: a comet group with path_index {at}")
            if k - at not in spawns:
                spawns.append(k - at)
                paths.append(shown["paths"])
                first = row_of.get(shown["planet_ids"][0])
                ships.append(int(planets[k][first][5]) if first is not None else 0)
            g = spawns.index(k - at)
            where.append((k, g, at))
            for i, planet_id in enumerate(shown["planet_ids"][:COMET_GROUP]):
                if (row := row_of.get(planet_id)) is not None:
                    comet[k, row], member[k, row] = g, i

    G = len(spawns)
    lengths = [min(max(map(len, p)), MAX_COMET_PATH) for p in paths]
    path = np.zeros((2, G, COMET_GROUP, MAX_COMET_PATH))
    for g, members in enumerate(paths):
        for i, points in enumerate(members[:COMET_GROUP]):
            xy = np.array(points[:MAX_COMET_PATH], np.float64).reshape(-1, 2)
            path[:, g, i, : len(xy)] = xy.T
    group = np.zeros((3, G), np.int64)
    group[SPAWN], group[GROUP_SHIPS], group[GROUP_LEN] = spawns, ships, lengths
    comet_at = np.where(np.arange(T)[:, None] >= group[SPAWN], group[GROUP_LEN], -1).astype(np.int16)
    for k, g, at in where:
        comet_at[k, g] = at
    return group, path, comet_at, comet, member
