"""The official map generator as a kernel: groups of four planets a quarter turn apart, from the same draws."""

from __future__ import annotations

import math

import numpy as np

from td_loop.games.orbit_wars.exact import distance
from td_loop.games.orbit_wars.mersenne import U32, randint, seeded, uniform
from td_loop.games.orbit_wars.state import BOARD_SIZE, CENTER, F64, I64, ROTATION_RADIUS_LIMIT, SUN_RADIUS
from td_loop.kernels import inlined, kernel

CLEARANCE = 7
MIN_GROUPS = 5
MAX_GROUPS = 10
MIN_STATIC_GROUPS = 3
ATTEMPTS = 5000
CAPACITY = 256  # planets; radius 1 and clearance 7 leave no room for half as many on the board

_NEAR = 1e-6


@inlined
def _too_near(ax: float, ay: float, bx: float, by: float, limit: float, two: float) -> bool:
    """`distance(a, b) < limit`; the slow exact squares only where the plain ones cannot decide."""
    d2 = (ax - bx) * (ax - bx) + (ay - by) * (ay - by) - limit * limit
    if d2 > _NEAR:
        return False
    return d2 < -_NEAR or distance(ax, ay, bx, by, two) < limit


@inlined
def _copies(x: float, y: float, qx: F64, qy: F64) -> None:
    qx[0], qy[0] = y, x
    qx[1], qy[1] = BOARD_SIZE - x, y
    qx[2], qy[2] = x, BOARD_SIZE - y
    qx[3], qy[3] = BOARD_SIZE - y, BOARD_SIZE - x


@kernel
def draw_map(key: U32, two: float, px: F64, py: F64, radius: F64, ships: I64, prod: I64) -> tuple[float, int, int]:
    """Draw angular velocity, planets and home group of one seed.

    Args:
        key: seed words (`mersenne.seed_key`).
        two: 2.0 (see `exact`).
        px, py, radius, ships, prod: [CAPACITY] filled here.

    Returns:
        Angular velocity (radians a turn), number of planets, first planet of the home group.
    """
    mt = seeded(key)
    w = uniform(mt, 0.025, 0.05)
    wanted = 4 * randint(mt, MIN_GROUPS, MAX_GROUPS)
    qx = np.empty(4)
    qy = np.empty(4)
    orbit = np.empty(CAPACITY)
    n = 0

    static_groups = 0
    for _ in range(ATTEMPTS):
        if static_groups >= MIN_STATIC_GROUPS:
            break
        p = randint(mt, 1, 5)
        r = 1 + math.log(p)
        angle = uniform(mt, 0.0, math.pi / 2)
        low = ROTATION_RADIUS_LIMIT - r
        high = (BOARD_SIZE - CENTER - r) / max(math.cos(angle), math.sin(angle))
        if low > high:
            continue
        orbital = uniform(mt, low, high)
        x = CENTER + orbital * math.cos(angle)
        y = CENTER + orbital * math.sin(angle)
        if x + r > BOARD_SIZE or x - r < 0 or y + r > BOARD_SIZE or y - r < 0:
            continue
        if (BOARD_SIZE - x) - r < 0 or (BOARD_SIZE - y) - r < 0:
            continue
        if (x - CENTER) < r + 5 or (y - CENTER) < r + 5:
            continue
        garrison = min(randint(mt, 5, 99), randint(mt, 5, 99))
        _copies(x, y, qx, qy)
        valid = True
        for i in range(4):
            for j in range(n):
                if _too_near(px[j], py[j], qx[i], qy[i], radius[j] + r + CLEARANCE, two):
                    valid = False
                    break
            if not valid:
                break
        if valid:
            for i in range(4):
                px[n], py[n], radius[n], ships[n], prod[n] = qx[i], qy[i], r, garrison, p
                orbit[n] = distance(qx[i], qy[i], CENTER, CENTER, two)
                n += 1
            static_groups += 1

    attempts = 0
    has_orbiting = False
    while n < wanted or (not has_orbiting and attempts < ATTEMPTS):
        attempts += 1
        if attempts >= ATTEMPTS or n + 4 > CAPACITY:
            break
        p = randint(mt, 1, 5)
        r = 1 + math.log(p)
        x = uniform(mt, CENTER + 15, BOARD_SIZE - r - 5)
        y = uniform(mt, CENTER + 15, BOARD_SIZE - r - 5)
        orbital = distance(x, y, CENTER, CENTER, two)
        if orbital < SUN_RADIUS + r + 10:
            continue
        if orbital + r >= ROTATION_RADIUS_LIMIT and (
            x + r > BOARD_SIZE or x - r < 0 or y + r > BOARD_SIZE or y - r < 0
        ):
            continue
        garrison = randint(mt, 5, 30)
        _copies(x, y, qx, qy)
        valid = True
        for i in range(4):
            q_orbit = distance(qx[i], qy[i], CENTER, CENTER, two)
            q_rotates = q_orbit + r < ROTATION_RADIUS_LIMIT
            for j in range(n):
                if _too_near(px[j], py[j], qx[i], qy[i], radius[j] + r + CLEARANCE, two):
                    valid = False
                    break
                # A ring and a fixed planet: over a full turn they come as near as their distances from the sun.
                if q_rotates != (orbit[j] + radius[j] < ROTATION_RADIUS_LIMIT) and (
                    abs(q_orbit - orbit[j]) < r + radius[j] + CLEARANCE
                ):
                    valid = False
                    break
            if not valid:
                break
        if valid:
            if orbital + r < ROTATION_RADIUS_LIMIT:
                has_orbiting = True
            for i in range(4):
                px[n], py[n], radius[n], ships[n], prod[n] = qx[i], qy[i], r, garrison, p
                orbit[n] = distance(qx[i], qy[i], CENTER, CENTER, two)
                n += 1

    home = 4 * randint(mt, 0, n // 4 - 1) if n >= 4 else 0
    return w, n, home
