"""Positions to the official observation dicts, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from td_loop.errors import DataError
from td_loop.games.base import MAX_SEATS
from td_loop.games.orbit_wars.board import empty_state, make_cfg, orbits, speed_table
from td_loop.games.orbit_wars.state import (
    ANGULAR_VELOCITY,
    COMET_GROUP,
    COMET_PRODUCTION,
    COMET_RADIUS,
    EPISODE_STEPS,
    F64,
    MAX_COMET_PATH,
    N_FLEETS,
    N_PLANETS,
    NEXT_FLEET_ID,
    SHIP_SPEED,
    STEP,
    Board,
    Position,
    State,
)

Labels = Mapping[int, tuple[Any, Any]]
"""Fleet id -> (angle, planet id) as the agent gave them: observations show those very objects (0, 3.0, true)."""

OVERAGE_SECONDS = 60
_ROOM = 64  # launches that fit into a position made from an observation before it must grow
_LARGEST_COORDINATE = 1e4
_OFF_BOARD = -99
_ANGLE = 4  # column of a fleet
_MOST_SHIPS = 2.0**53  # more are not counted one by one in a double


def _column(values: Any) -> list[Any]:
    return list(values.tolist())


def planets(pos: Position) -> list[list[Any]]:
    """Rows [id, owner, x, y, radius, ships, production] of all planets, comets last."""
    s = pos.state
    n = int(s.head[N_PLANETS])
    columns = (s.p_owner, s.p_x, s.p_y, s.p_radius, s.p_ships, s.p_prod)
    return [list(row) for row in zip(range(n), *(_column(c[:n]) for c in columns), strict=True)]


def fleets(pos: Position, labels: Labels | None = None) -> list[list[Any]]:
    """Rows [id, owner, x, y, angle, from_planet_id, ships] of all fleets."""
    s = pos.state
    n = int(s.head[N_FLEETS])
    columns = (s.f_id, s.f_owner, s.f_x, s.f_y, s.f_angle, s.f_from, s.f_ships)
    rows = [list(row) for row in zip(*(_column(c[:n]) for c in columns), strict=True)]
    for row in rows if labels else ():
        row[4], row[5] = (labels or {}).get(row[0], (row[4], row[5]))
    return rows


def initial_planets(pos: Position) -> list[list[Any]]:
    """Rows of all planets as they were drawn: no owners, comets off the board."""
    b, s = pos.board, pos.state
    m = len(b.home_x)
    rows: list[list[Any]] = [
        [i, -1, x, y, r, ships, prod]
        for i, (x, y, r, ships, prod) in enumerate(
            zip(
                *(_column(c) for c in (b.home_x, b.home_y, s.p_radius[:m], b.home_ships, s.p_prod[:m])),
                strict=True,
            )
        )
    ]
    rows += [
        [i, -1, _OFF_BOARD, _OFF_BOARD, COMET_RADIUS, int(b.comet_ships[s.p_comet[i]]), COMET_PRODUCTION]
        for i in range(m, int(s.head[N_PLANETS]))
    ]
    return rows


def comets(pos: Position) -> list[dict[str, Any]]:
    """The comet groups on the board: planet ids, paths, and where on them they are."""
    b, s = pos.board, pos.state
    groups: dict[int, dict[str, Any]] = {}
    for i in range(int(s.head[N_PLANETS])):
        g, k = int(s.p_comet[i]), int(s.p_member[i])
        if g < 0:
            continue
        group = groups.setdefault(g, {"planet_ids": [], "paths": [], "path_index": int(s.comet_at[g])})
        n = int(b.comet_len[g])
        group["planet_ids"].append(i)
        group["paths"].append(np.column_stack([b.comet_x[g, k, :n], b.comet_y[g, k, :n]]).tolist())
    return list(groups.values())


def observation(
    pos: Position, seat: int, *, labels: Labels | None = None, overage: float = OVERAGE_SECONDS
) -> dict[str, Any]:
    """What the official environment shows to `seat`: fresh lists, which an agent may change as it likes.

    Args:
        pos: where the game stands.
        seat: who looks.
        labels: objects to show for angles and planet ids of fleets.
        overage: seconds of extra time that the seat has left.
    """
    groups = comets(pos)
    return {
        "remainingOverageTime": overage,
        "step": int(pos.state.head[STEP]),
        "planets": planets(pos),
        "fleets": fleets(pos, labels),
        "player": seat,
        "angular_velocity": float(pos.board.cfg[ANGULAR_VELOCITY]),
        "initial_planets": initial_planets(pos),
        "next_fleet_id": int(pos.state.head[NEXT_FLEET_ID]),
        "comets": groups,
        "comet_planet_ids": [i for g in groups for i in g["planet_ids"]],
    }


# --- and back ----------------------------------------------------------------------------------------------


def _rows(obs: Mapping[str, Any], key: str) -> F64:
    """[n, 7] the numbers of `obs[key]`, all but a fleet's angle finite (an official fleet may fly at NaN)."""
    try:
        a = np.array([list(r) for r in obs.get(key) or []], np.float64).reshape(-1, 7)
    except (TypeError, ValueError) as e:
        raise DataError(f"observation: {key!r} must be rows of 7 numbers ({e})") from e
    if a.size and not np.all(np.abs(a[:, 2:4]) <= _LARGEST_COORDINATE):
        raise DataError(
            f"observation: {key!r} has a coordinate beyond {_LARGEST_COORDINATE:g}; the board is 100 x 100"
        )
    must = np.delete(a, _ANGLE, axis=1) if key == "fleets" else a
    if not np.isfinite(must).all():
        raise DataError(f"observation: {key!r} has a number that is not finite")
    return a


