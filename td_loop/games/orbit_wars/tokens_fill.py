"""The kernel that writes a position's tokens; what they mean is in `tokens`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.forecast import (
    LEFT,
    MARKS,
    NEVER,
    PLANETS,
    REACH_UNIT,
    SEATS,
    TICKS,
    Forecast,
    begin,
    holding,
    shortfall,
    spare,
)
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.propose import glance
from td_loop.games.orbit_wars.sizes import SIZES, need_at, size_of
from td_loop.games.orbit_wars.state import (
    CENTER,
    EPISODE,
    F64,
    I64,
    N_FLEETS,
    STEP,
    Board,
    State,
)
from td_loop.games.served import Tensor
from td_loop.kernels import inlined, kernel

ARRIVAL_LIMIT = 64
"""Arrivals that are shown; the soonest ones, when there are more."""
LOG_TABLE: F64 = np.log1p(np.arange(1024.0)) / 7.0
_SOON = 10.0  # ticks over which nearness in time falls to 1/e
_AHEAD = 80.0  # ticks that count as 1
_HORIZON = 60  # turns for which a captured planet's production counts
_GROUP = 3  # ticks by which others may land later and still fight together


class Tokens(NamedTuple):
    """What the kernel writes: zeros when it begins."""

    world: Tensor  # [len(WORLD)]
    planets: Tensor  # [N, len(PLANET)]
    arrivals: Tensor  # [ARRIVAL_LIMIT, len(ARRIVAL)]
    near: Tensor  # [N, N]
    lands: Tensor  # [N, ARRIVAL_LIMIT]
    slots: Tensor  # [S, N]
    pairs: Tensor  # [S, N, len(PAIR)]
    open: Tensor  # [S, N, 4]


@inlined
def _log(table: F64, n: int) -> float:
    if n < len(table):
        return float(table[max(n, 0)])
    return math.log1p(n) / 7.0


@kernel
def fill(
    out: Tokens, fc: Forecast, spares: I64, eta: I64, table: F64,
    board: Board, paths: PathTable, state: State, seat: int, own: I64,
) -> int:  # fmt: skip
    """Write the tokens of `seat`; returns how many arrivals were written.

    Args:
        out: zeros; what is written.
        fc: buffers, which will hold the forecast of `state`.
        spares, eta: i64[C] and i64[C, C] buffers.
        table: LOG_TABLE.
        board, paths, state: the position.
        seat: who looks.
        own: i64[S] planets of the seat.
    """
    begin(fc, board, paths, state)
    for p in range(fc.span[PLANETS]):
        spares[p] = spare(fc, p) if fc.owner[p] == seat else 0
    _world(out, fc, table, board, state, seat)
    shown = _arrivals(out, fc, table, seat)
    _planets(out, fc, spares, table, board, state, seat)
    _pairs(out, fc, spares, eta, table, board, paths, state, seat, own)
    return shown


@inlined
def _strength(fc: Forecast, state: State, seat: int) -> tuple[int, int, int]:
    """(ships on planets and under way, production, planets) of a seat."""
    ships = 0
    prod = 0
    planets = 0
    for p in range(fc.span[PLANETS]):
        if fc.owner[p] == seat:
            ships += fc.ships[p]
            prod += fc.prod[p]
            planets += 1
    for f in range(state.head[N_FLEETS]):
        if state.f_owner[f] == seat:
            ships += state.f_ships[f]
    return ships, prod, planets


@kernel
def _world(out: Tokens, fc: Forecast, table: F64, board: Board, state: State, seat: int) -> None:
    """Also leaves each owner's part of all ships and production on its planets (columns 3 and 4)."""
    all_ships = 0
    all_prod = 0
    all_planets = 0
    for s in range(fc.span[SEATS]):
        ships, prod, planets = _strength(fc, state, s)
        all_ships += ships
        all_prod += prod
        all_planets += planets
    w = out.world
    w[0] = state.head[STEP] / max(1.0, board.cfg[EPISODE])
    w[1] = _log(table, fc.span[LEFT])
    w[2] = 1.0 if fc.span[SEATS] > 2 else 0.0
    w[8] = _log(table, all_ships)
    for s in range(fc.span[SEATS]):
        ships, prod, planets = _strength(fc, state, s)
        part = ships / max(1, all_ships)
        part_prod = prod / max(1, all_prod)
        if s == seat:
            w[3] = part
            w[4] = part_prod
            w[5] = planets / max(1, all_planets)
        else:
            w[6] = max(w[6], np.float32(part))
            w[7] = max(w[7], np.float32(part_prod))
        for p in range(fc.span[PLANETS]):
            if fc.owner[p] == s:
                out.planets[p, 3] = part
                out.planets[p, 4] = part_prod


@kernel
def _arrivals(out: Tokens, fc: Forecast, table: F64, seat: int) -> int:
    """Soonest first; also sums up what lands on each planet (columns 22 and 23)."""
    k = 0
    own_ships = out.world[3]
    for tick in range(1, fc.span[TICKS] + 1):
        for p in range(fc.span[PLANETS]):
            for s in range(fc.span[SEATS]):
                ships = fc.arrivals[p, tick, s]
                if ships == 0:
                    continue
                out.planets[p, 22 if s == seat else 23] += ships
                if k >= ARRIVAL_LIMIT:
                    continue
                row = out.arrivals[k]
                row[0 if s == seat else 1] = 1.0
                if s == seat:
                    row[2] = own_ships
                else:
                    for q in range(fc.span[PLANETS]):  # the owner's part of all ships, as its planets tell it
                        if fc.owner[q] == s:
                            row[2] = out.planets[q, 3]
                            break
                row[3] = _log(table, ships)
                row[4] = tick / _AHEAD
                row[5] = math.exp(-tick / _SOON)
                owner = fc.owner[p]
                row[6 if owner == seat else 7 if owner >= 0 else 8] = 1.0
                row[9] = fc.prod[p] / 5.0
                out.lands[p, k] = 1.0
                k += 1
    return k


