"""Turns, scores and results of positions: the engine as Python callers see it. The rules are in `turn`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from td_loop.games.orbit_wars.state import (
    B1,
    DONE,
    F64,
    I64,
    N_FLEETS,
    N_PLANETS,
    Action,
    Position,
    State,
    copy_state,
)
from td_loop.games.orbit_wars.turn import MAX_SEATS, tick


def with_room(s: State, launches: int) -> State:
    """`s` itself if `launches` more fleets fit, else a copy with more fleet capacity."""
    need = int(s.head[N_FLEETS]) + launches
    capacity = len(s.f_id)
    if need <= capacity:
        return s
    extra = max(need, 2 * capacity) - capacity
    grown = {
        name: np.concatenate([a, np.zeros(extra, a.dtype)])
        for name, a in s._asdict().items()
        if name.startswith("f_")
    }
    return s._replace(**grown)


def join_actions(actions: Sequence[Action | None]) -> F64:
    """[L, 4] rows for `tick` from one action a seat ([l, 3], or None for no launch)."""
    rows = [
        np.column_stack([np.full(len(a), float(seat)), a])
        for seat, a in enumerate(actions)
        if a is not None and len(a)
    ]
    return np.concatenate(rows) if rows else np.empty((0, 4))


def step(pos: Position, actions: Sequence[Action | None]) -> Position:
    """The position after one turn; `pos` is left as it is.

    Args:
        pos: where the game stands.
        actions: one a seat, in seat order.
    """
    moves = join_actions(actions)
    s = copy_state(with_room(pos.state, len(moves)))
    tick(pos.board, s, moves)
    return Position(pos.board, s)


def alive(pos: Position) -> B1:
    """bool[4]: seats that own a planet or a fleet."""
    s = pos.state
    out = np.zeros(MAX_SEATS, np.bool_)
    owners = s.p_owner[: s.head[N_PLANETS]]
    out[owners[owners >= 0]] = True
    out[s.f_owner[: s.head[N_FLEETS]]] = True
    return out


def scores(pos: Position) -> I64:
    """i64[4]: ships on planets and in fleets, by seat."""
    s = pos.state
    out = np.zeros(MAX_SEATS, np.int64)
    n, f = s.head[N_PLANETS], s.head[N_FLEETS]
    owned = s.p_owner[:n] >= 0
    np.add.at(out, s.p_owner[:n][owned], s.p_ships[:n][owned])
    np.add.at(out, s.f_owner[:f], s.f_ships[:f])
    return out


def rewards(pos: Position) -> list[int]:
    """What a finished game pays: +1 to every seat with the largest score if that is positive, -1 to the others."""
    points = scores(pos)[: pos.board.n_players]
    best = points.max()
    return [1 if p == best and best > 0 else -1 for p in points.tolist()]


def shares(won: B1, left: B1) -> F64:
    """f64[4] outcome of a finished game: who won shares 1 equally; if nobody won, who is left; else every seat.

    Args:
        won: bool[P] the largest score, if that is positive.
        left: bool[P] seats that own a planet or a fleet. The last fleets may have died together, all of them to
            the same end.
    """
    winners = won if won.any() else left if left.any() else np.ones(len(won), np.bool_)
    out = np.zeros(MAX_SEATS)
    out[: len(won)] = winners / winners.sum()
    return out


def outcome(pos: Position) -> F64 | None:
    """None while the game goes on; else f64[4] as of `shares`."""
    if not pos.state.head[DONE]:
        return None
    won = np.array(rewards(pos)) > 0
    return shares(won, alive(pos)[: len(won)])
