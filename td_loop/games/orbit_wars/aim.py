"""Where a fleet lands, and how to launch one so that it lands on a given planet. Exact by the engine's swept test.

A fleet flies straight at a speed fixed by its ships, so all that can happen to it follows from the line, the sun,
the board's edge and the planets' known motion. `trace` finds the first of these events; `aim` solves for the angle
and lets `trace` confirm it. Comets that have not appeared yet are unknown to everybody and are left out.

A tick count `eta` = j means: the event happens in the j-th tick from now, so the fleet is missing from observation
step + j for the first time.
"""

from __future__ import annotations

import math

import numpy as np

from td_loop.games.orbit_wars.exact import sun_distance, swept_hit
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.state import (
    ANGULAR_VELOCITY,
    BOARD_SIZE,
    CENTER,
    N_PLANETS,
    SQUARE,
    STEP,
    SUN_RADIUS,
    Board,
    State,
)
from td_loop.games.orbit_wars.turn import fleet_speed
from td_loop.kernels import inlined, kernel

# What a trace can end with besides a planet index
FLYING = -1  # still under way in the game's last observation
SUN = -2
OUT = -3
EXPIRED = -4  # hits a comet in the tick in which that leaves: the fleet vanishes without combat

LAUNCH_GAP = 0.1  # a fleet starts this far outside its planet's rim

_SLACK = 1e-6  # distance; far above rounding, far below anything that matters: only widens what is tested exactly
_MAX_TRIES = 24  # launch angles tried by one `aim`
_GRAZE = 0.98  # aim at first contact a little inside the rim, so that rounding cannot miss it


@inlined
def _burns(ax: float, ay: float, bx: float, by: float, two: float) -> bool:
    """Does the way A -> B of one tick touch the sun?"""
    vx = bx - ax
    vy = by - ay
    t = ((CENTER - ax) * vx + (CENTER - ay) * vy) / (vx * vx + vy * vy)
    t = max(0.0, min(1.0, t))
    ex = ax + t * vx - CENTER
    ey = ay + t * vy - CENTER
    over = ex * ex + ey * ey - SUN_RADIUS * SUN_RADIUS
    if abs(over) > _SLACK:
        return over < 0.0
    return sun_distance(ax, ay, bx, by, two) < SUN_RADIUS  # slow `pow`, for what is too close to call


@inlined
def _first_sweep(
    px: float, py: float, row: int, p: int, paths: PathTable, moving: bool, r: float,
    x: float, y: float, dx: float, dy: float, speed: float, low: int, high: int,
) -> int:  # fmt: skip
    """First tick in [low, high] in which the fleet hits home planet `p`, or 0; (x, y): where the fleet is now."""
    for _ in range(low - 1):  # the engine adds tick by tick: a product would differ in the last bits
        x += dx
        y += dy
    for j in range(low, high + 1):
        ax = x
        ay = y
        x += dx
        y += dy
        if moving:
            p0x = paths.x[row + j - 1, p]
            p0y = paths.y[row + j - 1, p]
            p1x = paths.x[row + j, p]
            p1y = paths.y[row + j, p]
            near = r + speed + abs(p1x - p0x) + abs(p1y - p0y)
        else:
            p0x = px
            p0y = py
            p1x = px
            p1y = py
            near = r + speed
        if abs(ax - p0x) > near or abs(ay - p0y) > near:
            continue
        if swept_hit(ax, ay, x, y, p0x, p0y, p1x, p1y, r):
            return j
    return 0


@inlined
def _first_comet_sweep(
    board: Board, group: int, member: int, at: int, r: float,
    x: float, y: float, dx: float, dy: float, speed: float, high: int,
) -> int:  # fmt: skip
    """As `_first_sweep`, for a comet that stands at point `at` of its path. In its last tick a comet stays put."""
    left = board.comet_len[group] - at
    for j in range(1, min(high, left) + 1):
        ax = x
        ay = y
        x += dx
        y += dy
        p0x = board.comet_x[group, member, at + j - 1]
        p0y = board.comet_y[group, member, at + j - 1]
        p1x = p0x
        p1y = p0y
        if j < left:
            p1x = board.comet_x[group, member, at + j]
            p1y = board.comet_y[group, member, at + j]
        near = r + speed + abs(p1x - p0x) + abs(p1y - p0y)
        if abs(ax - p0x) > near or abs(ay - p0y) > near:
            continue
        if swept_hit(ax, ay, x, y, p0x, p0y, p1x, p1y, r):
            return j
    return 0


