"""The frames of an episode as arrays: every number is checked once, here, so that no kernel meets a wrong one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from td_loop.errors import ReplayError
from td_loop.games.base import MAX_SEATS
from td_loop.games.orbit_wars.replays.moves import accepted_moves
from td_loop.games.orbit_wars.replays.observed import read_comets, read_home, rows_to_indices
from td_loop.games.orbit_wars.replays.record import P_COMET, P_MEMBER, Array, Frames, ends_game, fleet_block
from td_loop.games.orbit_wars.state import (
    COMET_GROUP,
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

_LARGEST = 2.0**31 - 1
_FAR = 1e4  # the engine's collision shortcuts are proven for coordinates up to here


class _Column(NamedTuple):
    """What one entry of a planet or fleet may be."""

    field: str
    lowest: float
    highest: float
    whole: bool = True


def _columns(n_players: int) -> tuple[tuple[_Column, ...], tuple[_Column, ...]]:
    """The seven entries of a planet and of a fleet."""
    x, y = _Column("x", -_FAR, _FAR, False), _Column("y", -_FAR, _FAR, False)
    planet = (
        _Column("id", 0, _LARGEST),
        _Column("owner", -1, n_players - 1),
        x,
        y,
        _Column("radius", 0, _FAR, False),
        _Column("ships", 0, _LARGEST),
        _Column("production", 0, _LARGEST),
    )
    fleet = (
        _Column("id", 0, _LARGEST),
        _Column("owner", 0, n_players - 1),
        x,
        y,
        _Column("angle", -math.inf, math.inf, False),
        _Column("from_planet_id", 0, _LARGEST),
        _Column("ships", 1, _LARGEST),
    )
    return planet, fleet


def read_frames(steps: list[list[Json]], n_players: int, configuration: Json) -> Frames:
    """The arrays of a game.

    Args:
        steps: `steps` of the episode, T of them with P seats each.
        n_players: P.
        configuration: of the episode; what it lacks is the default.

    Raises:
        ReplayError: a number that cannot be, with its place.
        KeyError, TypeError, ValueError, ...: the file is malformed.
    """
    observations = [_observation(seats, k) for k, seats in enumerate(steps)]
    planets = [obs["planets"] for obs in observations]
    planet_columns, fleet_columns = _columns(n_players)
    p, n_p = _table(planets, "planets", planet_columns)
    f, n_f = _table([obs.get("fleets") or [] for obs in observations], "fleets", fleet_columns)

    T = len(steps)
    cfg = _cfg(observations[0], configuration)
    home = read_home(observations[0])
    M = home.shape[1]
    C = int(max(n_p.max(), M + COMET_GROUP))
    frame_of_p, frame_of_f = np.repeat(np.arange(T), n_p), np.repeat(np.arange(T), n_f)
    row = np.arange(len(p)) - np.repeat(np.cumsum(n_p) - n_p, n_p)
    index_of = rows_to_indices(p[:, 0], frame_of_p, row, n_p)
    group, path, comet_at, comet, member = read_comets(observations, planets, C)

    planet_f = np.zeros((T, 3, C))
    planet_f[frame_of_p, :, row] = p[:, 2:5]
    planet_i = np.zeros((T, 5, C), np.int32)
    planet_i[frame_of_p, :3, row] = p[:, [1, 5, 6]]
    there = np.arange(C) < n_p[:, None]
    planet_i[:, P_COMET], planet_i[:, P_MEMBER] = np.where(there, comet, 0), np.where(there, member, 0)
    _check_homes(comet, there, M)

    came_from = _from_index(f[:, 5], frame_of_f, index_of, C)
    launch, launch_end = _launches(steps, planets, n_players, index_of)
    head = np.zeros((T, HEAD_SIZE), np.int32)
    head[:, STEP], head[:, N_PLANETS], head[:, N_FLEETS] = np.arange(T), n_p, n_f
    head[:, NEXT_FLEET_ID] = _next_fleet_ids(observations, launch_end)
    owners = np.concatenate([p[frame_of_p == T - 1, 1], f[frame_of_f == T - 1, 1]])
    head[-1, DONE] = ends_game(T - 1, owners, int(cfg[2]))
    return Frames(
        cfg=cfg,
        home=home,
        group=group,
        path=path,
        head=head,
        planet_f=planet_f,
        planet_i=planet_i,
        comet_at=comet_at,
        fleet_f=fleet_block((f[:, 2], f[:, 3], f[:, 4]), n_f, np.float64),
        fleet_i=fleet_block((f[:, 0], f[:, 1], came_from, f[:, 6]), n_f, np.int32),
        fleet_end=np.cumsum(n_f),
        launch=launch,
        launch_end=launch_end,
    )


def _observation(seats: list[Json], k: int) -> Json:
    """The full observation of step k: seat 0's, or the first that has planets."""
    for seat in seats:
        obs = seat.get("observation")
        if isinstance(obs, dict) and obs.get("planets"):
            if obs.get("step", k) not in (k, None):
                raise ReplayError(f"steps[{k}] holds the observation of step {obs['step']}: steps are missing")
            return obs
    raise ReplayError(f"steps[{k}]: no seat's observation has planets")


