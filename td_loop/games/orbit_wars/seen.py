"""What a request shows of a game of Orbit Wars: read from JSON or bytes, checked, and made a position of.

Requests come from outside, and kernels index by owners, planets and steps without looking. So everything that
cannot be in an official game stops here, whichever way it came: an observation (`read`) and a binary body
(`wire.unpack`) both become a `Seen`, and `position_of` is the one door from there.

`N` planets (`M` home planets, then comets), `K` fleets, `G` comet groups. In official games a planet's id is its
index, so moves, which name planets by id, need no table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from td_loop.errors import DataError
from td_loop.games.base import MAX_SEATS
from td_loop.games.orbit_wars.board import empty_state, make_cfg, orbits, speed_table
from td_loop.games.orbit_wars.state import (
    COMET_GROUP,
    EPISODE_STEPS,
    F64,
    I64,
    MAX_COMET_PATH,
    N_FLEETS,
    N_PLANETS,
    NEXT_FLEET_ID,
    SHIP_SPEED,
    STEP,
    Board,
    Position,
)

MOST_PLANETS = 64
"""More than a board has room for: official maps have up to 40 and four comets."""
MOST_FLEETS = 4096
"""Several times more than were ever seen in a game."""
MOST_GROUPS = 8
MOST_SHIPS = 2**31 - 1
MOST_ID = 2**31 - 1

# Columns of the official rows.
ID, OWNER, X, Y, RADIUS, SHIPS, PRODUCTION = range(7)  # of a planet
ANGLE, FROM, FLEET_SHIPS = 4, 5, 6  # of a fleet: id, owner, x, y, then these
_PLANET = ("id", "owner", "x", "y", "radius", "ships", "production")
_FLEET = ("id", "owner", "x", "y", "angle", "from_planet_id", "ships")

_OFF = 1000.0  # coordinates beyond this are no place near the board; comets wait at -99
# Per column: the least and the most, and whether it is a whole number.
_PLANET_BOUNDS = (
    (0, MOST_PLANETS - 1, True), (-1, MAX_SEATS - 1, True), (-_OFF, _OFF, False), (-_OFF, _OFF, False),
    (0.1, 20.0, False), (0, MOST_SHIPS, True), (0, 100, True),
)  # fmt: skip
_FLEET_BOUNDS = (
    (0, MOST_ID, True), (0, MAX_SEATS - 1, True), (-_OFF, _OFF, False), (-_OFF, _OFF, False),
    (-1e6, 1e6, False), (-1, MOST_PLANETS - 1, True), (1, MOST_SHIPS, True),
)  # fmt: skip


class Seen(NamedTuple):
    """An observation as arrays, not checked yet."""

    seat: int
    n_players: int
    step: int
    angular_velocity: float
    next_fleet_id: int
    planets: F64  # [N, 7] official rows
    homes: F64  # [M, 3] x, y and ships of the home planets at the start
    fleets: F64  # [K, 7] official rows
    comets: I64  # [N - M, 2] group and path of each comet
    path_index: I64  # [G]
    path_len: I64  # [G]
    ships_at_spawn: I64  # [G]
    paths: F64  # [G, COMET_GROUP, MAX_COMET_PATH, 2]


def _bounds(what: str, names: Sequence[str], rows: F64, bounds: Sequence[tuple[float, float, bool]]) -> None:
    low = np.array([b[0] for b in bounds])
    high = np.array([b[1] for b in bounds])
    whole = np.array([b[2] for b in bounds])
    bad = ~((rows >= low) & (rows <= high)) | (whole & (rows != np.floor(rows)))  # a NaN is neither
    if bad.any():
        i, j = (int(k) for k in np.argwhere(bad)[0])
        kind = "a whole number" if whole[j] else "a number"
        raise DataError(
            f"observation: {what}[{i}] has {names[j]} {rows[i, j]:g}, not {kind} in {low[j]:g}..{high[j]:g}"
        )


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or value % 1:
        raise DataError(f"observation: {name!r} must be a whole number in {low}..{high}, not {_short(value)}")
    return int(value)


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, int | float | str | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:40]}..."


def position_of(seen: Seen) -> tuple[Position, int]:
    """The position that a seat sees, and the seat. Comets to come are not in it.

    Raises:
        DataError: it cannot be one of an official game; the message names the place.
    """
    p, f, m, n = seen.planets, seen.fleets, len(seen.homes), len(seen.planets)
    _whole("player", seen.seat, 0, MAX_SEATS - 1)
    _whole("step", seen.step, 0, EPISODE_STEPS - 1)
    _whole("next_fleet_id", seen.next_fleet_id, 0, MOST_ID)
    if seen.n_players not in (2, 4):
        raise DataError(f"observation: 'n_players' must be 2 or 4, not {seen.n_players}")
    if not abs(seen.angular_velocity) <= 1.0:
        raise DataError(f"observation: 'angular_velocity' {seen.angular_velocity:g} is not in -1..1 radians")
    if not 1 <= m <= n <= MOST_PLANETS or len(seen.comets) != n - m:
        raise DataError(f"observation: {n} planets, {m} of them initial ones; 1..{MOST_PLANETS} can be")
    if len(f) > MOST_FLEETS:
        raise DataError(f"observation: {len(f)} fleets; {MOST_FLEETS} are the most that are read")
    _bounds("planets", _PLANET, p, _PLANET_BOUNDS)
    _bounds("fleets", _FLEET, f, _FLEET_BOUNDS)
    _bounds("initial_planets", ("x", "y", "ships"), seen.homes, [_PLANET_BOUNDS[j] for j in (X, Y, SHIPS)])
    out_of_place = np.flatnonzero(p[:, ID] != np.arange(n))
    if len(out_of_place):
        i = int(out_of_place[0])
        raise DataError(f"observation: planets[{i}] has id {p[i, ID]:g}; in an official game it has {i}")
    _check_comets(seen)
    return _position(seen), seen.seat


def _check_comets(seen: Seen) -> None:
    g = len(seen.path_len)
    if g > MOST_GROUPS:
        raise DataError(f"observation: {g} comet groups; {MOST_GROUPS} are the most that are read")
    for k in range(g):
        length, at = int(seen.path_len[k]), int(seen.path_index[k])
        if not 1 <= length <= MAX_COMET_PATH:
            raise DataError(f"observation: comets[{k}] has paths of {length} points, not 1..{MAX_COMET_PATH}")
        if not -1 <= at < length:
            raise DataError(f"observation: comets[{k}] has path_index {at}, not one in -1..{length - 1}")
        if not 0 <= seen.ships_at_spawn[k] <= MOST_SHIPS:
            raise DataError(f"observation: comets[{k}] had {seen.ships_at_spawn[k]} ships at its start")
        if not np.all(np.abs(seen.paths[k]) <= _OFF):
            raise DataError(f"observation: comets[{k}] has a coordinate on its way that is not near the board")
    c = seen.comets
    if len(c) and not np.all((c >= 0) & (c < [g, COMET_GROUP])):
        raise DataError("observation: a comet has no path of its own among those of 'comets'")


def _position(seen: Seen) -> Position:
    p, f, m, n, k = seen.planets, seen.fleets, len(seen.homes), len(seen.planets), len(seen.fleets)
    orbit_r, orbit_angle, rotates = orbits(seen.homes[:, 0], seen.homes[:, 1], p[:m, RADIUS])
    board = Board(
        cfg=make_cfg(seen.angular_velocity, SHIP_SPEED, EPISODE_STEPS),
        speed=speed_table(SHIP_SPEED),
        n_players=seen.n_players,
        home_x=seen.homes[:, 0].copy(),
        home_y=seen.homes[:, 1].copy(),
        home_ships=seen.homes[:, 2].astype(np.int64),
        orbit_r=orbit_r,
        orbit_angle=orbit_angle,
        rotates=rotates,
        comet_spawn=seen.step - seen.path_index,
        comet_ships=seen.ships_at_spawn,
        comet_len=seen.path_len,
        comet_x=seen.paths[..., 0].copy(),
        comet_y=seen.paths[..., 1].copy(),
    )
    s = empty_state(n + COMET_GROUP, k + COMET_GROUP, len(seen.path_len))
    s.head[STEP], s.head[N_PLANETS], s.head[N_FLEETS] = seen.step, n, k
    s.head[NEXT_FLEET_ID] = seen.next_fleet_id
    s.comet_at[:] = seen.path_index
    for column, of_planet in ((OWNER, s.p_owner), (SHIPS, s.p_ships), (PRODUCTION, s.p_prod)):
        of_planet[:n] = p[:, column]
    s.p_x[:n], s.p_y[:n], s.p_radius[:n] = p[:, X], p[:, Y], p[:, RADIUS]
    s.p_comet[m:n], s.p_member[m:n] = seen.comets[:, 0], seen.comets[:, 1]
    for column, of_fleet in ((ID, s.f_id), (OWNER, s.f_owner), (FROM, s.f_from), (FLEET_SHIPS, s.f_ships)):
        of_fleet[:k] = f[:, column]
    s.f_x[:k], s.f_y[:k], s.f_angle[:k] = f[:, X], f[:, Y], f[:, ANGLE]
    return Position(board, s)


# --- JSON --------------------------------------------------------------------------------------------------


def read(observation: Any) -> tuple[Position, int]:
    """The position and the seat of an official observation, as JSON gives it.

    `step` must be there (official replays leave it out for seats above 0). `n_players`, which the official
    environment does not show, may be: without it four play when a seat above 1 is seen, else two.

    Raises:
        DataError: it is none; the message names the place.
    """
    if not isinstance(observation, Mapping):
        raise DataError(f"observation: it must be an object, not {_short(observation)}")
    for key in ("player", "step", "angular_velocity", "planets", "initial_planets"):
        if key not in observation:
            raise DataError(f"observation: it has no {key!r}")
    planets = _rows(observation, "planets", MOST_PLANETS)
    initial = _rows(observation, "initial_planets", MOST_PLANETS)
    fleets = _rows(observation, "fleets", MOST_FLEETS)
    seat = _whole("player", observation["player"], 0, MAX_SEATS - 1)
    seen_seats = max([seat, *planets[:, OWNER].tolist(), *fleets[:, OWNER].tolist()])
    n_players = observation.get("n_players")
    groups = observation.get("comets") or []
    try:
        angular_velocity = float(observation["angular_velocity"])
        path_index = np.array([_path_index(k, c) for k, c in enumerate(groups)], np.int64)
        paths = [np.array(c["paths"], np.float64) for c in groups]
        ids = [list(c["planet_ids"]) for c in groups]
    except (TypeError, ValueError, KeyError, OverflowError) as e:
        what = f"no {e.args[0]!r}" if isinstance(e, KeyError) else str(e)[:200]
        raise DataError(f"observation: 'comets' or 'angular_velocity' cannot be read ({what})") from e
    comet_of = {i: (g, k) for g, members in enumerate(ids) for k, i in enumerate(members) if isinstance(i, int)}
    m = sum(i not in comet_of for i in planets[:, ID].tolist())
    if any(i in comet_of for i in planets[:m, ID].tolist()):
        raise DataError("observation: in 'planets' comets must come after all other planets")
    comets = np.array([comet_of[int(i)] for i in planets[m:, ID]], np.int64).reshape(-1, 2)
    spawned = {int(row[ID]): row[SHIPS] for row in initial if -1 <= row[ID] <= MOST_ID}
    if not np.array_equal(initial[:m, ID], np.arange(m)):
        raise DataError(f"observation: 'initial_planets' must begin with planets 0..{m - 1}, in order")
    return position_of(
        Seen(
            seat=seat,
            n_players=(4 if seen_seats > 1 else 2) if n_players is None else _whole("n_players", n_players, 2, 4),
            step=_whole("step", observation["step"], 0, EPISODE_STEPS - 1),
            angular_velocity=angular_velocity,
            next_fleet_id=_whole("next_fleet_id", observation.get("next_fleet_id") or 0, 0, MOST_ID),
            planets=planets,
            homes=initial[:m][:, [X, Y, SHIPS]],
            fleets=fleets,
            comets=comets,
            path_index=path_index,
            path_len=np.array([_path_len(k, path, ids[k]) for k, path in enumerate(paths)], np.int64),
            ships_at_spawn=np.array([_spawn_ships(members, spawned) for members in ids], np.int64),
            paths=_padded(paths),
        )
    )


def _rows(observation: Mapping[str, Any], key: str, most: int) -> F64:
    """[n, 7] the rows of `observation[key]`; true and "12" are no numbers here."""
    rows = observation.get(key) or []
    if not isinstance(rows, list) or len(rows) > most:
        raise DataError(f"observation: {key!r} must be a list of up to {most} rows")
    try:
        a = np.array(rows).reshape(-1, 7) if rows else np.empty((0, 7))
    except (TypeError, ValueError, OverflowError) as e:
        raise DataError(f"observation: {key!r} must be rows of 7 numbers ({str(e)[:200]})") from e
    if a.dtype.kind not in "if" or a.shape[0] != len(rows):
        raise DataError(f"observation: {key!r} must be rows of 7 numbers")
    return a.astype(np.float64)


def _path_index(group: int, comet: Any) -> int:
    return _whole(f"comets[{group}].path_index", comet["path_index"], -1, MAX_COMET_PATH)


def _path_len(group: int, paths: F64, members: list[Any]) -> int:
    if paths.ndim != 3 or paths.shape[2] != 2 or not len(members) <= paths.shape[0] <= COMET_GROUP:
        raise DataError(
            f"observation: comets[{group}] must have up to {COMET_GROUP} paths of points [x, y], one a planet"
        )
    return int(paths.shape[1])


def _spawn_ships(members: list[Any], spawned: Mapping[int, float]) -> int:
    ships = next((spawned[i] for i in members if isinstance(i, int) and i in spawned), 0.0)
    return int(ships) if 0 <= ships <= MOST_SHIPS else -1


def _padded(paths: list[F64]) -> F64:
    out = np.zeros((len(paths), COMET_GROUP, MAX_COMET_PATH, 2))
    for k, path in enumerate(paths):
        if path.shape[1] <= MAX_COMET_PATH:  # `position_of` refuses the others
            out[k, : path.shape[0], : path.shape[1]] = path
    return out