def _check_bounds(what: str, column: str, values: F64, low: float, high: float) -> None:
    """Kernels index by owners and add up ships without looking: what cannot be stops here."""
    bad = np.flatnonzero((values < low) | (values > high) | (values != np.floor(values)))
    if len(bad):
        i = int(bad[0])
        raise DataError(
            f"observation: {what}[{i}] has {column} {values[i]:g}, not a whole number in {low:g}..{high:g}"
        )


def _comet_arrays(groups: Sequence[Mapping[str, Any]]) -> tuple[Any, F64, F64]:
    """Path lengths i64[G], and x and y [G, COMET_GROUP, MAX_COMET_PATH]."""
    length = np.zeros(len(groups), np.int64)
    xy = np.zeros((2, len(groups), COMET_GROUP, MAX_COMET_PATH))
    for g, group in enumerate(groups):
        paths = group["paths"]
        length[g] = len(paths[0]) if paths else 0
        if len(paths) > COMET_GROUP or any(len(p) != length[g] for p in paths) or length[g] > MAX_COMET_PATH:
            raise DataError(
                f"observation: comet group {g} is not up to {COMET_GROUP} paths of one length up to 40"
            )
        for k, path in enumerate(paths):
            xy[:, g, k, : length[g]] = np.array(path, np.float64).reshape(-1, 2).T
        if not np.all(np.abs(xy[:, g]) <= _LARGEST_COORDINATE):
            raise DataError(
                f"observation: comet group {g} has a coordinate beyond {_LARGEST_COORDINATE:g} on its way"
            )
        if len(group["planet_ids"]) > len(paths) or int(group["path_index"]) < -1:
            raise DataError(f"observation: comet group {g} has more planets than paths, or a path_index below -1")
    return length, xy[0], xy[1]


