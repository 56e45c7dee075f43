"""The official engine's scalar geometry, operation by operation, for kernels.

`x ** 2` in CPython is a call of the C library's `pow`, which differs from `x * x` in the last bit for about one
value in a thousand. LLVM folds `pow(x, 2.0)` to `x * x` wherever it can see the 2, so the exponent `two` is a
run-time value here: it comes in as an argument, and from `Board.cfg[SQUARE]` in the engine.
"""

from __future__ import annotations

import math

from td_loop.games.orbit_wars.state import CENTER
from td_loop.kernels import inlined


@inlined
def distance(ax: float, ay: float, bx: float, by: float, two: float) -> float:
    """Official `distance`."""
    return math.sqrt((ax - bx) ** two + (ay - by) ** two)


@inlined
def sun_distance(vx: float, vy: float, wx: float, wy: float, two: float) -> float:
    """Official `point_to_segment_distance` of the board's centre from the segment v-w."""
    l2 = (vx - wx) ** two + (vy - wy) ** two
    if l2 == 0.0:
        return distance(CENTER, CENTER, vx, vy, two)
    t = ((CENTER - vx) * (wx - vx) + (CENTER - vy) * (wy - vy)) / l2
    t = min(t, 1.0)
    t = max(t, 0.0)
    return distance(CENTER, CENTER, vx + t * (wx - vx), vy + t * (wy - vy), two)


@inlined
def swept_hit(
    ax: float, ay: float, bx: float, by: float, px: float, py: float, qx: float, qy: float, r: float
) -> bool:
    """Official `swept_pair_hit`: fleet A -> B and planet P -> Q come within r of each other in this turn."""
    d0x = ax - px
    d0y = ay - py
    dvx = (bx - ax) - (qx - px)
    dvy = (by - ay) - (qy - py)
    a = dvx * dvx + dvy * dvy
    b = 2.0 * (d0x * dvx + d0y * dvy)
    c = d0x * d0x + d0y * d0y - r * r
    if a < 1e-12:
        return c <= 0.0
    disc = b * b - 4.0 * a * c
    if disc < 0.0:
        return False
    sq = math.sqrt(disc)
    t1 = (-b - sq) / (2.0 * a)
    t2 = (-b + sq) / (2.0 * a)
    return t2 >= 0.0 and t1 <= 1.0
