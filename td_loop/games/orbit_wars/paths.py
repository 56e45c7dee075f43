"""Where every home planet stands in every observation of a game: computed once a board, looked up by all.

`T` is the number of observations of a game (episodeSteps), `M` the number of home planets.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.board import planet_xy
from td_loop.games.orbit_wars.state import EPISODE, F64, Board
from td_loop.kernels import kernel


class PathTable(NamedTuple):
    """Row k holds the positions of observation k; the last row is the last observation that a game can have."""

    x: F64  # [T, M]
    y: F64  # [T, M]


@kernel
def _fill(board: Board, x: F64, y: F64) -> None:
    for p in range(x.shape[1]):
        for k in range(x.shape[0]):
            x[k, p], y[k, p] = planet_xy(board, p, k)


_KEPT = 64
"""Some 20 MB."""
_tables: OrderedDict[tuple[bytes, ...], PathTable] = OrderedDict()
_lock = threading.Lock()  # a server asks from several threads


def path_table(board: Board) -> PathTable:
    """The table of `board` (0.1 ms the first time; the last boards' tables are kept).

    A server makes a board of every request, and of one game they are all the same: so a table is found by what the
    planets' ways depend on.
    """
    of = (board.cfg, board.home_x, board.home_y, board.orbit_r, board.orbit_angle, board.rotates)
    key = tuple(a.tobytes() for a in of)
    with _lock:
        if (found := _tables.get(key)) is not None:
            _tables.move_to_end(key)
            return found
    shape = (max(2, int(board.cfg[EPISODE])), board.home_x.shape[0])
    table = PathTable(np.empty(shape), np.empty(shape))
    _fill(board, *table)
    with _lock:
        _tables[key] = table
        while len(_tables) > _KEPT:
            _tables.popitem(last=False)
    return table
