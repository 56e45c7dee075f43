"""One turn of a rule-based player: captures, defence, joint attacks and moves to the front, by a row of numbers.

A `Style` says how the player weighs things, so one planner makes players of many kinds and strengths.
Candidates are estimated cheaply, then confirmed by `aim` and the forecast, best estimate first; the first that
keeps its promise is launched: nothing flies that would miss.

`C` is the planet capacity.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.aim import aim
from td_loop.games.orbit_wars.forecast import (
    LEFT,
    NEVER,
    PLANETS,
    TICKS,
    Forecast,
    add_arrival,
    send,
    shortfall,
    spare,
)
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.state import B1, F64, I64, STEP, Board, State
from td_loop.games.orbit_wars.turn import fleet_speed
from td_loop.kernels import inlined, kernel

MAX_LAUNCHES = 48
_CHECKS = 64  # candidates confirmed in one turn
_KEEPS_PROMISE = 0.8  # share of its estimated score that a confirmed candidate must reach


class Style(NamedTuple):
    """How a rule-based player weighs things."""

    horizon: float = 60.0  # turns for which a captured planet's production counts
    enemy: float = (
        1.0  # what a planet taken from an enemy counts beyond a neutral one (2 seats; shared out with more)
    )
    trade: float = 0.3  # what a ship lost against an enemy garrison costs; against a neutral one it costs 1
    margin: float = 1.0  # ships sent beyond the forecast need
    overkill: float = 0.0  # share of the remaining spare ships sent along
    reserve: float = 0.0  # ships that every planet keeps
    least: float = 0.0  # smallest score (gain a ship sent) worth a launch
    reach: float = 40.0  # longest flight, ticks
    allies: float = 1.0  # planets that may join in one attack
    support: float = 1.0  # weight of planets of one's own that are about to fall; 0 leaves them
    front: float = 0.0  # idle ships from which on a planet in the rear sends them forward; 0 never
    noise: float = 0.0  # standard deviation of the logarithm by which scores are misjudged
    lapse: float = 0.0  # probability that a planet is overlooked in a turn
    blunder: float = 0.0  # probability of a turn in which half a garrison flies off anywhere


class Workspace(NamedTuple):
    """Buffers of one planner."""

    score: F64  # [C, C] estimated score of src -> dst; <= 0: not a candidate
    joint: F64  # [C] estimated score of a joint attack on dst
    free: I64  # [C] ships that may leave
    order: I64  # [C] sources by distance
    eta: I64  # [C] estimated flight from each source to one target
    moves: F64  # [MAX_LAUNCHES, 3] planet index, angle, ships


def make_workspace(capacity: int) -> Workspace:
    """Buffers for boards of `capacity` planets."""
    return Workspace(
        np.zeros((capacity, capacity)),
        np.zeros(capacity),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros((MAX_LAUNCHES, 3)),
    )


@inlined
def _estimated_eta(board: Board, paths: PathTable, state: State, src: int, dst: int, ships: int) -> int:
    """Flight time as the crow flies, to where the target will be by then."""
    speed = fleet_speed(board, max(ships, 1))
    x = state.p_x[dst]
    y = state.p_y[dst]
    eta = 0
    for _ in range(2):
        dx = x - state.p_x[src]
        dy = y - state.p_y[src]
        way = math.sqrt(dx * dx + dy * dy) - state.p_radius[src] - state.p_radius[dst]
        eta = max(1, int(way / speed) + 1)
        if state.p_comet[dst] >= 0:
            break
        row = min(state.head[STEP] + eta, paths.x.shape[0] - 1)
        x = paths.x[row, dst]
        y = paths.y[row, dst]
    return eta


@inlined
def _worth(
    fc: Forecast, style: Style, enemy: float, planet: int, seat: int, need: int, since: int, holder: int, sent: int
) -> float:
    """Score of holding `planet` from tick `since` on: production gained less ships lost, a ship sent."""
    turns = min(style.horizon, np.float64(min(fc.span[LEFT], fc.gone[planet] - 1))) - since
    if turns <= 0.0:
        return 0.0
    gain = fc.prod[planet] * turns
    lost = np.float64(need)
    if fc.owner[planet] == seat:
        gain *= style.support * (1.0 + enemy)
        lost *= style.trade
    elif holder >= 0:
        gain *= 1.0 + enemy
        lost *= style.trade
    return float((gain - lost) / (sent + 4.0))


@inlined
def _estimate(
    board: Board, paths: PathTable, state: State, fc: Forecast, style: Style, enemy: float,
    ws: Workspace, seat: int, src: int, dst: int, wrong: float,
) -> float:  # fmt: skip
    """Score of sending what is needed from src to dst if the way is clear; <= 0 when it makes no sense."""
    if src == dst or ws.free[src] < 1:
        return 0.0
    eta = _estimated_eta(board, paths, state, src, dst, ws.free[src])
    if eta > style.reach or eta > fc.span[TICKS]:
        return 0.0
    need, since, holder = shortfall(fc, dst, seat, eta, fc.span[TICKS])
    if need == 0 or need > ws.free[src] or (style.support <= 0.0 and fc.owner[dst] == seat):
        return 0.0
    return float(wrong * _worth(fc, style, enemy, dst, seat, need, since, holder, need))


@kernel
def _estimate_joint(
    board: Board, paths: PathTable, state: State, fc: Forecast, style: Style, enemy: float,
    ws: Workspace, seat: int, dst: int, wrong: float,
) -> float:  # fmt: skip
    """As `_estimate`, for the nearest planets together."""
    n = _nearest_sources(board, paths, state, fc, style, ws, seat, dst)
    total = 0
    joined = 0
    for k in range(n):
        src = ws.order[k]
        need, since, holder = shortfall(fc, dst, seat, ws.eta[src], fc.span[TICKS])
        if need == 0 or holder < 0:  # a neutral planet can wait until one source has enough
            return 0.0
        if ws.free[src] * style.allies < need:  # driblets are slow and give the attack away
            continue
        total += ws.free[src]
        joined += 1
        if need <= total:
            return (
                float(wrong * _worth(fc, style, enemy, dst, seat, need, since, holder, need))
                if joined > 1
                else 0.0
            )
        if joined >= style.allies:
            break
    return 0.0


@inlined
def _nearest_sources(
    board: Board, paths: PathTable, state: State, fc: Forecast, style: Style, ws: Workspace, seat: int, dst: int
) -> int:
    """Fill `order` with the planets that can send ships to dst, nearest first; returns how many."""
    n = 0
    for src in range(fc.span[PLANETS]):
        if src == dst or ws.free[src] < 1:
            continue
        eta = _estimated_eta(board, paths, state, src, dst, ws.free[src])
        if eta > style.reach or eta > fc.span[TICKS]:
            continue
        ws.eta[src] = eta
        j = n
        while j > 0 and ws.eta[ws.order[j - 1]] > eta:
            ws.order[j] = ws.order[j - 1]
            j -= 1
        ws.order[j] = src
        n += 1
    return n


@inlined
def _launch(fc: Forecast, style: Style, ws: Workspace, n: int, seat: int, src: int, dst: int, angle: float,
            ships: int, eta: int) -> int:  # fmt: skip
    """Write launch `n` down and let the forecast know."""
    ws.moves[n, 0] = src
    ws.moves[n, 1] = angle
    ws.moves[n, 2] = ships
    send(fc, seat, src, dst, ships, eta)
    ws.free[src] = min(ws.free[src] - ships, max(0, spare(fc, src) - int(style.reserve)))
    return n + 1


@kernel
def _capture(
    board: Board, paths: PathTable, state: State, fc: Forecast, style: Style, enemy: float,
    ws: Workspace, seat: int, src: int, dst: int,
) -> tuple[float, float, int, int]:  # fmt: skip
    """Confirm src -> dst: (score, angle, ships, eta); score 0 when it cannot be done."""
    free = ws.free[src]
    eta = _estimated_eta(board, paths, state, src, dst, free)
    need, _, _ = shortfall(fc, dst, seat, eta, fc.span[TICKS])
    for _ in range(4):
        if need < 1 or need > free:
            break
        ships = min(free, need + int(style.margin + style.overkill * (free - need)))
        ok, angle, eta = aim(board, paths, state, src, dst, ships)
        if not ok or eta > style.reach or eta > fc.span[TICKS]:
            break
        lack, since, holder = shortfall(fc, dst, seat, eta, fc.span[TICKS])
        add_arrival(fc, dst, eta, seat, ships)
        still, _, _ = shortfall(fc, dst, seat, eta, fc.span[TICKS])
        add_arrival(fc, dst, eta, seat, -ships)
        if still == 0:
            return _worth(fc, style, enemy, dst, seat, lack, since, holder, ships), angle, ships, eta
        need = ships + still
    return 0.0, 0.0, 0, 0


@kernel
def _attack_together(
    board: Board, paths: PathTable, state: State, fc: Forecast, style: Style, ws: Workspace,
    n: int, seat: int, dst: int,
) -> int:  # fmt: skip
    """Launch a joint attack on dst if the nearest planets can take it; returns the number of launches so far."""
    sources = _nearest_sources(board, paths, state, fc, style, ws, seat, dst)
    first = n
    for k in range(sources):
        if n >= min(MAX_LAUNCHES, first + int(style.allies)):
            break
        src = ws.order[k]
        need, _, _ = shortfall(fc, dst, seat, ws.eta[src], fc.span[TICKS])
        if need == 0:
            break
        if ws.free[src] * style.allies < need:
            continue
        ships = min(ws.free[src], need + int(style.margin))
        ok, angle, eta = aim(board, paths, state, src, dst, ships)
        if not ok or eta > style.reach or eta > fc.span[TICKS]:
            continue
        n = _launch(fc, style, ws, n, seat, src, dst, angle, ships, eta)
        ws.eta[src] = eta
        # Fleets that land one after the other: what counts is who holds it after the last.
        still, _, _ = shortfall(fc, dst, seat, eta, fc.span[TICKS])
        if still == 0:
            return n
    for j in range(first, n):  # not enough: nobody goes
        src = int(ws.moves[j, 0])
        ships = int(ws.moves[j, 2])
        send(fc, seat, src, dst, -ships, ws.eta[src])
        ws.free[src] = max(0, spare(fc, src) - int(style.reserve))
    return first


@kernel
def _to_the_front(
    board: Board, paths: PathTable, state: State, fc: Forecast, style: Style, ws: Workspace, n: int, seat: int
) -> int:
    """Idle ships in the rear move to the own planet nearest to an enemy; a comet about to leave is emptied."""
    planets = fc.span[PLANETS]
    for p in range(planets):  # ws.joint: distance to the nearest enemy planet
        ws.joint[p] = 1e9
        for q in range(planets):
            if state.p_owner[q] >= 0 and state.p_owner[q] != seat:
                ws.joint[p] = min(
                    ws.joint[p], math.hypot(state.p_x[p] - state.p_x[q], state.p_y[p] - state.p_y[q])
                )
    for src in range(planets):
        leaving = fc.gone[src] <= 5
        free = fc.ships[src] if leaving and state.p_owner[src] == seat else ws.free[src]
        if n >= MAX_LAUNCHES or free < 1 or (free < style.front and not leaving):
            continue
        best = -1
        least = ws.joint[src] - 8.0 if not leaving else 1e9
        for q in range(planets):
            if q == src or state.p_owner[q] != seat or fc.gone[q] != NEVER:
                continue
            cost = ws.joint[q] + 0.5 * math.hypot(state.p_x[q] - state.p_x[src], state.p_y[q] - state.p_y[src])
            if cost < least:
                least = cost
                best = q
        if best < 0:
            continue
        ok, angle, eta = aim(board, paths, state, src, best, free)
        if ok and eta <= fc.span[TICKS]:
            n = _launch(fc, style, ws, n, seat, src, best, angle, free, eta)
    return n


@kernel
def plan(
    board: Board, paths: PathTable, state: State, fc: Forecast, style: Style, ws: Workspace,
    seat: int, wrong: F64, awake: B1,
) -> int:  # fmt: skip
    """The launches of one turn, into `ws.moves`; returns how many.

    `fc` is the forecast of `state` and is changed. `wrong` f64[C] multiplies scores by target; sources that are
    not `awake` bool[C] do nothing.
    """
    planets = fc.span[PLANETS]
    enemy = style.enemy / max(1, board.n_players - 1)
    for p in range(planets):
        ws.free[p] = 0
        if state.p_owner[p] == seat and awake[p]:
            ws.free[p] = max(0, spare(fc, p) - int(style.reserve))
    for src in range(planets):
        if ws.free[src] > 0:
            for dst in range(planets):
                ws.score[src, dst] = _estimate(
                    board, paths, state, fc, style, enemy, ws, seat, src, dst, wrong[dst]
                )
    for dst in range(planets):
        ws.joint[dst] = 0.0
        if style.allies > 1.0 and (style.support > 0.0 or fc.owner[dst] != seat):
            ws.joint[dst] = _estimate_joint(board, paths, state, fc, style, enemy, ws, seat, dst, wrong[dst])
    n = 0
    for _ in range(_CHECKS):
        if n >= MAX_LAUNCHES:
            break
        best = style.least
        src = -1
        dst = -1
        for s in range(planets):
            if ws.joint[s] > best:
                best, src, dst = ws.joint[s], -1, s
            if ws.free[s] > 0:
                for d in range(planets):
                    if ws.score[s, d] > best:
                        best, src, dst = ws.score[s, d], s, d
        if dst < 0:
            break
        done = n
        if src < 0:
            ws.joint[dst] = 0.0
            n = _attack_together(board, paths, state, fc, style, ws, n, seat, dst)
        else:
            score, angle, ships, eta = _capture(board, paths, state, fc, style, enemy, ws, seat, src, dst)
            score *= wrong[dst]
            if score < _KEEPS_PROMISE * best:
                ws.score[src, dst] = score
                continue
            n = _launch(fc, style, ws, n, seat, src, dst, angle, ships, eta)
        for j in range(done, n):
            s = int(ws.moves[j, 0])
            for d in range(planets):
                if ws.score[s, d] > 0.0:
                    ws.score[s, d] = _estimate(board, paths, state, fc, style, enemy, ws, seat, s, d, wrong[d])
        if n > done:
            ws.joint[dst] = 0.0
            for s in range(planets):
                ws.score[s, dst] = 0.0
    if style.front > 0.0:
        n = _to_the_front(board, paths, state, fc, style, ws, n, seat)
    return n
