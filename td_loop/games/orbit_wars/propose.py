"""Candidate launches: which source, which target, how many ships. Sizes come from the forecast at arrival.

`Q` is the number of pairs, `SLOTS` the candidates a pair may have, `GROUP` the launches of one candidate. A pair
is (source, target), or (several, target): a group of sources that together take what none of them can take alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.games.orbit_wars.aims import Aims, aim_once
from td_loop.games.orbit_wars.forecast import (
    MARKS,
    PLANETS,
    TICKS,
    Forecast,
    add_arrival,
    holding,
    shortfall,
    spare,
)
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.state import B1, CENTER, F64, I64, STEP, SUN_RADIUS, Board, State
from td_loop.games.orbit_wars.turn import fleet_speed
from td_loop.kernels import allocating, inlined, kernel

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
GROUP_SPREAD = 3
"""Ticks by which the last of a group may be late if that spares ships."""
GROUP_WAITS = (0, 4, 8, 12)
"""Ticks after which a group may leave."""
LEAST_IN_GROUP = 3
"""Ships that a source must be able to give to take part in a group."""


class Pool(NamedTuple):
    """Pairs in the order in which they are looked at, and the candidates of those that were."""

    at: I64  # [1] number of pairs
    source: I64  # [Q] planet, or SEVERAL
    target: I64  # [Q]
    key: F64  # [Q] scratch of the ordering
    nearest: I64  # [GROUP] scratch of `propose_group`: sources, and how far they are in ticks
    near: F64  # [GROUP]
    # candidates: [Q, SLOTS], launches of each: [Q, SLOTS, GROUP]
    size: I64
    wait: I64  # [Q, SLOTS] ticks until it is launched: above 0 it only keeps its ships back
    src: I64
    ships: I64
    eta: I64
    angle: F64
    aims: Aims


def make_pool(capacity: int, aims: Aims) -> Pool:
    """An empty pool for boards of `capacity` planets; pools of one search may share `aims`."""
    q = capacity * capacity + capacity
    launches = (q, SLOTS, GROUP)

    def ints(*shape: int) -> npt.NDArray[np.int64]:
        return np.zeros(shape, np.int64)

    return Pool(
        ints(1), ints(q), ints(q), np.zeros(q), ints(GROUP), np.zeros(GROUP), ints(q, SLOTS), ints(q, SLOTS),
        ints(*launches), ints(*launches), ints(*launches), np.zeros(launches), aims,
    )  # fmt: skip


@allocating
def order_pairs(pool: Pool, fc: Forecast, state: State, seat: int, targets: B1) -> None:
    """List the pairs of `seat`, nearest first; own planets in no danger later, and only those near the source.

    From a comet that is about to vanish every way is open: what does not leave it is lost.

    `targets` bool[C]: the planets that matter.
    """
    n = fc.span[PLANETS]
    q = 0
    for dst in range(n):
        if not targets[dst]:
            continue
        wanted = False
        for m in range(1, MARKS):
            wanted = wanted or fc.owner_at[m, dst] != seat
        nearest, second = FAR_AWAY, FAR_AWAY
        for src in range(n):
            if src == dst or fc.owner[src] != seat or fc.ships[src] <= 0:
                continue
            dx, dy = state.p_x[src] - state.p_x[dst], state.p_y[src] - state.p_y[dst]
            d = math.sqrt(dx * dx + dy * dy)
            useful = wanted or fc.gone[src] == 1
            if not useful and d > FORWARD_REACH:
                continue
            pool.source[q] = src
            pool.target[q] = dst
            pool.key[q] = d if useful else d + FORWARD_DETOUR
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
    order = np.argsort(pool.key[:q], kind="mergesort")
    source, target = pool.source[:q].copy(), pool.target[:q].copy()
    for j in range(q):
        pool.source[j] = source[order[j]]
        pool.target[j] = target[order[j]]


@kernel
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
def _put(pool: Pool, q: int, slot: int, src: int, ships: int, eta: int, angle: float, wait: int) -> int:
    """Add a candidate of one launch, unless the pair has one of that size; returns the next free slot."""
    if slot >= SLOTS:
        return slot
    for s in range(slot):
        if pool.ships[q, s, 0] == ships:
            return slot
    pool.size[q, slot] = 1
    pool.wait[q, slot] = wait
    pool.src[q, slot, 0] = src
    pool.ships[q, slot, 0] = ships
    pool.eta[q, slot, 0] = eta
    pool.angle[q, slot, 0] = angle
    return slot + 1


@kernel
def _offer(
    pool: Pool, q: int, slot: int, board: Board, paths: PathTable, state: State, ships: int, by: int
) -> int:
    """Add a launch of `ships` now, if there is a clear way that ends by tick `by`; returns the next free slot."""
    src, dst = pool.source[q], pool.target[q]
    if ships < 1 or slot >= SLOTS:
        return slot
    ok, angle, eta = aim_once(pool.aims, board, paths, state, src, dst, ships)
    if not ok or eta > by:
        return slot
    return _put(pool, q, slot, src, ships, eta, angle, 0)


@inlined
def margin(owner: int, need: int) -> int:
    """Ships beyond the least: none against neutrals, who do not answer."""
    return 0 if owner < 0 else 2 + need // 8


@kernel
def _propose_help(
    pool: Pool, q: int, fc: Forecast, board: Board, paths: PathTable, state: State, eta: int
) -> None:
    """Candidates that move ships to a planet of one's own: enough to hold it, or what can be spared."""
    src, dst = pool.source[q], pool.target[q]
    have, free = fc.ships[src], spare(fc, src)
    slot = 0
    need, tick, _ = shortfall(fc, dst, fc.owner[dst], 0, fc.span[TICKS])
    if need > 0 and eta <= tick:
        slot = _offer(pool, q, slot, board, paths, state, min(have, need), tick)
    if free >= 2:
        slot = _offer(pool, q, slot, board, paths, state, free, fc.span[TICKS])
        _offer(pool, q, slot, board, paths, state, (free + 1) // 2, fc.span[TICKS])


@kernel
def _propose_later(
    pool: Pool, q: int, fc: Forecast, board: Board, paths: PathTable, state: State, seat: int
) -> None:
    """A candidate that waits until its source has made enough ships: it keeps the ships from going elsewhere."""
    src, dst = pool.source[q], pool.target[q]
    have, made = fc.ships[src], fc.prod[src]
    most = min(fc.mark[1], fc.gone[src] - 1)
    ships, wait, eta = have + 1, 0, 0
    for _ in range(3):
        flight, sun = glance(board, paths, state, src, dst, ships)
        eta = wait + flight
        if sun or eta > fc.span[TICKS]:
            return
        owner, there = holding(fc, dst, eta)
        if owner == seat or eta >= fc.gone[dst]:
            return
        ships = max(have, there) + 1 + margin(owner, there + 1)
        wait = -((have - ships) // made)
        if wait > most:
            return
    flight, sun = glance(board, paths, state, src, dst, ships)
    eta = wait + flight
    owner, there = holding(fc, dst, eta)
    if not sun and owner != seat and ships > there and eta < min(fc.gone[dst], fc.span[TICKS] + 1):
        _put(pool, q, 0, src, ships, eta, 0.0, wait)


@kernel
def propose_single(
    pool: Pool, q: int, fc: Forecast, board: Board, paths: PathTable, state: State, seat: int
) -> None:
    """Candidates that send one fleet from a source to a target."""
    src, dst = pool.source[q], pool.target[q]
    have, last = fc.ships[src], fc.span[TICKS]
    for s in range(SLOTS):
        pool.size[q, s] = 0
    if fc.owner[src] != seat or have <= 0 or fc.gone[dst] <= 1:
        return
    # Many pairs end here, before the costly exact aim.
    eta, sun = glance(board, paths, state, src, dst, have)
    if sun or eta > last:
        return
    owner, there = holding(fc, dst, eta)
    if owner == seat:
        if fc.owner[dst] == seat:
            _propose_help(pool, q, fc, board, paths, state, eta)
        return
    if have + 2 * fc.prod[dst] >= there:  # near enough to look exactly
        ok, _, eta = aim_once(pool.aims, board, paths, state, src, dst, have)
        if not ok or eta > last:
            return
        owner, there = holding(fc, dst, eta)
        if owner == seat:
            return
    if have <= there:
        if fc.gone[src] > 1:
            _propose_later(pool, q, fc, board, paths, state, seat)
        elif owner >= 0:
            _offer(pool, q, 0, board, paths, state, have, last)  # lost in any case: they may at least do harm
        return
    slot = 0
    # The least that captures: fewer ships fly slower, and what they meet depends on when they arrive.
    ships = min(have, there + 1 + margin(owner, there + 1))
    for _ in range(4):
        ok2, angle2, eta2 = aim_once(pool.aims, board, paths, state, src, dst, ships)
        if not ok2 or eta2 > last:
            break
        owner2, there2 = holding(fc, dst, eta2)
        if owner2 == seat:
            break
        if ships > there2:
            slot = _put(pool, q, slot, src, ships, eta2, angle2, 0)
            break
        ships = there2 + 1 + margin(owner2, there2 + 1)
        if ships > have:
            break
    free = spare(fc, src)
    for part in range(2):
        ships = min(free, (there + 1) * 3 // 2 + 3) if part == 0 else free
        if there < ships < have:
            slot = _offer(pool, q, slot, board, paths, state, ships, last)
    _offer(pool, q, slot, board, paths, state, have, last)


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
    near, sources = pool.near, pool.nearest
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
    for wait in GROUP_WAITS:
        if wait > fc.mark[1]:
            break
        used = _gather(pool, q, fc, board, paths, state, seat, sources, n, wait)
        if used > 0:
            pool.size[q, 0] = used
            pool.wait[q, 0] = wait
            break


@kernel
def _gather(
    pool: Pool, q: int, fc: Forecast, board: Board, paths: PathTable, state: State, seat: int,
    sources: I64, n: int, wait: int,
) -> int:  # fmt: skip
    """Write a group that leaves after `wait` ticks to slot 0; returns its size, 0 if the target holds."""
    dst = pool.target[q]
    used = 0
    late = 0
    done = False
    for k in range(n):
        src = sources[k]
        if done or wait >= fc.gone[src]:  # a comet is not there any more by then
            continue
        ships = spare(fc, src) + fc.prod[src] * wait
        if ships < LEAST_IN_GROUP:
            continue
        ok, angle, eta = _way(pool, board, paths, state, src, dst, ships, wait)
        if not ok or eta > fc.span[TICKS] or eta >= fc.gone[dst]:
            continue
        late = max(late, eta)
        owner, there = holding(fc, dst, late)
        if owner == seat:
            break
        least = there + 1 + margin(owner, there + 1)
        if ships > least:
            ok2, angle2, eta2 = _way(pool, board, paths, state, src, dst, least, wait)
            if ok2 and eta2 <= min(late + GROUP_SPREAD, fc.span[TICKS], fc.gone[dst] - 1):
                ships, angle, eta = least, angle2, eta2
                late = max(late, eta)  # a smaller fleet is slower: the group has done its work when it is there
        pool.src[q, 0, used] = src
        pool.ships[q, 0, used] = ships
        pool.eta[q, 0, used] = eta
        pool.angle[q, 0, used] = angle
        used += 1
        add_arrival(fc, dst, eta, seat, ships)  # `holding` asks for no more: settling would cost as much again
        done = holding(fc, dst, late)[0] == seat
    for j in range(used):
        add_arrival(fc, dst, pool.eta[q, 0, j], seat, -pool.ships[q, 0, j])
    return used if done and used >= 2 else 0


@kernel
def _way(
    pool: Pool, board: Board, paths: PathTable, state: State, src: int, dst: int, ships: int, wait: int
) -> tuple[bool, float, int]:
    """(clear, angle, tick of arrival): exact for a launch now, by a glance for one that waits."""
    if wait == 0:
        return aim_once(pool.aims, board, paths, state, src, dst, ships)
    flight, sun = glance(board, paths, state, src, dst, ships)
    return not sun, 0.0, wait + flight
