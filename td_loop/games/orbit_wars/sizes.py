"""How many ships a policy's option sends: four sizes, each found from the forecast."""

from __future__ import annotations

from td_loop.games.orbit_wars.forecast import TICKS, Forecast, holding, shortfall, spare
from td_loop.games.orbit_wars.propose import margin
from td_loop.kernels import inlined, kernel

SIZES = ("need", "half", "spare", "all")
"""Just enough to take or to hold the target, half of what can be spared, all of that, the whole garrison."""
NEED, HALF, SPARE, ALL = range(4)


@kernel
def need_at(fc: Forecast, dst: int, seat: int, eta: int) -> int:
    """Ships of `seat` to land on `dst` at tick `eta` to take it, or to hold it; 0: none are needed."""
    if eta >= fc.gone[dst]:
        return 0
    owner, there = holding(fc, dst, eta)
    if owner != seat:
        return int(there + 1 + margin(owner, there + 1))
    need, _, _ = shortfall(fc, dst, seat, eta, fc.span[TICKS])
    return need


@inlined
def _other(ships: int, a: int, b: int) -> int:
    """`ships`, or 0 if they are as many as `a` or `b`."""
    if ships == a:
        return 0
    return 0 if ships == b else ships


@inlined
def size_of(fc: Forecast, src: int, free: int, need: int, size: int) -> int:
    """Ships of one size that leave `src`; 0 where that size is nothing, or as much as one before it.

    Args:
        fc: the forecast.
        src: the planet that they leave.
        free: `spare` of it.
        need: of `need_at`.
        size: index of SIZES.
    """
    have = fc.ships[src]
    least = need if need <= have else 0
    half = (free + 1) // 2
    if size == NEED:
        return least
    if size == HALF:
        return _other(half, least, free)
    if size == SPARE:
        return _other(free, least, 0)
    return _other(have, least, free)


@kernel
def ships_of(fc: Forecast, src: int, dst: int, seat: int, eta: int, size: int) -> int:
    """Ships that an option sends as things stand in `fc`, were they to land at `eta`; 0: that option is closed."""
    return int(size_of(fc, src, spare(fc, src), need_at(fc, dst, seat, eta), size))
