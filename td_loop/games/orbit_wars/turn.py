"""The rules of one turn, bit for bit those of the official engine, as a kernel over flat arrays.

Order of a turn: comets that ran out leave, new comets appear, launches in seat order, production, movement of
planets and comets, movement of fleets with collisions along the way, combat, end of game.

Two oddities of the official engine are kept: a fleet that hits a comet which leaves in the same turn vanishes
without combat, and a fleet launched at an angle of NaN vanishes at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.board import planet_xy
from td_loop.games.orbit_wars.exact import sun_distance, swept_hit
from td_loop.games.orbit_wars.state import (
    BOARD_SIZE,
    CENTER,
    COMET_GROUP,
    COMET_PRODUCTION,
    COMET_RADIUS,
    DONE,
    EPISODE,
    F64,
    I64,
    MAX_SPEED,
    N_FLEETS,
    N_PLANETS,
    NEXT_FLEET_ID,
    SQUARE,
    STEP,
    SUN_RADIUS,
    Board,
    State,
)
from td_loop.kernels import allocating, inlined, kernel

MAX_SEATS = 4
OFF_BOARD = -99.0  # where a comet waits between its spawn and its first step, within one turn
_LOG_1000 = math.log(1000)
_MARGIN = 0.01
_SUN_MARGIN = 1e-6


class Scratch(NamedTuple):
    """Buffers of one turn, so that a loop over turns allocates nothing. Sizes are those of the state."""

    new_x: F64  # [C] end of each planet's way
    new_y: F64  # [C]
    reach: F64  # [C] how far from its start a planet can touch a fleet that stands still; -inf: it touches none
    arrivals: I64  # [C, MAX_SEATS] ships that reach each planet in this turn


@allocating
def make_scratch(capacity: int) -> Scratch:
    """Buffers for states of planet capacity `capacity`."""
    return Scratch(
        np.empty(capacity), np.empty(capacity), np.empty(capacity), np.zeros((capacity, MAX_SEATS), np.int64)
    )


@inlined
def fleet_speed(board: Board, ships: int) -> float:
    """Units a turn of a fleet of `ships` >= 1."""
    if ships < len(board.speed):
        return float(board.speed[ships])
    limit = float(board.cfg[MAX_SPEED])
    speed = 1.0 + (limit - 1.0) * (math.log(ships) / _LOG_1000) ** 1.5
    return float(min(speed, limit))


@kernel
def remove_expired(board: Board, s: State) -> None:
    """Drop the comets whose path has run out; the planets behind them move up."""
    n = s.head[N_PLANETS]
    kept = 0
    for i in range(n):
        g = s.p_comet[i]
        if g >= 0 and s.comet_at[g] >= board.comet_len[g]:
            continue
        if kept < i:
            s.p_owner[kept] = s.p_owner[i]
            s.p_x[kept] = s.p_x[i]
            s.p_y[kept] = s.p_y[i]
            s.p_radius[kept] = s.p_radius[i]
            s.p_ships[kept] = s.p_ships[i]
            s.p_prod[kept] = s.p_prod[i]
            s.p_comet[kept] = g
            s.p_member[kept] = s.p_member[i]
        kept += 1
    s.head[N_PLANETS] = kept


@inlined
def spawn_comets(board: Board, s: State) -> None:
    """Append the comet group whose spawn step is the next step, if there is one."""
    for g in range(len(board.comet_spawn)):
        if board.comet_spawn[g] != s.head[STEP] + 1 or board.comet_len[g] == 0:
            continue
        n = s.head[N_PLANETS]
        if n + COMET_GROUP > len(s.p_owner):
            raise ValueError("no room for a comet group: planet capacity is too small")
        for i in range(COMET_GROUP):
            s.p_owner[n + i] = -1
            s.p_x[n + i] = OFF_BOARD
            s.p_y[n + i] = OFF_BOARD
            s.p_radius[n + i] = COMET_RADIUS
            s.p_ships[n + i] = board.comet_ships[g]
            s.p_prod[n + i] = COMET_PRODUCTION
            s.p_comet[n + i] = g
            s.p_member[n + i] = i
        s.comet_at[g] = -1
        s.head[N_PLANETS] = n + COMET_GROUP


@inlined
def launch(s: State, seat: int, planet: float, angle: float, ships: float) -> bool:
    """Make one launch if it is legal; say whether it was."""
    n = s.head[N_PLANETS]
    if not (planet >= 0.0 and planet < n and ships >= 1.0):
        return False
    p = int(planet)
    if p != planet or s.p_owner[p] != seat or ships >= s.p_ships[p] + 1.0 or math.isinf(angle):
        return False
    f = s.head[N_FLEETS]
    if f >= len(s.f_id):
        raise ValueError("no room for a launch: fleet capacity is too small")
    k = int(ships)
    s.p_ships[p] -= k
    out = s.p_radius[p] + 0.1
    s.f_id[f] = s.head[NEXT_FLEET_ID]
    s.f_owner[f] = seat
    s.f_x[f] = s.p_x[p] + math.cos(angle) * out
    s.f_y[f] = s.p_y[p] + math.sin(angle) * out
    s.f_angle[f] = angle
    s.f_from[f] = p
    s.f_ships[f] = k
    s.head[N_FLEETS] = f + 1
    s.head[NEXT_FLEET_ID] += 1
    return True


@inlined
def move_planets(board: Board, s: State, w: Scratch) -> None:
    """Production, and where every planet stands at the end of the turn (planets stay where they are for now)."""
    n = s.head[N_PLANETS]
    advanced = 0  # bit g: group g has taken its step of this turn
    for i in range(n):
        if s.p_owner[i] != -1:
            s.p_ships[i] += s.p_prod[i]
        x = s.p_x[i]
        y = s.p_y[i]
        touches = True
        g = s.p_comet[i]
        if g < 0:
            if board.rotates[i]:
                x, y = planet_xy(board, i, s.head[STEP] + 1)
        else:
            if not advanced >> g & 1:
                s.comet_at[g] += 1
                advanced |= 1 << g
            if s.comet_at[g] < board.comet_len[g]:
                # On its first step a comet appears: it comes from nowhere and touches nothing.
                touches = x >= 0
                x = board.comet_x[g, s.p_member[i], s.comet_at[g]]
                y = board.comet_y[g, s.p_member[i], s.comet_at[g]]
        w.new_x[i] = x
        w.new_y[i] = y
        w.reach[i] = abs(x - s.p_x[i]) + abs(y - s.p_y[i]) + s.p_radius[i] + _MARGIN if touches else -math.inf
        for seat in range(MAX_SEATS):
            w.arrivals[i, seat] = 0


@inlined
def _lost(x: float, y: float, nx: float, ny: float, two: float) -> bool:
    """The fleet left the board or flew into the sun."""
    if not (0 <= nx <= BOARD_SIZE and 0 <= ny <= BOARD_SIZE):
        return True
    ux = nx - x
    uy = ny - y
    dx = x - CENTER
    dy = y - CENTER
    far = SUN_RADIUS + _MARGIN + abs(ux) + abs(uy)
    if abs(dx) > far or abs(dy) > far:
        return False
    # The distance with plain squares differs from the official one by rounding alone (1e-13 on this board), so it
    # decides unless it is that close to the rim; below, slow `pow` calls do it the official way.
    l2 = ux * ux + uy * uy
    if l2 > 1e-6:
        t = min(max(-(dx * ux + dy * uy) / l2, 0.0), 1.0)
        qx = dx + t * ux
        qy = dy + t * uy
        over = qx * qx + qy * qy - SUN_RADIUS * SUN_RADIUS
        if over > _SUN_MARGIN:
            return False
        if over < -_SUN_MARGIN:
            return True
    return sun_distance(x, y, nx, ny, two) < SUN_RADIUS


@inlined
def move_fleets(board: Board, s: State, w: Scratch) -> None:
    """Move all fleets; count those that reach a planet in `arrivals`, drop them and the lost ones.

    A fleet and a planet are compared exactly only if their boxes come near each other. A pair left out has a
    distance above radius + _MARGIN in all of the turn, and the official test cannot call that a hit: its roots t
    are where the distance equals the radius, so they lie outside [0, 1] by _MARGIN / v at least, v the relative
    speed, while rounding moves them by less than 4e-8 d / v (the square root of 32 units in the last place, the
    worst case of a vanishing discriminant), d the distance at the start: 6e-6 / v on this board. States with
    coordinates beyond 1e4 are refused where states come in (`observe`).
    """
    n = s.head[N_PLANETS]
    two = board.cfg[SQUARE]
    p_x = s.p_x
    p_y = s.p_y
    reach = w.reach
    kept = 0
    for f in range(s.head[N_FLEETS]):
        angle = s.f_angle[f]
        ships = s.f_ships[f]
        speed = fleet_speed(board, ships)
        x = s.f_x[f]
        y = s.f_y[f]
        nx = x + math.cos(angle) * speed
        ny = y + math.sin(angle) * speed
        own = abs(nx - x) + abs(ny - y)
        near = 0
        for i in range(n):  # no branch, no exit: this loop becomes vector instructions
            near += max(abs(x - p_x[i]), abs(y - p_y[i])) <= reach[i] + own
        hit = False
        for i in range(n if near else 0):
            # One branch for both axes: which of them is the far one is a coin toss to the processor.
            if max(abs(x - p_x[i]), abs(y - p_y[i])) > reach[i] + own:
                continue
            if swept_hit(x, y, nx, ny, p_x[i], p_y[i], w.new_x[i], w.new_y[i], s.p_radius[i]):
                w.arrivals[i, s.f_owner[f]] += ships
                hit = True
                break
        if hit or _lost(x, y, nx, ny, two):
            continue
        s.f_id[kept] = s.f_id[f]
        s.f_owner[kept] = s.f_owner[f]
        s.f_x[kept] = nx
        s.f_y[kept] = ny
        s.f_angle[kept] = angle
        s.f_from[kept] = s.f_from[f]
        s.f_ships[kept] = ships
        kept += 1
    s.head[N_FLEETS] = kept


@inlined
def fight(owner: int, garrison: int, arrivals: I64, planet: int) -> tuple[int, int]:
    """Owner and garrison of a planet after combat.

    The largest force arriving loses as many ships as the second largest has; what is left lands (joins the
    garrison of its own seat, or fights it). Two equal largest forces destroy each other, and all others with
    them.

    Args:
        owner: seat or -1.
        garrison: ships on the planet, this turn's production included.
        arrivals: [C, MAX_SEATS] ships arriving at each planet, by seat.
        planet: the planet's row of `arrivals`.
    """
    top = 0
    second = 0
    winner = -1
    for seat in range(MAX_SEATS):
        ships = arrivals[planet, seat]
        if ships > top:
            second = top
            top = ships
            winner = seat
        elif ships > second:
            second = ships
    left = top - second
    if left > 0:
        if owner == winner:
            garrison += left
        else:
            garrison -= left
            if garrison < 0:
                owner = winner
                garrison = -garrison
    return owner, garrison


@inlined
def settle(board: Board, s: State, w: Scratch) -> None:
    """Place planets, resolve combat, drop comets that ran out, count the step, see whether the game is over."""
    comets = False
    for i in range(s.head[N_PLANETS]):
        s.p_x[i] = w.new_x[i]
        s.p_y[i] = w.new_y[i]
        if w.arrivals[i, 0] | w.arrivals[i, 1] | w.arrivals[i, 2] | w.arrivals[i, 3]:
            s.p_owner[i], s.p_ships[i] = fight(s.p_owner[i], s.p_ships[i], w.arrivals, i)
        comets |= s.p_comet[i] >= 0
    if comets:
        remove_expired(board, s)
    seats = 0  # bit of every seat that owns something
    for i in range(s.head[N_PLANETS]):
        if s.p_owner[i] >= 0:
            seats |= 1 << s.p_owner[i]
    for f in range(s.head[N_FLEETS]):
        seats |= 1 << s.f_owner[f]
    if s.head[STEP] >= board.cfg[EPISODE] - 2 or seats & (seats - 1) == 0:
        s.head[DONE] = 1
    s.head[STEP] += 1


@kernel
def advance(board: Board, s: State, moves: F64, first: int, last: int, w: Scratch) -> None:
    """One turn under the launches `moves[first:last]`, in place, without allocating."""
    for i in range(s.head[N_PLANETS]):
        if s.p_comet[i] >= 0:
            remove_expired(board, s)
            break
    spawn_comets(board, s)
    for k in range(first, last):
        launch(s, int(moves[k, 0]), moves[k, 1], moves[k, 2], moves[k, 3])
    move_planets(board, s, w)
    move_fleets(board, s, w)
    settle(board, s, w)


@allocating
def tick(board: Board, s: State, moves: F64) -> None:
    """One turn, in place.

    Args:
        board: the game.
        s: the state, changed in place. Fleet capacity must hold the fleets and `len(moves)` more.
        moves: [L, 4] rows (seat, planet index, angle in radians, ships), seats in ascending order, each seat's
            launches in their order. Ships are truncated to an integer. Illegal rows (not the seat's planet, no or
            too many ships, infinite angle) do nothing.

    Raises:
        ValueError: the capacity is too small; `s` is then in the middle of a turn.
    """
    advance(board, s, moves, 0, len(moves), make_scratch(len(s.p_owner)))
