"""Which moves of a recorded action the official `process_moves` accepted, given the planets that it saw."""

from __future__ import annotations

import math
from typing import Any


def accepted_moves(
    action: Any, seat: int, planets: list[list[Any]], index_of: dict[float, int] | None
) -> list[tuple[float, float, float]]:
    """Launches (planet index, angle, ships) that took effect, in order.

    A move counts when it has three entries, `seat` owns the planet, and the garrison that its earlier moves left
    covers `int(ships)` > 0. What would make the official engine raise cannot stand in a game that went on, so
    such a move is no move.

    Args:
        action: the recorded action, any JSON value.
        seat: who acted.
        planets: the observation's planets.
        index_of: planet index by id, where that is not the id itself.
    """
    if not isinstance(action, list):
        return []
    accepted: list[tuple[float, float, float]] = []
    garrison: dict[int, int] = {}
    for move in action:
        try:
            from_id, angle, ships = move
            ships = int(ships)
            math.cos(angle)
            index = _index(from_id, len(planets), index_of)
        except (TypeError, ValueError, OverflowError):
            continue
        if index is None or ships <= 0 or planets[index][1] != seat:
            continue
        left = garrison.get(index, planets[index][5])
        if left >= ships:
            garrison[index] = left - ships
            accepted.append((float(index), float(angle), float(ships)))
    return accepted


def _index(from_id: Any, n: int, index_of: dict[float, int] | None) -> int | None:
    """The row of the planet whose id equals `from_id` as Python compares them (1.0 and True equal 1)."""
    if not isinstance(from_id, int | float):
        return None
    if index_of is not None:
        return index_of.get(from_id)
    return int(from_id) if 0 <= from_id < n and from_id == int(from_id) else None