@kernel
def _planets(out: Tokens, fc: Forecast, spares: I64, table: F64, board: Board, state: State, seat: int) -> None:
    n = fc.span[PLANETS]
    for p in range(n):
        row = out.planets[p]
        owner = fc.owner[p]
        row[0 if owner == seat else 1 if owner >= 0 else 2] = 1.0
        row[5] = _log(table, fc.ships[p])
        row[6] = fc.prod[p] / 5.0
        comet = state.p_comet[p] >= 0
        row[7] = 1.0 if comet else 0.0
        row[8] = 1.0 if not comet and board.rotates[p] else 0.0
        dx = state.p_x[p] - CENTER
        dy = state.p_y[p] - CENTER
        row[9] = math.sqrt(dx * dx + dy * dy) / CENTER
        row[10] = min(fc.gone[p], _AHEAD) / _AHEAD
        for m in range(1, MARKS):
            at = 8 + 3 * m
            then = fc.owner_at[m, p]
            row[at] = 1.0 if then == seat else 0.0
            row[at + 1] = 1.0 if then >= 0 and then != seat else 0.0
            row[at + 2] = _log(table, fc.ships_at[m, p])
        row[19] = 1.0
        if owner == seat:
            row[17] = _log(table, spares[p])
            lacks, since, _ = shortfall(fc, p, seat, 0, fc.span[TICKS])
            if lacks > 0:
                row[18] = _log(table, lacks)
                row[19] = since / _AHEAD
        top = 0
        for s in range(fc.span[SEATS]):
            if s != seat:
                top = max(top, fc.reach[s, p])
        row[20] = _log(table, fc.reach[seat, p] // REACH_UNIT)
        row[21] = _log(table, top // REACH_UNIT)
        row[22] = _log(table, int(row[22]))
        row[23] = _log(table, int(row[23]))
        for q in range(n):
            out.near[p, q] = fc.close[p, q] / REACH_UNIT


@kernel
def _pairs(
    out: Tokens, fc: Forecast, spares: I64, eta: I64, table: F64,
    board: Board, paths: PathTable, state: State, seat: int, own: I64,
) -> None:  # fmt: skip
    n = fc.span[PLANETS]
    for i in range(len(own)):
        out.slots[i, own[i]] = 1.0
        for dst in range(n):
            eta[i, dst] = 0
            if dst == own[i]:
                continue
            ticks, sun = glance(board, paths, state, own[i], dst, max(1, fc.ships[own[i]]))
            eta[i, dst] = -ticks if sun else ticks
    for dst in range(n):
        first = NEVER
        for i in range(len(own)):
            if eta[i, dst] > 0:
                first = min(first, eta[i, dst])
        for i in range(len(own)):
            _pair(out, fc, spares, eta, table, state, seat, own, i, dst, first)


@inlined
def _pair(
    out: Tokens, fc: Forecast, spares: I64, etas: I64, table: F64, state: State, seat: int, own: I64,
    i: int, dst: int, first: int,
) -> None:  # fmt: skip
    src = own[i]
    row = out.pairs[i, dst]
    if src == dst:
        row[0] = 1.0
        return
    eta = abs(etas[i, dst])
    clear = etas[i, dst] > 0
    sight = eta <= fc.span[TICKS] and eta < fc.gone[dst]
    have = fc.ships[src]
    free = spares[src]
    row[1] = min(eta, _AHEAD) / _AHEAD
    row[2] = math.exp(-eta / _SOON)
    row[3] = 0.0 if clear else 1.0
    row[16] = out.planets[dst, 21] - out.planets[src, 21]
    if not sight:
        return
    row[17] = 1.0
    owner, there = holding(fc, dst, eta)
    need = need_at(fc, dst, seat, eta)
    row[4] = 1.0 if owner == seat else 0.0
    row[5] = 1.0 if owner >= 0 and owner != seat else 0.0
    row[6] = _log(table, there)
    row[7] = _log(table, need)
    row[8] = min(2.0, need / max(1.0, have))
    row[9] = 1.0 if 0 < need <= have else 0.0
    row[10] = 1.0 if 0 < need <= free else 0.0
    if need > 0:
        turns = min(_HORIZON, fc.span[LEFT], fc.gone[dst] - 1) - eta
        gain = fc.prod[dst] * max(0, turns) * (2.0 if owner >= 0 else 1.0)
        row[11] = (gain - (need if owner < 0 else 0.0)) / (need + 4.0) / 10.0
    row[12] = min(1.0, (eta - first) / 20.0) if clear else 1.0
    row[13] = 1.0 if clear and eta == first else 0.0
    others = 0
    for k in range(len(own)):
        if k != i and 0 < etas[k, dst] <= eta + _GROUP:
            others += spares[own[k]]
    row[14] = _log(table, others)
    row[15] = 1.0 if 0 < need <= others + free else 0.0
    if clear and have >= 1:
        for size in range(len(SIZES)):
            out.open[i, dst, size] = 1.0 if size_of(fc, src, free, need, size) > 0 else 0.0
