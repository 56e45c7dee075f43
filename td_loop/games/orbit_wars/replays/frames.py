"""Our engine beside a recorded game: kernels that play it and stop at the first frame that differs."""

from __future__ import annotations

import numpy as np

from td_loop.games.orbit_wars.board import make_cfg, speed_table
from td_loop.games.orbit_wars.replays.record import (
    F_ANGLE,
    F_FROM,
    F_ID,
    F_OWNER,
    F_SHIPS,
    F_X,
    F_Y,
    GROUP_LEN,
    GROUP_SHIPS,
    HOME_SHIPS,
    HOME_X,
    HOME_Y,
    ORBIT_ANGLE,
    ORBIT_R,
    P_COMET,
    P_MEMBER,
    P_OWNER,
    P_PROD,
    P_RADIUS,
    P_SHIPS,
    P_X,
    P_Y,
    ROTATES,
    SPAWN,
    Array,
    Frames,
)
from td_loop.games.orbit_wars.state import (
    DONE,
    F64,
    HEAD_SIZE,
    I64,
    N_FLEETS,
    N_PLANETS,
    NEXT_FLEET_ID,
    Board,
    State,
)
from td_loop.games.orbit_wars.turn import advance, make_scratch
from td_loop.kernels import allocating, kernel

# What `compare` found different; FIELDS names them for messages.
SAME = 0
FIELDS = (
    "",
    "len(planets)",
    "len(fleets)",
    "next_fleet_id",
    "game over",
    "planets[{}].owner",
    "planets[{}].x",
    "planets[{}].y",
    "planets[{}].radius",
    "planets[{}].ships",
    "planets[{}].production",
    "planets[{}] comet path_index",
    "fleets[{}].id",
    "fleets[{}].owner",
    "fleets[{}].x",
    "fleets[{}].y",
    "fleets[{}].angle",
    "fleets[{}].from_planet_id",
    "fleets[{}].ships",
)


def make_board(cfg: Array, n_players: int, home: Array, group: Array, path: Array) -> Board:
    """The board of a recorded game; its arrays are those of a `Frames`."""
    return Board(
        cfg=make_cfg(float(cfg[0]), float(cfg[1]), int(cfg[2])),
        speed=speed_table(float(cfg[1])),
        n_players=n_players,
        home_x=home[HOME_X],
        home_y=home[HOME_Y],
        home_ships=home[HOME_SHIPS].astype(np.int64),
        orbit_r=home[ORBIT_R],
        orbit_angle=home[ORBIT_ANGLE],
        rotates=home[ROTATES] != 0.0,
        comet_spawn=group[SPAWN],
        comet_ships=group[GROUP_SHIPS],
        comet_len=group[GROUP_LEN],
        comet_x=path[0],
        comet_y=path[1],
    )


def home_table(board: Board) -> Array:
    """f64[HOME_ROWS, M]: what `Frames.home` holds."""
    b = board
    return np.stack([b.home_x, b.home_y, b.orbit_r, b.orbit_angle, b.rotates, b.home_ships])


@kernel
def load(f: Frames, turn: int, s: State) -> None:
    """Fill `s` (capacities large enough) with a recorded frame."""
    for i in range(HEAD_SIZE):
        s.head[i] = f.head[turn, i]
    for i in range(s.head[N_PLANETS]):
        s.p_owner[i] = f.planet_i[turn, P_OWNER, i]
        s.p_x[i] = f.planet_f[turn, P_X, i]
        s.p_y[i] = f.planet_f[turn, P_Y, i]
        s.p_radius[i] = f.planet_f[turn, P_RADIUS, i]
        s.p_ships[i] = f.planet_i[turn, P_SHIPS, i]
        s.p_prod[i] = f.planet_i[turn, P_PROD, i]
        s.p_comet[i] = f.planet_i[turn, P_COMET, i]
        s.p_member[i] = f.planet_i[turn, P_MEMBER, i]
    for g in range(len(s.comet_at)):
        s.comet_at[g] = f.comet_at[turn, g]
    n = s.head[N_FLEETS]
    start = f.fleet_end[turn] - n
    for i in range(n):
        s.f_x[i] = f.fleet_f[3 * start + F_X * n + i]
        s.f_y[i] = f.fleet_f[3 * start + F_Y * n + i]
        s.f_angle[i] = f.fleet_f[3 * start + F_ANGLE * n + i]
        s.f_id[i] = f.fleet_i[4 * start + F_ID * n + i]
        s.f_owner[i] = f.fleet_i[4 * start + F_OWNER * n + i]
        s.f_from[i] = f.fleet_i[4 * start + F_FROM * n + i]
        s.f_ships[i] = f.fleet_i[4 * start + F_SHIPS * n + i]


