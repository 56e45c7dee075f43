"""Aiming, remembered for the length of one decision: a search asks for the same few launches over and over.

`C` is the planet capacity, `WAYS` how many fleet sizes are remembered of a pair of planets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.aim import aim
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.state import F64, I64, Board, State
from td_loop.kernels import kernel

WAYS = 8


class Aims(NamedTuple):
    """Results of `aim`, by source, target and ships; the oldest of a pair makes room."""

    n: I64  # [C, C] results ever written for the pair
    ships: I64  # [C, C, WAYS]
    eta: I64  # [C, C, WAYS] 0: no clear way
    angle: F64  # [C, C, WAYS]


def make_aims(capacity: int) -> Aims:
    """Nothing remembered, for boards of `capacity` planets."""
    ways = (capacity, capacity, WAYS)
    return Aims(np.zeros(ways[:2], np.int64), np.zeros(ways, np.int64), np.zeros(ways, np.int64), np.zeros(ways))


@kernel
def forget(aims: Aims) -> None:
    """Remember nothing: another state begins."""
    aims.n[:] = 0


@kernel
def aim_once(
    aims: Aims, board: Board, paths: PathTable, state: State, src: int, dst: int, ships: int
) -> tuple[bool, float, int]:
    """`aim`, computed at most once while it is remembered. Call `forget` when the state changes."""
    n = aims.n[src, dst]
    for w in range(min(n, WAYS)):
        if aims.ships[src, dst, w] == ships:
            eta = aims.eta[src, dst, w]
            return eta > 0, aims.angle[src, dst, w], eta
    ok, angle, eta = aim(board, paths, state, src, dst, ships)
    w = n % WAYS
    aims.n[src, dst] = n + 1
    aims.ships[src, dst, w] = ships
    aims.eta[src, dst, w] = eta if ok else 0
    aims.angle[src, dst, w] = angle
    return ok, angle, eta
