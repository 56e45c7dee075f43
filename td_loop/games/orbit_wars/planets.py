"""The official map generator as a kernel: groups of four planets a quarter turn apart, from the same draws."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.exact import distance
from td_loop.games.orbit_wars.mersenne import U32, randint, seeded, uniform
from td_loop.games.orbit_wars.state import BOARD_SIZE, CENTER, F64, I64, ROTATION_RADIUS_LIMIT, SUN_RADIUS
from td_loop.kernels import allocating, inlined

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


class Planets(NamedTuple):
    """The planets drawn so far, all arrays [CAPACITY]."""

    x: F64
    y: F64
    radius: F64
    ships: I64
    prod: I64
    orbit: F64  # distance from the sun


@allocating
def make_planets() -> Planets:
    """Room for the planets of one map."""
    return Planets(
        np.empty(CAPACITY),
        np.empty(CAPACITY),
        np.empty(CAPACITY),
        np.empty(CAPACITY, np.int64),
        np.empty(CAPACITY, np.int64),
        np.empty(CAPACITY),
    )


@inlined
def _apart(drawn: Planets, n: int, qx: F64, qy: F64, r: float, two: float) -> bool:
    """Whether four planets of radius `r` keep their distance from the first `n` at the start of the game."""
    for i in range(4):
        for j in range(n):
            if _too_near(drawn.x[j], drawn.y[j], qx[i], qy[i], drawn.radius[j] + r + CLEARANCE, two):
                return False
    return True


@inlined
def _apart_in_orbit(drawn: Planets, n: int, qx: F64, qy: F64, r: float, two: float) -> bool:
    """The same of a ring and a fixed planet: in a full turn they come as near as their distances from the sun."""
    for i in range(4):
        orbit = distance(qx[i], qy[i], CENTER, CENTER, two)
        rotates = orbit + r < ROTATION_RADIUS_LIMIT
        for j in range(n):
            if rotates != (drawn.orbit[j] + drawn.radius[j] < ROTATION_RADIUS_LIMIT) and (
                abs(orbit - drawn.orbit[j]) < r + drawn.radius[j] + CLEARANCE
            ):
                return False
    return True


@inlined
def _add(drawn: Planets, n: int, qx: F64, qy: F64, r: float, ships: int, prod: int, two: float) -> int:
    """Append a group; the number of planets then."""
    for i in range(4):
        drawn.x[n + i], drawn.y[n + i], drawn.radius[n + i] = qx[i], qy[i], r
        drawn.ships[n + i], drawn.prod[n + i] = ships, prod
        drawn.orbit[n + i] = distance(qx[i], qy[i], CENTER, CENTER, two)
    return n + 4


@inlined
def _draw_fixed(mt: U32, two: float, drawn: Planets, qx: F64, qy: F64) -> int:
    """Draw MIN_STATIC_GROUPS groups too far out to rotate; how many planets that are."""
    n = 0
    for _ in range(ATTEMPTS):
        if n >= 4 * MIN_STATIC_GROUPS:
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
        if _apart(drawn, n, qx, qy, r, two):
            n = _add(drawn, n, qx, qy, r, garrison, p, two)
    return n


@inlined
def _draw_others(mt: U32, two: float, drawn: Planets, n: int, wanted: int, qx: F64, qy: F64) -> int:
    """Add groups anywhere to the first `n` planets until there are `wanted`, some of them rotating.

    Returns:
        Number of planets.
    """
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
        if _apart(drawn, n, qx, qy, r, two) and _apart_in_orbit(drawn, n, qx, qy, r, two):
            has_orbiting |= orbital + r < ROTATION_RADIUS_LIMIT
            n = _add(drawn, n, qx, qy, r, garrison, p, two)
    return n


@allocating
def draw_map(key: U32, two: float, drawn: Planets) -> tuple[float, int, int]:
    """Draw angular velocity, planets and home group of one seed.

    Args:
        key: seed words (`mersenne.seed_key`).
        two: 2.0 (see `exact`).
        drawn: of `make_planets`, filled here.

    Returns:
        Angular velocity (radians a turn), number of planets, first planet of the home group.
    """
    mt = seeded(key)
    w = uniform(mt, 0.025, 0.05)
    wanted = 4 * randint(mt, MIN_GROUPS, MAX_GROUPS)
    qx, qy = np.empty(4), np.empty(4)
    n = _draw_fixed(mt, two, drawn, qx, qy)
    n = _draw_others(mt, two, drawn, n, wanted, qx, qy)
    home = 4 * randint(mt, 0, n // 4 - 1) if n >= 4 else 0
    return w, n, home
