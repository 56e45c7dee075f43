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
from collections.abc import Callable, Iterable, Sequence
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


def launch_of(
    move: Any, seat: int, index_of: Callable[[Any], int | None], owners: Sequence[int], garrison: list[int]
) -> Launch | None:
    """The launch that one move of a list makes in the official `process_moves`, or None.

    Args:
        move: as of `accepted`.
        seat: who moves.
        index_of: the planet whose id equals the one given, by Python's `==`; None if there is none.
        owners: seat of each planet.
        garrison: ships on each planet; those that are launched are taken off.

    Raises:
        Exception: what `process_moves` raises; `garrison` is as before then.
    """
    if len(move) != 3:
        return None
    from_id, angle, ships = move
    ships = int(ships)
    planet = index_of(from_id)
    if planet is None or owners[planet] != seat or not garrison[planet] >= ships > 0:
        return None
    math.cos(angle)  # raises where the official engine raises
    garrison[planet] -= ships
    return Launch(planet, angle, ships, from_id)


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
    owners, garrison = s.p_owner[:n].tolist(), s.p_ships[:n].tolist()

    def index_of(from_id: Any) -> int | None:
        return next((i for i in range(n) if i == from_id), None)

    made = (launch_of(move, seat, index_of, owners, garrison) for move in moves)
    return [x for x in made if x is not None]


def to_action(launches: Iterable[Launch]) -> Action:
    """[L, 3] rows for the engine."""
    rows = [(float(x.planet), float(x.angle), float(x.ships)) for x in launches]
    return np.array(rows, np.float64).reshape(-1, 3)
