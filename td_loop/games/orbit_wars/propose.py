"""Candidate launches: which source, which target, how many ships. Sizes come from the forecast at arrival.

`Q` is the number of pairs, `SLOTS` the candidates a pair may have, `GROUP` the launches of one candidate. A pair
is (source, target), or (several, target): a group of sources that together take what none of them can take alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.games.orbit_wars.aims import Aims, aim_once, make_aims
from td_loop.games.orbit_wars.forecast import MARKS, NEVER, PLANETS, TICKS, Forecast, holding, send, spare
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.state import CENTER, F64, I64, STEP, SUN_RADIUS, Board, State
from td_loop.games.orbit_wars.turn import fight, fleet_speed
from td_loop.kernels import inlined, kernel

SLOTS = 4
GROUP = 6
SEVERAL = -1
"""Source of a pair whose candidates are groups."""

FORWARD_DETOUR = 25.0
"""Moving ships between own planets that nobody threatens waits behind attacks that are this much farther."""
FORWARD_REACH = 35.0
"""How far ships are moved between such planets."""
FAR_AWAY = 1e9
GROUP_DETOUR = 10.0
LEAST_IN_GROUP = 3
"""Ships that a source must be able to give to take part in a group."""


class Pool(NamedTuple):
    """Pairs in the order in which they are looked at, and the candidates of those that were."""

    at: I64  # [1] number of pairs
    source: I64  # [Q] planet, or SEVERAL
    target: I64  # [Q]
    key: F64  # [Q] scratch of the ordering
    # candidates: [Q, SLOTS], launches of each: [Q, SLOTS, GROUP]
    size: I64
    src: I64
    ships: I64
    eta: I64
    angle: F64
    aims: Aims


def make_pool(capacity: int) -> Pool:
    """An empty pool for boards of `capacity` planets."""
    q = capacity * capacity + capacity
    launches = (q, SLOTS, GROUP)

    def ints(*shape: int) -> npt.NDArray[np.int64]:
        return np.zeros(shape, np.int64)

    return Pool(
        ints(1), ints(q), ints(q), np.zeros(q), ints(q, SLOTS), ints(*launches), ints(*launches), ints(*launches),
        np.zeros(launches), make_aims(capacity),
    )  # fmt: skip


@kernel
def order_pairs(pool: Pool, fc: Forecast, state: State, seat: int) -> None:
    """List the pairs of `seat`, nearest first; own planets in no danger later, and only those near the source."""
    n = fc.span[PLANETS]
    q = 0
    for dst in range(n):
        wanted = False
        for m in range(1, MARKS):
            wanted = wanted or fc.owner_at[m, dst] != seat
        nearest, second = FAR_AWAY, FAR_AWAY
        for src in range(n):
            if src == dst or fc.owner[src] != seat or fc.ships[src] <= 0:
                continue
            dx, dy = state.p_x[src] - state.p_x[dst], state.p_y[src] - state.p_y[dst]
            d = math.sqrt(dx * dx + dy * dy)
            if not wanted and d > FORWARD_REACH:
                continue
            pool.source[q] = src
            pool.target[q] = dst
            pool.key[q] = d if wanted else d + FORWARD_DETOUR
            q += 1
            if d < nearest:
                nearest, second = d, nearest
            elif d < second:
                second = d
        if wanted and second < FAR_AWAY:
            pool.source[q] = SEVERAL
            pool.target[q] = dst
            pool.key[q] = second + GROUP_DETOUR
            q += 1
    pool.at[0] = q
    pool.aims.n[:] = 0
    order = np.argsort(pool.key[:q], kind="mergesort")
    source, target = pool.source[:q].copy(), pool.target[:q].copy()
    for j in range(q):
        pool.source[j] = source[order[j]]
        pool.target[j] = target[order[j]]


@inlined
def glance(board: Board, paths: PathTable, state: State, src: int, dst: int, ships: int) -> tuple[int, bool]:
    """(ticks of flight as the crow flies, whether the sun stands in the way): a cheap look before aiming."""
    speed = fleet_speed(board, ships)
    x, y = state.p_x[dst], state.p_y[dst]
    eta = 1
    for _ in range(2):
        dx, dy = x - state.p_x[src], y - state.p_y[src]
        way = math.sqrt(dx * dx + dy * dy) - state.p_radius[src] - state.p_radius[dst]
        eta = max(1, math.ceil(way / speed))
        if state.p_comet[dst] >= 0:
            break
        row = min(state.head[STEP] + eta, paths.x.shape[0] - 1)
        x, y = paths.x[row, dst], paths.y[row, dst]
    dx, dy = x - state.p_x[src], y - state.p_y[src]
    cx, cy = CENTER - state.p_x[src], CENTER - state.p_y[src]
    length2 = dx * dx + dy * dy + 1e-9
    along = cx * dx + cy * dy
    off = abs(cx * dy - cy * dx)
    clear = SUN_RADIUS - state.p_radius[dst]
    return eta, along > 0.0 and along < length2 and off * off < clear * clear * length2


@kernel
def shortfall(fc: Forecast, planet: int) -> tuple[int, int]:
    """(tick, ships) of the first arrival that takes the planet from its owner now, and by how many; (NEVER, 0)."""
    owner, ships, prod = fc.owner[planet], fc.ships[planet], fc.prod[planet]
    at = 0
    for j in range(fc.n_ticks[planet]):
        tick = fc.ticks[planet, j]
        if owner >= 0:
            ships += prod * (tick - at)
        at = tick
        now, ships = fight(owner, ships, fc.arrivals[planet], tick)
        if now != owner:
            return tick, ships
    return NEVER, 0


@inlined
def _put(pool: Pool, q: int, slot: int, src: int, ships: int, eta: int, angle: float) -> int:
    """Add a candidate of one launch, unless the pair has one of that size; returns the next free slot."""
    if slot >= SLOTS:
        return slot
    for s in range(slot):
        if pool.ships[q, s, 0] == ships:
            return slot
    pool.size[q, slot] = 1
    pool.src[q, slot, 0] = src
    pool.ships[q, slot, 0] = ships
    pool.eta[q, slot, 0] = eta
    pool.angle[q, slot, 0] = angle
    return slot + 1


@inlined
def _margin(owner: int, need: int) -> int:
    """Ships beyond the least: none against neutrals, who do not answer."""
    return 0 if owner < 0 else 2 + need // 8


@kernel
def propose_single(
    pool: Pool, q: int, fc: Forecast, board: Board, paths: PathTable, state: State, seat: int
) -> None:
    """Candidates that send one fleet from a source to a target."""
    src, dst = pool.source[q], pool.target[q]
    have = fc.ships[src]
    slot = 0
    for s in range(SLOTS):
        pool.size[q, s] = 0
    if fc.owner[src] != seat or have <= 0 or fc.gone[dst] <= 1:
        return
    # Most pairs end here, before the costly exact aim: the sun, or too few ships (production of two turns aside).
    eta, sun = glance(board, paths, state, src, dst, have)
    if sun or eta > fc.span[TICKS]:
        return
    owner, there = holding(fc, dst, eta)
    if owner != seat and have + 2 * fc.prod[dst] < there:
        return
    free = spare(fc, src)
    ok, angle, eta = aim_once(pool.aims, board, paths, state, src, dst, have)
    if not ok or eta > fc.span[TICKS]:
        return
    owner, there = holding(fc, dst, eta)
    if owner == seat:
        tick, lacking = shortfall(fc, dst)
        if fc.owner[dst] == seat and tick < NEVER and eta <= tick:
            n = min(have, lacking + 1)
            ok2, angle2, eta2 = aim_once(pool.aims, board, paths, state, src, dst, n)
            if ok2 and eta2 <= tick:
                slot = _put(pool, q, slot, src, n, eta2, angle2)
        for part in range(2):
            n = free if part == 0 else (free + 1) // 2
            if n >= 2:
                ok2, angle2, eta2 = aim_once(pool.aims, board, paths, state, src, dst, n)
                if ok2 and eta2 <= fc.span[TICKS]:
                    slot = _put(pool, q, slot, src, n, eta2, angle2)
        return
    if have > there:
        # The least that captures: fewer ships fly slower, and what they meet depends on when they arrive.
        n = min(have, there + 1 + _margin(owner, there + 1))
        for _ in range(4):
            ok2, angle2, eta2 = aim_once(pool.aims, board, paths, state, src, dst, n)
            if not ok2 or eta2 > fc.span[TICKS]:
                break
            owner2, there2 = holding(fc, dst, eta2)
            if owner2 == seat:
                break
            if n > there2:
                slot = _put(pool, q, slot, src, n, eta2, angle2)
                break
            n = there2 + 1 + _margin(owner2, there2 + 1)
            if n > have:
                break
        n = min(free, (there + 1) * 3 // 2 + 3)
        if n > there and n < have:
            ok2, angle2, eta2 = aim_once(pool.aims, board, paths, state, src, dst, n)
            if ok2 and eta2 <= fc.span[TICKS]:
                slot = _put(pool, q, slot, src, n, eta2, angle2)
        if free > there and free < have:
            ok2, angle2, eta2 = aim_once(pool.aims, board, paths, state, src, dst, free)
            if ok2 and eta2 <= fc.span[TICKS]:
                slot = _put(pool, q, slot, src, free, eta2, angle2)
        slot = _put(pool, q, slot, src, have, eta, angle)


@kernel
def propose_group(
    pool: Pool, q: int, fc: Forecast, board: Board, paths: PathTable, state: State, seat: int
) -> None:
    """A candidate that sends fleets from several sources, nearest in time first, until the target falls."""
    dst = pool.target[q]
    for s in range(SLOTS):
        pool.size[q, s] = 0
    if fc.gone[dst] <= 1:
        return
    # Sources by the time a fleet of theirs would need as the crow flies; at most GROUP of them are aimed.
    n = 0
    near = np.empty(GROUP)
    sources = np.empty(GROUP, np.int64)
    for src in range(fc.span[PLANETS]):
        if src == dst or fc.owner[src] != seat or fc.ships[src] < LEAST_IN_GROUP:
            continue
        dx, dy = state.p_x[src] - state.p_x[dst], state.p_y[src] - state.p_y[dst]
        key = math.sqrt(dx * dx + dy * dy) / fleet_speed(board, fc.ships[src])
        j = n
        while j > 0 and near[j - 1] > key:
            if j < GROUP:
                near[j], sources[j] = near[j - 1], sources[j - 1]
            j -= 1
        if j < GROUP:
            near[j], sources[j] = key, src
            n = min(n + 1, GROUP)
    used = 0
    late = 0
    done = False
    for j in range(n):
        if done:
            break
        best = sources[j]
        best_n = min(spare(fc, best), fc.ships[best])
        if best_n < LEAST_IN_GROUP:
            continue
        ok, best_angle, best_eta = aim_once(pool.aims, board, paths, state, best, dst, best_n)
        if not ok or best_eta > fc.span[TICKS]:
            continue
        late = max(late, best_eta)
        owner, there = holding(fc, dst, late)
        if owner == seat:
            break
        least = there + 1 + _margin(owner, there + 1)
        if best_n > least:
            ok, angle, eta = aim_once(pool.aims, board, paths, state, best, dst, least)
            if ok and eta <= late + 3:
                best_n, best_eta, best_angle = least, eta, angle
        pool.src[q, 0, used] = best
        pool.ships[q, 0, used] = best_n
        pool.eta[q, 0, used] = best_eta
        pool.angle[q, 0, used] = best_angle
        used += 1
        send(fc, seat, best, dst, best_n, best_eta)
        owner, there = holding(fc, dst, max(late, best_eta))
        done = owner == seat
    for j in range(used):
        send(fc, seat, pool.src[q, 0, j], dst, -pool.ships[q, 0, j], pool.eta[q, 0, j])
    if done and used >= 2:
        pool.size[q, 0] = used
