"""Actions as agents give them, to launches as the official engine takes them.

An agent may return anything. The official environment copies it, reads everything that is not a list as no move,
and hands the rest to `process_moves`, which skips items whose length is not 3, sanitizes ships with `int()`, and
compares the planet id with `==`. So `True` is planet 1, `"12"` is 12 ships, `1.9` ships are 1, and the id stays
in the fleet as it was given. Where it raises (an item without length, `int("abc")`, an angle that `math.cos`
refuses on a launch that is otherwise legal), the exception leaves the official `env.step` and `env.run`: no seat
is blamed, the state stays as before the turn, and the episode cannot go on. `legal_launches` raises the very
same exceptions.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from td_loop.games.orbit_wars.state import N_PLANETS, Action, Position


class Launch(NamedTuple):
    """One launch that takes effect."""

    planet: int  # index of the planet it leaves
    angle: Any  # radians, the object that the agent gave
    ships: int
    from_id: Any  # the planet's id, the object that the agent gave


def _named(self: None, **entries: Any) -> dict[str, Any]:
    """What the official `Struct(**entries)` keeps; `self` is there so that the same keys are refused."""
    return {k: v for k, v in entries.items() if k != "items"}


def _plain(o: Any) -> Any:
    if isinstance(o, list):
        return [_plain(v) for v in o]
    if isinstance(o, dict):
        return _named(None, **{k: _plain(v) for k, v in o.items()})
    return o


def accepted(raw: Any) -> list[Any]:
    """The action that the official environment stores for what an agent returned.

    Raises:
        Exception: whatever copying raises on an object that cannot be copied, as `env.step` does.
    """
    data = copy.deepcopy(raw)
    plain = _plain(data) if isinstance(data, list) and not callable(data) else []
    return plain if isinstance(plain, list) else []


def legal_launches(pos: Position, seat: int, moves: list[Any]) -> list[Launch]:
    """The launches of one seat that take effect, in order, as `process_moves` finds them.

    Args:
        pos: where the game stands; left as it is.
        seat: whose launches they are. Seats do not disturb each other: each launches from its own planets.
        moves: of `accepted`.

    Raises:
        Exception: what `process_moves` raises.
    """
    s = pos.state
    n = int(s.head[N_PLANETS])
    owners = s.p_owner[:n].tolist()
    garrison = s.p_ships[:n].tolist()
    out = []
    for move in moves:
        if len(move) != 3:
            continue
        from_id, angle, ships = move
        ships = int(ships)
        planet = next((i for i in range(n) if i == from_id), None)
        if planet is None or owners[planet] != seat:
            continue
        if garrison[planet] >= ships > 0:
            garrison[planet] -= ships
            math.cos(angle)  # raises where the official engine raises
            out.append(Launch(planet, angle, ships, from_id))
    return out


def to_action(launches: Iterable[Launch]) -> Action:
    """[L, 3] rows for the engine."""
    rows = [(float(x.planet), float(x.angle), float(x.ships)) for x in launches]
    return np.array(rows, np.float64).reshape(-1, 3)


def recorded_action(raw: Any) -> Action:
    """[L, 3] rows of an action found in a replay, without its state: illegal ones may be among them.

    The engine ignores illegal rows, and no action of a finished game made the official engine raise, so what
    cannot be read as a launch is left out here.
    """
    rows = []
    for move in raw if isinstance(raw, list) else ():
        try:
            if len(move) != 3:
                continue
            from_id, angle, ships = move
            row = (float(from_id), float(angle), float(int(ships)))
        except (TypeError, ValueError, OverflowError):
            continue
        if not isinstance(from_id, str) and not isinstance(angle, str):
            rows.append(row)
    return np.array(rows, np.float64).reshape(-1, 3)
