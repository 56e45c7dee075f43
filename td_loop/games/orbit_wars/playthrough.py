"""Whole games in one kernel call: from a first position and all launches to the last state, or to every frame.

`T` is the number of frames; frame 0 is the position given, and the launches of turn t < T - 1 lead to frame t + 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.engine import with_room
from td_loop.games.orbit_wars.state import (
    DONE,
    F64,
    HEAD_SIZE,
    I64,
    N_FLEETS,
    N_PLANETS,
    Board,
    Position,
    State,
    copy_state,
)
from td_loop.games.orbit_wars.turn import advance, make_scratch
from td_loop.kernels import allocating, kernel


class Frames(NamedTuple):
    """Every frame of a game, one array a column of `State`. Fleets of frame t are rows fleet_start[t : t + 2]."""

    head: I64  # [T, HEAD_SIZE]
    p_owner: I64  # [T, C]
    p_x: F64  # [T, C]
    p_y: F64  # [T, C]
    p_radius: F64  # [T, C]
    p_ships: I64  # [T, C]
    p_prod: I64  # [T, C]
    p_comet: I64  # [T, C]
    p_member: I64  # [T, C]
    comet_at: I64  # [T, G]
    fleet_start: I64  # [T + 1]
    f_id: I64  # [fleet_start[T]]
    f_owner: I64
    f_x: F64
    f_y: F64
    f_angle: F64
    f_from: I64
    f_ships: I64

    def state(self, turn: int) -> State:
        """The state of frame `turn`, sharing no array with the frames; it has room for no further fleet."""
        a, b = self.fleet_start[turn], self.fleet_start[turn + 1]
        rows = [c[turn].copy() for c in self[:10]] + [c[a:b].copy() for c in self[11:]]
        return State._make(rows)


@allocating
def _play(board: Board, s: State, moves: F64, offsets: I64, n_fleets: I64) -> int:
    """Play turns until the game is over or the launches end; fleets of each frame go to `n_fleets` [T]."""
    w = make_scratch(len(s.p_owner))
    n_fleets[0] = s.head[N_FLEETS]
    for t in range(len(offsets) - 1):
        if s.head[DONE]:
            return t + 1
        advance(board, s, moves, offsets[t], offsets[t + 1], w)
        n_fleets[t + 1] = s.head[N_FLEETS]
    return len(offsets)


@kernel
def _keep(s: State, t: int, out: Frames) -> None:
    # Loops, not slices: they compile in a fifth of the time.
    for i in range(len(s.head)):
        out.head[t, i] = s.head[i]
    for g in range(len(s.comet_at)):
        out.comet_at[t, g] = s.comet_at[g]
    for i in range(s.head[N_PLANETS]):
        out.p_owner[t, i] = s.p_owner[i]
        out.p_x[t, i] = s.p_x[i]
        out.p_y[t, i] = s.p_y[i]
        out.p_radius[t, i] = s.p_radius[i]
        out.p_ships[t, i] = s.p_ships[i]
        out.p_prod[t, i] = s.p_prod[i]
        out.p_comet[t, i] = s.p_comet[i]
        out.p_member[t, i] = s.p_member[i]
    a = out.fleet_start[t]
    for f in range(s.head[N_FLEETS]):
        out.f_id[a + f] = s.f_id[f]
        out.f_owner[a + f] = s.f_owner[f]
        out.f_x[a + f] = s.f_x[f]
        out.f_y[a + f] = s.f_y[f]
        out.f_angle[a + f] = s.f_angle[f]
        out.f_from[a + f] = s.f_from[f]
        out.f_ships[a + f] = s.f_ships[f]


@allocating
def _record(board: Board, s: State, moves: F64, offsets: I64, out: Frames) -> None:
    w = make_scratch(len(s.p_owner))
    _keep(s, 0, out)
    for t in range(len(out.head) - 1):
        advance(board, s, moves, offsets[t], offsets[t + 1], w)
        _keep(s, t + 1, out)


def _checked(pos: Position, moves: F64, offsets: I64) -> tuple[State, F64, I64]:
    moves = np.ascontiguousarray(moves, np.float64).reshape(-1, 4)
    offsets = np.ascontiguousarray(offsets, np.int64)
    if len(offsets) < 1 or offsets[0] < 0 or offsets[-1] > len(moves) or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets must rise from 0 to the number of moves ({len(moves)})")
    return copy_state(with_room(pos.state, len(moves))), moves, offsets


def play_moves(pos: Position, moves: F64, offsets: I64) -> tuple[State, int]:
    """Play a whole game.

    Args:
        pos: frame 0; left as it is.
        moves: [L, 4] launches of all turns, rows as for `tick`.
        offsets: i64[T] turn t's launches are moves[offsets[t] : offsets[t + 1]].

    Returns:
        The last state, and the number of frames: T, or fewer if the game was over before.

    Raises:
        ValueError: offsets that fall or leave `moves`.
    """
    s, moves, offsets = _checked(pos, moves, offsets)
    n = _play(pos.board, s, moves, offsets, np.zeros(len(offsets), np.int64))
    return s, int(n)


def record(pos: Position, moves: F64, offsets: I64) -> Frames:
    """Like `play_moves`, but keep every frame. The game is played twice: first only to count its fleets."""
    s, moves, offsets = _checked(pos, moves, offsets)
    n_fleets = np.zeros(len(offsets), np.int64)
    t = int(_play(pos.board, s, moves, offsets, n_fleets))
    start = np.zeros(t + 1, np.int64)
    np.cumsum(n_fleets[:t], out=start[1:])
    c, total = len(s.p_owner), int(start[-1])
    frames = Frames(
        head=np.zeros((t, HEAD_SIZE), np.int64),
        p_owner=np.zeros((t, c), np.int64),
        p_x=np.zeros((t, c)),
        p_y=np.zeros((t, c)),
        p_radius=np.zeros((t, c)),
        p_ships=np.zeros((t, c), np.int64),
        p_prod=np.zeros((t, c), np.int64),
        p_comet=np.zeros((t, c), np.int64),
        p_member=np.zeros((t, c), np.int64),
        comet_at=np.zeros((t, len(s.comet_at)), np.int64),
        fleet_start=start,
        f_id=np.zeros(total, np.int64),
        f_owner=np.zeros(total, np.int64),
        f_x=np.zeros(total),
        f_y=np.zeros(total),
        f_angle=np.zeros(total),
        f_from=np.zeros(total, np.int64),
        f_ships=np.zeros(total, np.int64),
    )
    _record(pos.board, copy_state(with_room(pos.state, len(moves))), moves, offsets, frames)
    return frames
