"""Which moves of a recorded action the official `process_moves` accepted, given the planets that it saw."""

from __future__ import annotations

import contextlib
from typing import Any

from td_loop.games.orbit_wars.launches import launch_of


def accepted_moves(
    action: Any, seat: int, planets: list[list[Any]], index_of: dict[float, int] | None
) -> list[tuple[float, float, float]]:
    """Launches (planet index, angle, ships) that took effect, in order.

    What would make the official engine raise cannot stand in a game that went on, so such a move is no move.

    Args:
        action: the recorded action, any JSON value.
        seat: who acted.
        planets: the observation's planets.
        index_of: planet index by id, where that is not the id itself.
    """
    if not isinstance(action, list):
        return []
    owners, garrison = [planet[1] for planet in planets], [planet[5] for planet in planets]
    made: list[tuple[float, float, float]] = []
    for move in action:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            x = launch_of(move, seat, lambda i: _index(i, len(planets), index_of), owners, garrison)
            if x is not None:
                made.append((float(x.planet), float(x.angle), float(x.ships)))
    return made


def _index(from_id: Any, n: int, index_of: dict[float, int] | None) -> int | None:
    """The row of the planet whose id equals `from_id` as Python compares them (1.0 and True equal 1)."""
    if not isinstance(from_id, int | float):
        return None
    if index_of is not None:
        return index_of.get(from_id)
    return int(from_id) if 0 <= from_id < n and from_id == int(from_id) else None