@kernel
def compare(f: Frames, turn: int, s: State, spawn: I64) -> tuple[int, int, float, float]:
    """The first field in which `s` is not the recorded frame: (index into FIELDS, row, recorded, ours).

    `spawn` holds the spawn turn of each comet group of the board that `s` was played on.
    """
    head = f.head[turn]
    n, m = head[N_PLANETS], head[N_FLEETS]
    if s.head[N_PLANETS] != n:
        return 1, 0, float(n), float(s.head[N_PLANETS])
    start = f.fleet_end[turn] - m
    if s.head[N_FLEETS] != m:
        return 2, 0, float(m), float(s.head[N_FLEETS])
    if s.head[NEXT_FLEET_ID] != head[NEXT_FLEET_ID]:
        return 3, 0, float(head[NEXT_FLEET_ID]), float(s.head[NEXT_FLEET_ID])
    if s.head[DONE] != head[DONE]:
        return 4, 0, float(head[DONE]), float(s.head[DONE])
    for i in range(n):
        pi, pf = f.planet_i[turn], f.planet_f[turn]
        if s.p_owner[i] != pi[P_OWNER, i]:
            return 5, i, float(pi[P_OWNER, i]), float(s.p_owner[i])
        if s.p_x[i] != pf[P_X, i]:
            return 6, i, pf[P_X, i], s.p_x[i]
        if s.p_y[i] != pf[P_Y, i]:
            return 7, i, pf[P_Y, i], s.p_y[i]
        if s.p_radius[i] != pf[P_RADIUS, i]:
            return 8, i, pf[P_RADIUS, i], s.p_radius[i]
        if s.p_ships[i] != pi[P_SHIPS, i]:
            return 9, i, float(pi[P_SHIPS, i]), float(s.p_ships[i])
        if s.p_prod[i] != pi[P_PROD, i]:
            return 10, i, float(pi[P_PROD, i]), float(s.p_prod[i])
        ours, theirs = s.p_comet[i], pi[P_COMET, i]
        if (
            ours >= 0
            and theirs >= 0
            and (spawn[ours] != f.group[SPAWN, theirs] or s.comet_at[ours] != f.comet_at[turn, theirs])
        ):
            return 11, i, float(f.comet_at[turn, theirs]), float(s.comet_at[ours])
    ff, fi = f.fleet_f[3 * start : 3 * (start + m)], f.fleet_i[4 * start : 4 * (start + m)]
    for i in range(m):
        if s.f_id[i] != fi[F_ID * m + i]:
            return 12, i, float(fi[F_ID * m + i]), float(s.f_id[i])
        if s.f_owner[i] != fi[F_OWNER * m + i]:
            return 13, i, float(fi[F_OWNER * m + i]), float(s.f_owner[i])
        if s.f_x[i] != ff[F_X * m + i]:
            return 14, i, ff[F_X * m + i], s.f_x[i]
        if s.f_y[i] != ff[F_Y * m + i]:
            return 15, i, ff[F_Y * m + i], s.f_y[i]
        if s.f_angle[i] != ff[F_ANGLE * m + i]:
            return 16, i, ff[F_ANGLE * m + i], s.f_angle[i]
        if s.f_from[i] != fi[F_FROM * m + i]:
            return 17, i, float(fi[F_FROM * m + i]), float(s.f_from[i])
        if s.f_ships[i] != fi[F_SHIPS * m + i]:
            return 18, i, float(fi[F_SHIPS * m + i]), float(s.f_ships[i])
    return SAME, 0, 0.0, 0.0


@allocating
def follow(
    f: Frames, board: Board, s: State, moves: F64, moves_end: I64, stepwise: bool
) -> tuple[int, int, int, float, float]:
    """Play a recorded game from `s` (frame 0) and stop at the first difference.

    Args:
        f: the recorded game, T frames.
        board: what `s` is played on.
        s: changed in place; fleet capacity for every recorded frame and its launches.
        moves: f64[L, 4] rows for `turn.tick`.
        moves_end: i64[T] launches up to and with each frame.
        stepwise: start every turn from the recorded frame, not from our own.

    Returns:
        (turn, index into FIELDS, row, recorded, ours); the index is SAME when all frames agree.
    """
    w = make_scratch(len(s.p_owner))
    field, row, recorded, ours = compare(f, 0, s, board.comet_spawn)
    if field != SAME:
        return 0, field, row, recorded, ours
    first = 0
    for turn in range(len(f.head) - 1):
        if stepwise:
            load(f, turn, s)
        last = moves_end[turn]
        advance(board, s, moves, first, last, w)
        first = last
        field, row, recorded, ours = compare(f, turn + 1, s, board.comet_spawn)
        if field != SAME:
            return turn + 1, field, row, recorded, ours
    return 0, SAME, 0, 0.0, 0.0


def move_rows(launch: Array, launch_end: Array) -> tuple[F64, I64]:
    """f64[L, 4] rows (seat, planet, angle, ships) for `turn.tick`, and i64[T] how many up to its end."""
    counts = np.diff(launch_end.ravel(), prepend=0)
    seats = np.repeat(np.tile(np.arange(launch_end.shape[1]), len(launch_end)), counts)
    return np.column_stack([seats.astype(np.float64), launch]), np.ascontiguousarray(launch_end[:, -1])
