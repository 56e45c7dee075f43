"""A player of Orbit Wars in plain Python: milliseconds a move, nothing to compile, the standard library alone.

It plays in a submission whenever the search cannot: before its kernels are compiled, when the clock runs short, or
on an observation that the search refuses. This file is copied into submissions as it is and loaded by its path.

Every planet's fate is guessed from the fleets that fly towards it; then what brings the most production for the
ships it takes is captured or defended first, by one planet each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

_CENTER = 50.0
_SUN = 10.5  # radius, and room to spare
_ORBITS_WITHIN = 50.0  # planets that end nearer to the centre than this go round it
_HORIZON = 60.0  # turns for which a captured planet's production counts
_REACH = 35.0  # longest flight, turns
_ENEMY = 1.6  # what production taken from an enemy counts beside a neutral one's


class _Planet(NamedTuple):
    id: int
    owner: int
    x: float
    y: float
    radius: float
    ships: int
    production: int


class _Fate(NamedTuple):
    """Ships under way to a planet, and the turns until the first hostile ones land."""

    mine: int
    hostile: int
    first: float


def decide(obs: Mapping[str, Any], episode_steps: int = 500) -> list[list[Any]]:
    """Moves `[planet id, angle (radians), ships]` of the seat that `obs` (an official observation) is of.

    Raises:
        Exception: whatever reading a malformed observation raises.
    """
    seat, step = int(obs["player"]), int(obs.get("step") or 0)
    turn = float(obs["angular_velocity"])
    comets = {int(i) for i in obs.get("comet_planet_ids") or ()}
    planets = [_Planet(int(i), int(o), x, y, r, int(s), int(p)) for i, o, x, y, r, s, p in obs["planets"]]
    homes = [p for p in planets if p.id not in comets]
    fates = _fates(homes, obs.get("fleets") or (), seat, turn)
    free = {p.id: _free(p, fates.get(p.id)) for p in planets if p.owner == seat}
    horizon = min(_HORIZON, episode_steps - 1.0 - step)

    options = []
    for target in homes:
        fate = fates[target.id]
        for source in planets:
            ships = free.get(source.id, 0)
            if ships < 1 or source.id == target.id:
                continue
            eta, angle = _flight(source, target, ships, turn)
            need = _need(target, fate, seat, eta)
            if not 0 < need <= ships or eta > _REACH:
                continue
            eta, angle = _flight(source, target, need, turn)
            need = _need(target, fate, seat, eta)
            if not 0 < need <= ships or eta > _REACH:
                continue
            gain = target.production * (horizon - eta) * (1.0 if target.owner < 0 else _ENEMY)
            lost = need if target.owner < 0 else 0
            if gain > lost and _is_clear(source, target, eta, angle, homes, turn):
                options.append(((gain - lost) / (need + 5.0), source.id, target.id, angle, need))

    moves: list[list[Any]] = []
    taken: set[int] = set()
    for _, source_id, target_id, angle, need in sorted(options, reverse=True):
        if target_id not in taken and free[source_id] >= need:
            free[source_id] -= need
            taken.add(target_id)
            moves.append([source_id, angle, need])
    return moves


def _speed(ships: int) -> float:
    return float(min(6.0, 1.0 + 5.0 * (math.log(max(ships, 1)) / math.log(1000)) ** 1.5))


def _at(p: _Planet, turns: float, turn: float) -> tuple[float, float]:
    """Where a planet stands `turns` from now."""
    dx, dy = p.x - _CENTER, p.y - _CENTER
    if math.hypot(dx, dy) + p.radius >= _ORBITS_WITHIN:
        return p.x, p.y
    c, s = math.cos(turn * turns), math.sin(turn * turns)
    return _CENTER + c * dx - s * dy, _CENTER + s * dx + c * dy


def _flight(source: _Planet, target: _Planet, ships: int, turn: float) -> tuple[float, float]:
    """(turns, angle) of a flight to where the target will be."""
    eta, angle = 1.0, 0.0
    for _ in range(4):
        x, y = _at(target, eta, turn)
        way = math.hypot(x - source.x, y - source.y) - source.radius - target.radius
        angle = math.atan2(y - source.y, x - source.x)
        eta = float(max(1, math.ceil(way / _speed(ships))))
    return eta, angle


def _is_clear(
    source: _Planet, target: _Planet, eta: float, angle: float, planets: list[_Planet], turn: float
) -> bool:
    """Whether neither the sun nor a planet is in the way."""
    x, y = _at(target, eta, turn)
    way = math.hypot(x - source.x, y - source.y)
    if _distance_to_way(source, angle, way, _CENTER, _CENTER) < _SUN:
        return False
    for p in planets:
        if p.id in (source.id, target.id):
            continue
        # Roughly when the fleet passes: as far along the way as the planet is away now.
        share = min(1.0, math.hypot(p.x - source.x, p.y - source.y) / max(way, 1e-9))
        px, py = _at(p, eta * share, turn)
        if _distance_to_way(source, angle, way, px, py) < p.radius + 0.3:
            return False
    return True


def _distance_to_way(source: _Planet, angle: float, way: float, x: float, y: float) -> float:
    c, s = math.cos(angle), math.sin(angle)
    dx, dy = x - source.x, y - source.y
    along = min(max(dx * c + dy * s, 0.0), way)
    return math.hypot(dx - along * c, dy - along * s)


def _fates(planets: list[_Planet], fleets: Any, seat: int, turn: float) -> dict[int, _Fate]:
    """What flies to each planet, every fleet counted for the first planet that its way meets."""
    fates = {p.id: _Fate(0, 0, math.inf) for p in planets}
    for _, owner, x, y, angle, _, ships in fleets:
        speed, c, s = _speed(int(ships)), math.cos(angle), math.sin(angle)
        hit, first = None, math.inf
        for p in planets:
            eta = math.hypot(p.x - x, p.y - y) / speed
            px, py = _at(p, eta, turn)
            dx, dy = px - x, py - y
            along = dx * c + dy * s
            if along > 0.0 and abs(dx * s - dy * c) < p.radius + 0.3 and along / speed < first:
                hit, first = p.id, along / speed
        if hit is not None:
            fate = fates[hit]
            if int(owner) == seat:
                fates[hit] = fate._replace(mine=fate.mine + int(ships))
            else:
                fates[hit] = fate._replace(hostile=fate.hostile + int(ships), first=min(fate.first, first))
    return fates


def _free(p: _Planet, fate: _Fate | None) -> int:
    """Ships that one's own planet can do without."""
    if fate is None or fate.hostile == 0:
        return p.ships
    return max(0, min(p.ships, p.ships + fate.mine + int(p.production * fate.first) - fate.hostile - 1))


def _need(target: _Planet, fate: _Fate, seat: int, eta: float) -> int:
    """Ships to land after `eta` turns to take the planet, or to hold it; 0 or less when none are needed."""
    if target.owner == seat:
        return (
            fate.hostile + 1 - target.ships - fate.mine - int(target.production * fate.first)
            if fate.hostile
            else 0
        )
    grown = target.production * eta if target.owner >= 0 else 0.0
    return int(target.ships + grown) + 1 + fate.hostile - fate.mine
