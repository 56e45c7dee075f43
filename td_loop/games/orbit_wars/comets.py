"""Comet groups of a game: four symmetric elliptical paths, drawn and tested as the official engine does.

The official engine samples each candidate ellipse at 5,000 points, walks it in steps of the comet speed and
tests the visible part against sun and planets, up to 300 candidates a spawn. Its cost would dominate a whole
game, so both the walk and the tests are first done in a cheaper form whose error is bounded; only where a
comparison falls within that bound is the candidate done again operation by operation. The accepted paths are
always computed exactly.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.exact import distance
from td_loop.games.orbit_wars.mersenne import U32, randint, seeded, uniform
from td_loop.games.orbit_wars.state import (
    B1,
    BOARD_SIZE,
    CENTER,
    COMET_GROUP,
    COMET_RADIUS,
    F64,
    I64,
    MAX_COMET_PATH,
    SUN_RADIUS,
)
from td_loop.kernels import allocating, inlined, kernel

TRIES = 300
SAMPLES = 5000
_CLEARANCE = COMET_RADIUS + 0.5  # from static planets
_WALK_MARGIN = 1e-6
_TEST_MARGIN = 1e-6


class Homes(NamedTuple):
    """The home planets at the start of a game, [M], groups of four."""

    x: F64
    y: F64
    radius: F64
    orbit_r: F64
    orbit_angle: F64
    rotates: B1
    w: float  # angular velocity, radians a turn


def walk_table() -> F64:
    """f64[SAMPLES - 1]: sin(t)**2 halfway between neighbouring samples: the angles of `walk`."""
    half = 0.3 * math.pi + 1.4 * math.pi * (np.arange(1, SAMPLES) - 0.5) / (SAMPLES - 1)
    return np.sin(half) ** 2


@inlined
def _sample(i: int, a: float, b: float, c: float, cos_phi: float, sin_phi: float) -> tuple[float, float]:
    """Sample i of an ellipse with the sun in one focus."""
    t = 0.3 * math.pi + 1.4 * math.pi * i / (SAMPLES - 1)
    ex = c + a * math.cos(t)
    ey = b * math.sin(t)
    return CENTER + ex * cos_phi - ey * sin_phi, CENTER + ex * sin_phi + ey * cos_phi


@kernel
def walk(a: float, b: float, speed: float, table: F64, index: I64) -> int:
    """Indices of the samples that a comet visits, without the first; how many, or -1 if too close to call.

    The chord between neighbouring samples is `2 sin(dt/2) sqrt(a^2 sin^2 t + b^2 cos^2 t)` at their middle t.
    The official sum differs from this one by rounding alone: coordinates below 400 and angles below 6 radians
    make it less than 1e-12 a chord, so less than 5e-9 over all, far inside the margin.
    """
    k = 2.0 * math.sin(0.7 * math.pi / (SAMPLES - 1))
    b2 = b * b
    over = a * a - b2
    n = 0
    cum = 0.0
    target = speed
    for i in range(1, SAMPLES):
        cum += k * math.sqrt(b2 + over * table[i - 1])
        if cum >= target - _WALK_MARGIN:
            if cum < target + _WALK_MARGIN:
                return -1
            index[n] = i
            n += 1
            target += speed
    return n


@kernel
def walk_exact(
    a: float, b: float, c: float, cos_phi: float, sin_phi: float, speed: float, two: float, index: I64
) -> int:
    """`walk`, as the official engine does it."""
    n = 0
    cum = 0.0
    target = speed
    px, py = _sample(0, a, b, c, cos_phi, sin_phi)
    for i in range(1, SAMPLES):
        x, y = _sample(i, a, b, c, cos_phi, sin_phi)
        cum += distance(x, y, px, py, two)
        px, py = x, y
        if cum >= target:
            index[n] = i
            n += 1
            target += speed
    return n


@inlined
def _compare(d2: float, limit: float) -> int:
    """-1: clearly nearer than `limit`; 1: clearly not; 0: too close to call."""
    over = d2 - limit * limit
    if over > _TEST_MARGIN:
        return 1
    return -1 if over < -_TEST_MARGIN else 0


@kernel
def clear(
    xs: F64,
    ys: F64,
    homes: Homes,
    spawn: int,
) -> int:
    """1 if a path stays clear of sun and planets, -1 if it does not, 0 if too close to call.

    The four paths and the four planets of a group are quarter turns of each other, so one planet a group against
    the four paths stands for all sixteen pairs; what differs between them is rounding, 1e-12 at most.
    """
    px, py, radius, orbit_r, orbit_angle, rotates, w = homes
    unsure = False
    for k in range(len(xs)):
        u = xs[k] - CENTER
        v = ys[k] - CENTER
        verdict = _compare(u * u + v * v, SUN_RADIUS + COMET_RADIUS)
        if verdict < 0:
            return -1
        unsure |= verdict == 0
        for p in range(0, len(px), COMET_GROUP):
            if rotates[p]:
                angle = orbit_angle[p] + w * (spawn - 1 + k)
                dx = orbit_r[p] * math.cos(angle)
                dy = orbit_r[p] * math.sin(angle)
                limit = radius[p] + COMET_RADIUS
            else:
                dx = px[p] - CENTER
                dy = py[p] - CENTER
                limit = radius[p] + _CLEARANCE
            d2 = min(
                (v - dx) ** 2 + (u - dy) ** 2,
                (u + dx) ** 2 + (v - dy) ** 2,
                (u - dx) ** 2 + (v + dy) ** 2,
                (v + dx) ** 2 + (u + dy) ** 2,
            )
            verdict = _compare(d2, limit)
            if verdict < 0:
                return -1
            unsure |= verdict == 0
    return 0 if unsure else 1


@kernel
def clear_exact(
    xs: F64,
    ys: F64,
    homes: Homes,
    spawn: int,
    two: float,
) -> bool:
    """`clear`, as the official engine does it."""
    px, py, radius, orbit_r, orbit_angle, rotates, w = homes
    for k in range(len(xs)):
        x = xs[k]
        y = ys[k]
        if distance(x, y, CENTER, CENTER, two) < SUN_RADIUS + COMET_RADIUS:
            return False
        for p in range(len(px)):
            qx = px[p]
            qy = py[p]
            limit = radius[p] + _CLEARANCE
            if rotates[p]:
                angle = orbit_angle[p] + w * (spawn - 1 + k)
                qx = CENTER + orbit_r[p] * math.cos(angle)
                qy = CENTER + orbit_r[p] * math.sin(angle)
                limit = radius[p] + COMET_RADIUS
            if (
                distance(y, x, qx, qy, two) < limit
                or distance(BOARD_SIZE - x, y, qx, qy, two) < limit
                or distance(x, BOARD_SIZE - y, qx, qy, two) < limit
                or distance(BOARD_SIZE - y, BOARD_SIZE - x, qx, qy, two) < limit
            ):
                return False
    return True


@inlined
def _draw_path(mt: U32, speed: float, two: float, table: F64, index: I64, xs: F64, ys: F64) -> tuple[int, int]:
    """Draw an ellipse and walk it: points go to xs, ys.

    Returns:
        First point on the board, and how many there are up to the last one on it; 0 if none is.
    """
    e = uniform(mt, 0.75, 0.93)
    a = uniform(mt, 60.0, 150.0)
    if a * (1 - e) < SUN_RADIUS + COMET_RADIUS:
        return 0, 0
    b = a * math.sqrt(1 - e**two)
    c = a * e
    phi = uniform(mt, math.pi / 6, math.pi / 3)
    cos_phi = math.cos(phi)
    sin_phi = math.sin(phi)
    n = walk(a, b, speed, table, index)
    if n < 0:
        n = walk_exact(a, b, c, cos_phi, sin_phi, speed, two, index)
    first = -1
    last = -2
    for i in range(n + 1):
        x, y = _sample(0 if i == 0 else index[i - 1], a, b, c, cos_phi, sin_phi)
        xs[i] = x
        ys[i] = y
        if 0 <= x <= BOARD_SIZE and 0 <= y <= BOARD_SIZE:
            if first < 0:
                first = i
            last = i
    return first, last - first + 1


@inlined
def _write_copies(xs: F64, ys: F64, out_x: F64, out_y: F64) -> None:
    """The four paths, a quarter turn apart."""
    for k in range(len(xs)):
        x = xs[k]
        y = ys[k]
        out_x[0, k] = y
        out_y[0, k] = x
        out_x[1, k] = BOARD_SIZE - x
        out_y[1, k] = y
        out_x[2, k] = x
        out_y[2, k] = BOARD_SIZE - y
        out_x[3, k] = BOARD_SIZE - y
        out_y[3, k] = BOARD_SIZE - x


@allocating
def make_group(
    key: U32, homes: Homes, spawn: int, speed: float, two: float, table: F64, out_x: F64, out_y: F64
) -> tuple[int, int]:
    """Draw one comet group.

    Args:
        key: seed words of the spawn's own generator.
        homes: the home planets.
        spawn: the spawn step (50, 150, ...).
        speed: units a turn along the path.
        two: 2.0 (see `exact`).
        table: of `walk_table`.
        out_x, out_y: [COMET_GROUP, MAX_COMET_PATH] the paths are written here.

    Returns:
        Points on each path (0: all tries failed, no group) and ships of each comet.
    """
    mt = seeded(key)
    index = np.empty(SAMPLES, np.int64)
    xs = np.empty(SAMPLES)
    ys = np.empty(SAMPLES)
    for _ in range(TRIES):
        first, length = _draw_path(mt, speed, two, table, index, xs, ys)
        if length < 5 or length > MAX_COMET_PATH:
            continue
        seen_x = xs[first : first + length]
        seen_y = ys[first : first + length]
        verdict = clear(seen_x, seen_y, homes, spawn)
        if verdict < 0 or (verdict == 0 and not clear_exact(seen_x, seen_y, homes, spawn, two)):
            continue
        _write_copies(seen_x, seen_y, out_x, out_y)
        ships = randint(mt, 1, 99)
        for _ in range(3):
            ships = min(ships, randint(mt, 1, 99))
        return length, ships
    return 0, 0