def _cfg(first: Json, configuration: Json) -> Array:
    """f64[3]: angular velocity, ship speed, episodeSteps."""
    speed = configuration.get("shipSpeed")
    episode = int(configuration.get("episodeSteps") or EPISODE_STEPS)
    cfg = np.array([first["angular_velocity"], SHIP_SPEED if speed is None else speed, episode], np.float64)
    if not np.isfinite(cfg).all():
        raise ReplayError("angular_velocity, shipSpeed or episodeSteps is not finite")
    return cfg


def _table(lists: Sequence[list[Any]], what: str, columns: Sequence[_Column]) -> tuple[Array, Array]:
    """f64[rows, 7] of all frames' planets or fleets, checked, and i64[T] rows a frame."""
    try:
        rows = list(chain.from_iterable(lists))
        if set(map(len, rows)) - {len(columns)}:
            raise ValueError("rows of several lengths")
        flat = np.fromiter(chain.from_iterable(rows), np.float64, count=len(columns) * len(rows))
    except (TypeError, ValueError) as e:
        raise ReplayError(_odd_row(lists, what, len(columns))) from e
    table = flat.reshape(-1, len(columns))
    counts = np.fromiter(map(len, lists), np.int64, count=len(lists))
    for x, column in zip(table.T, columns, strict=True):
        good = (x >= column.lowest) & (x <= column.highest) & np.isfinite(x)
        if column.whole:
            good &= x == np.floor(x)
        if not good.all():
            first = int(np.argmin(good))
            k = int(np.searchsorted(np.cumsum(counts), first, side="right"))
            row = first - int(counts[:k].sum())
            kind = "a whole number" if column.whole else "a number"
            raise ReplayError(
                f"steps[{k}] {what}[{row}]: {column.field} is {x[first]:g}, "
                f"not {kind} in {column.lowest:g}..{column.highest:g}"
            )
    return table, counts


def _odd_row(lists: Sequence[Any], what: str, length: int) -> str:
    """Where the first row stands that is not a list of `length` numbers, for a message."""
    for k, rows in enumerate(lists):
        if not isinstance(rows, list):
            return f"steps[{k}] {what} is {str(rows)[:40]!r}, not a list"
        for i, row in enumerate(rows):
            if not (isinstance(row, list) and len(row) == length and all(isinstance(x, int | float) for x in row)):
                return f"steps[{k}] {what}[{i}] is {str(row)[:40]!r}, not {length} numbers"
    return f"{what} are not lists of {length} numbers"


def _check_homes(comet: Array, there: Array, M: int) -> None:
    """Every frame lists the M home planets first and comets behind them; a board serves all frames only then."""
    wrong = ((comet >= 0) | ~there)[:, :M]
    extra = ((comet < 0) & there)[:, M:]
    bad = np.flatnonzero(wrong.any(axis=1) | extra.any(axis=1))
    if len(bad):
        raise ReplayError(f"steps[{bad[0]}]: its planets are not the {M} of the start with comets behind them")


def _from_index(ids: Array, frames: Array, index_of: list[dict[float, int]] | None, C: int) -> Array:
    """i64[fleets] planet indices that fleets left; of a planet that is gone (a comet), the last that it had."""
    found = ids
    if index_of is not None:
        last: dict[float, int] = {}
        rows = []
        at = -1
        for k, i in zip(frames.tolist(), ids.tolist(), strict=True):
            while at < k:
                at += 1
                last.update(index_of[at])
            rows.append(last.get(i, -1))
        found = np.array(rows, np.float64)
    if len(bad := np.flatnonzero((found < 0) | (found >= C))):
        raise ReplayError(f"steps[{frames[bad[0]]}]: a fleet from planet {ids[bad[0]]:g}, which never was")
    return found.astype(np.int64)


def _next_fleet_ids(observations: list[Json], launch_end: Array) -> list[int]:
    """`next_fleet_id` of each frame; where a file leaves it out, the number of launches made before it."""
    made = [0, *launch_end[:-1, -1].tolist()]
    given = [obs.get("next_fleet_id") for obs in observations]
    return [n if x is None else int(x) for x, n in zip(given, made, strict=True)]


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
