"""The kernels that a search calls thousands of times a second, without numba's look at their arguments.

A plan, a pool and a forecast are some fifty arrays. numba asks each of them for its type in every call, which
takes longer than many of these calls do their work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.forecast import Forecast
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.plan import Judge, Plan, advance, close_plan, log_odds, start_plan
from td_loop.games.orbit_wars.propose import Pool
from td_loop.games.orbit_wars.revise import Kept, go_back, keep, reconsider, send_kept, take_back
from td_loop.games.orbit_wars.state import B1, Position
from td_loop.kernels import settled


class Calls(NamedTuple):
    """Kernels of `plan` and `revise`; by default those that look at their arguments."""

    start_plan: Callable[..., None] = start_plan
    advance: Callable[..., None] = advance
    close_plan: Callable[..., None] = close_plan
    log_odds: Callable[..., float] = log_odds
    keep: Callable[..., None] = keep
    send_kept: Callable[..., None] = send_kept
    reconsider: Callable[..., None] = reconsider
    take_back: Callable[..., None] = take_back
    go_back: Callable[..., None] = go_back


def settled_calls(
    pos: Position, paths: PathTable, fc: Forecast, judge: Judge, plan: Plan, pool: Pool, kept: Kept, targets: B1
) -> Calls:
    """The kernels for arguments of these types (see `settled`), whatever their shapes."""
    board, state = pos
    return Calls(
        settled(start_plan, plan, pool, fc, judge, state, 0, targets, 0, 0.0),
        settled(advance, plan, pool, fc, judge, board, paths, state, 0, 0),
        settled(close_plan, plan, pool, fc),
        settled(log_odds, fc, judge, 0),
        settled(keep, kept, plan),
        settled(send_kept, fc, 0, kept, 0),
        settled(reconsider, plan, pool, kept),
        settled(take_back, plan, pool, fc, judge, np.zeros(0, np.int64)),
        settled(go_back, plan, fc, kept),
    )