@inlined
def _end_of_line(x: float, y: float, c: float, s: float, speed: float, last: int, two: float) -> tuple[int, int]:
    """(tick, SUN | OUT | FLYING) of a flight that no planet ends; `last` is the last tick of the game."""
    dx = c * speed
    dy = s * speed
    # Leaving the board is judged where a tick ends.
    way = 2.0 * BOARD_SIZE
    if c > 0.0:
        way = min(way, (BOARD_SIZE - x) / c)
    elif c < 0.0:
        way = min(way, -x / c)
    if s > 0.0:
        way = min(way, (BOARD_SIZE - y) / s)
    elif s < 0.0:
        way = min(way, -y / s)
    out = max(1, int(way / speed))
    nx = x
    ny = y
    for _ in range(out):
        nx += dx
        ny += dy
    while 0.0 <= nx <= BOARD_SIZE and 0.0 <= ny <= BOARD_SIZE and out <= last:
        nx += dx
        ny += dy
        out += 1
    end = last + 1
    what = FLYING
    if out <= last:
        end = out
        what = OUT
    # The sun is judged along the tick's way.
    ahead = (CENTER - x) * c + (CENTER - y) * s
    off = (CENTER - x) * s - (CENTER - y) * c
    room = SUN_RADIUS * SUN_RADIUS - off * off
    if ahead > 0.0 and room > -_SLACK:
        enter = ahead - math.sqrt(max(room, 0.0))
        low = max(1, int(enter / speed))
        if low < end:
            nx = x
            ny = y
            for _ in range(low - 1):
                nx += dx
                ny += dy
            for j in range(low, min(low + 3, end)):
                if _burns(nx, ny, nx + dx, ny + dy, two):
                    return j, SUN
                nx += dx
                ny += dy
    return end, what


@inlined
def _fly(
    board: Board, paths: PathTable, state: State,
    x: float, y: float, c: float, s: float, speed: float, needed: int,
) -> tuple[int, int]:  # fmt: skip
    """`trace` with cosine, sine and speed given; gives up early when the way ends before tick `needed`."""
    row = state.head[STEP]
    end, what = _end_of_line(x, y, c, s, speed, paths.x.shape[0] - 1 - row, board.cfg[SQUARE])
    if end < needed:
        return end, what
    dx = c * speed
    dy = s * speed
    ahead = (CENTER - x) * c + (CENTER - y) * s
    off = (CENTER - x) * s - (CENTER - y) * c
    off2 = off * off
    miss = math.sqrt(off2)
    omega = board.cfg[ANGULAR_VELOCITY]
    sag = 1.0 - omega * omega / 8.0  # a chord of one tick comes this much nearer to the centre, at most
    best = (
        min(end, paths.x.shape[0] - 1 - row) + 1
    )  # a planet in the very tick of the end wins: it is tested first
    for p in range(state.head[N_PLANETS]):
        r = state.p_radius[p]
        px = state.p_x[p]
        py = state.p_y[p]
        group = state.p_comet[p]
        j = 0
        if group >= 0:
            at = state.comet_at[group]
            j = _first_comet_sweep(board, group, state.p_member[p], at, r, x, y, dx, dy, speed, best - 1)
            if j > 0:
                best = j
                what = EXPIRED if at + j >= board.comet_len[group] else p
            continue
        if board.rotates[p]:
            # The planet keeps to a ring round the centre; the line crosses that ring once or twice.
            outer = board.orbit_r[p] + r + _SLACK
            if miss > outer:
                continue
            half = math.sqrt(outer * outer - off2)
            inner = board.orbit_r[p] * sag - r - _SLACK
            if ahead + half < 0.0 or ahead - half > best * speed:
                continue
            gap = math.sqrt(inner * inner - off2) if inner > miss else 0.0
            low = max(1, int((ahead - half) / speed) + 1)
            if ahead - gap > -speed:
                high = min(best - 1, int((ahead - gap) / speed) + 1)
                j = _first_sweep(px, py, row, p, paths, True, r, x, y, dx, dy, speed, low, high)
                low = max(low, high + 1)
            if j == 0:
                low = max(low, int((ahead + gap) / speed))
                high = min(best - 1, int((ahead + half) / speed) + 1)
                j = _first_sweep(px, py, row, p, paths, True, r, x, y, dx, dy, speed, low, high)
        else:
            along = (px - x) * c + (py - y) * s
            side = (px - x) * s - (py - y) * c
            room = r * r - side * side
            if room < -_SLACK:
                continue
            half = math.sqrt(max(room, 0.0)) + _SLACK
            if along + half < 0.0 or along - half > best * speed:
                continue
            low = max(1, int((along - half) / speed))
            high = min(best - 1, int((along + half) / speed) + 2)
            j = _first_sweep(px, py, row, p, paths, False, r, x, y, dx, dy, speed, low, high)
        if j > 0:
            best = j
            what = p
    return min(best, end), what