def state_from_observation(
    obs: Mapping[str, Any], config: Mapping[str, Any] | None = None, *, n_players: int | None = None
) -> Position:
    """The position that an observation shows, as far as it can be known: comets to come are not.

    Args:
        obs: an official observation, of any seat, with `step` (seats above 0 lack it in replays: put it in).
        config: the configuration; the official defaults where it or a key is missing.
        n_players: 2 or 4. None: 4 if a seat above 1 is seen, else 2 (an agent that joins late cannot know better).

    Raises:
        DataError: not an observation of this game.
    """
    config = config or {}
    p = _rows(obs, "planets")
    first = _rows(obs, "initial_planets")
    f = _rows(obs, "fleets")
    if not len(p):
        raise DataError("observation: it has no planets")
    # MAX_SEATS and not n_players: the official engine, and its tests, let a third party fly in a game of two.
    _check_bounds("planets", "owner", p[:, 1], -1, MAX_SEATS - 1)
    _check_bounds("planets", "ships", p[:, 5], 0, _MOST_SHIPS)
    _check_bounds("fleets", "owner", f[:, 1], 0, MAX_SEATS - 1)
    _check_bounds("fleets", "ships", f[:, 6], 1, _MOST_SHIPS)
    groups: Sequence[Mapping[str, Any]] = obs.get("comets") or []
    comet_of = {int(i): (g, k) for g, c in enumerate(groups) for k, i in enumerate(c["planet_ids"])}
    ids = [int(i) for i in p[:, 0]]
    home = [i for i in ids if i not in comet_of]
    if ids[: len(home)] != home:
        raise DataError("observation: comets must come after all other planets")
    index = {planet: i for i, planet in enumerate(ids)}
    drawn = {int(r[0]): r for r in first}
    # A planet that is missing among the initial ones never moves; its own row then says where it stands.
    start = np.array([drawn.get(i, p[index[i]]) for i in home]).reshape(-1, 7)
    m = len(home)

    step = int(obs.get("step") or 0)
    length, comet_x, comet_y = _comet_arrays(groups)
    orbit_r, orbit_angle, rotates = orbits(start[:, 2], start[:, 3], p[:m, 4])
    board = Board(
        cfg=make_cfg(
            float(obs["angular_velocity"]),
            float(config.get("shipSpeed", SHIP_SPEED)),
            int(config.get("episodeSteps", EPISODE_STEPS)),
        ),
        speed=speed_table(float(config.get("shipSpeed", SHIP_SPEED))),
        n_players=n_players or _players(p, f, int(obs.get("player") or 0)),
        home_x=start[:, 2].copy(),
        home_y=start[:, 3].copy(),
        home_ships=start[:, 5].astype(np.int64),
        orbit_r=orbit_r,
        orbit_angle=orbit_angle,
        rotates=rotates & np.array([i in drawn for i in home]),
        comet_spawn=np.array([step - int(c["path_index"]) for c in groups], np.int64),
        comet_ships=np.array([_ships_at_spawn(c, drawn) for c in groups], np.int64),
        comet_len=length,
        comet_x=comet_x,
        comet_y=comet_y,
    )
    s = _state(p, f, comet_of, index, len(groups))
    s.head[STEP] = step
    s.head[NEXT_FLEET_ID] = int(obs.get("next_fleet_id") or 0)
    s.comet_at[:] = [int(c["path_index"]) for c in groups]
    return Position(board, s)


def _players(p: F64, f: F64, seat: int) -> int:
    return 4 if max([seat, *p[:, 1].tolist(), *f[:, 1].tolist()]) > 1 else 2


def _ships_at_spawn(group: Mapping[str, Any], drawn: Mapping[int, Any]) -> int:
    rows = [drawn[int(i)] for i in group["planet_ids"] if int(i) in drawn]
    return int(rows[0][5]) if rows else 0


def _state(
    p: F64, f: F64, comet_of: Mapping[int, tuple[int, int]], index: Mapping[int, int], groups: int
) -> State:
    n, nf = len(p), len(f)
    s = empty_state(n + COMET_GROUP, nf + _ROOM, groups)
    s.head[N_PLANETS], s.head[N_FLEETS] = n, nf
    s.p_owner[:n] = p[:, 1]
    s.p_x[:n] = p[:, 2]
    s.p_y[:n] = p[:, 3]
    s.p_radius[:n] = p[:, 4]
    s.p_ships[:n] = p[:, 5]
    s.p_prod[:n] = p[:, 6]
    for planet, (g, k) in comet_of.items():
        if planet in index:
            s.p_comet[index[planet]], s.p_member[index[planet]] = g, k
    s.f_id[:nf] = f[:, 0]
    s.f_owner[:nf] = f[:, 1]
    s.f_x[:nf] = f[:, 2]
    s.f_y[:nf] = f[:, 3]
    s.f_angle[:nf] = f[:, 4]
    s.f_ships[:nf] = f[:, 6]
    # Where id is index (always, in official games) a fleet keeps the id of a comet that has left meanwhile.
    same = all(i == k for i, k in index.items())
    s.f_from[:nf] = [int(i) if same else index.get(int(i), -1) for i in f[:, 5]]
    return s