@kernel
def trace(
    board: Board, paths: PathTable, state: State, x: float, y: float, angle: float, ships: int
) -> tuple[int, int]:
    """Where a fleet that is at (x, y) in `state` ends.

    Returns:
        (eta, where): the tick count and the planet index, or SUN, OUT, EXPIRED; (ticks left + 1, FLYING) when the
        game ends first.
    """
    speed = fleet_speed(board, ships)
    return _fly(board, paths, state, x, y, math.cos(angle), math.sin(angle), speed, 0)


@inlined
def _target_xy(board: Board, paths: PathTable, state: State, p: int, j: int) -> tuple[float, float]:
    """Position of planet `p` after j ticks; of a comet only while its path lasts."""
    group = state.p_comet[p]
    if group < 0:
        return paths.x[state.head[STEP] + j, p], paths.y[state.head[STEP] + j, p]
    at = state.comet_at[group] + j
    member = state.p_member[p]
    return board.comet_x[group, member, at], board.comet_y[group, member, at]


@kernel
def aim(board: Board, paths: PathTable, state: State, src: int, dst: int, ships: int) -> tuple[bool, float, int]:
    """Launch angle with which `ships` leaving planet `src` in this turn reach planet `dst` soonest.

    The way is clear by the engine's own test: the fleet meets neither sun, edge nor another planet (the moving
    source included) before, and a comet is still there on arrival.

    Returns:
        (ok, angle, eta): angle in radians (exactly a float32), eta in ticks; (False, 0.0, 0) when there is no
        clear way.
    """
    if src == dst or ships < 1:
        return False, 0.0, 0
    speed = fleet_speed(board, ships)
    sx = state.p_x[src]
    sy = state.p_y[src]
    start = state.p_radius[src] + LAUNCH_GAP
    r = state.p_radius[dst]
    rim = r * _GRAZE
    last = paths.x.shape[0] - 1 - state.head[STEP]
    group = state.p_comet[dst]
    if group >= 0:
        last = min(last, board.comet_len[group] - 1 - state.comet_at[group])
    moves = group >= 0 or board.rotates[dst]
    tries = 0
    x0 = state.p_x[dst]
    y0 = state.p_y[dst]
    gap0 = math.sqrt((x0 - sx) ** 2 + (y0 - sy) ** 2) - start  # from the fleet's ring to the target's centre
    for j in range(1, last + 1):
        if start + speed * (j - 1) > 1.5 * BOARD_SIZE or tries >= _MAX_TRIES:
            break
        x1, y1 = _target_xy(board, paths, state, dst, j)
        gap1 = math.sqrt((x1 - sx) ** 2 + (y1 - sy) ** 2) - start - speed * j
        if min(gap0, gap1) <= rim and max(gap0, gap1) >= -rim:
            # During this tick the fleet's ring runs over the target: three moments to aim at, earliest first.
            for moment in range(3):
                if moment == 0:
                    if gap0 <= rim:
                        continue
                    want = rim
                elif moment == 1:
                    if gap0 * gap1 > 0.0:
                        continue
                    want = 0.0
                else:
                    if abs(gap1) > rim:
                        continue
                    want = gap1
                u = 1.0
                if gap0 != gap1:
                    u = max(0.0, min(1.0, (gap0 - want) / (gap0 - gap1)))
                tx = x0 + u * (x1 - x0) - sx
                ty = y0 + u * (y1 - y0) - sy
                straight = math.atan2(ty, tx)
                width = math.asin(min(1.0, r / max(r, math.sqrt(tx * tx + ty * ty))))
                for k in range(5):
                    # A float32 loses nothing that matters (the trace below flies the rounded angle) and halves
                    # what a recorded game takes.
                    angle = np.float64(np.float32(straight + width * (0.45 * ((k + 1) // 2)) * (1 - 2 * (k % 2))))
                    c = math.cos(angle)
                    s = math.sin(angle)
                    tries += 1
                    eta, where = _fly(
                        board, paths, state, sx + c * start, sy + s * start, c, s, speed, max(1, j - 1)
                    )
                    if where == dst:
                        return True, angle, eta
                if not moves:  # a target at rest looks the same at every moment
                    return False, 0.0, 0
        x0 = x1
        y0 = y1
        gap0 = gap1
    return False, 0.0, 0
