"""Features of every seat: what it will hold once all that is under way has landed, and how its planets lie.

Everything is taken from the forecast, so a launch shows by its consequences: ships count where they land, a planet
that a fleet will take counts as taken. What is common to all seats says nothing under a softmax over seats, so the
turn enters only through products. Nothing counts that a search could have for the asking (ships under way as
such, say: a value function that was fitted to like them makes it launch for the sake of launching). What is said
of planets is relative to what a seat can get or lose, and at its best when nothing is left to get: or the capture
of an opponent's last planet would look like a loss (of targets), and won games would not end.

`C` planets, `F` features; near and far are the marks of `forecast.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.games.orbit_wars.forecast import (
    HORIZON,
    LEFT,
    NEVER,
    PLANETS,
    PLAYED,
    SEATS,
    Forecast,
)
from td_loop.games.orbit_wars.state import F64, N_PLANETS, State
from td_loop.kernels import inlined, kernel

FEATURE_NAMES = (
    "ships_near",  # share of all ships, on planets and under way, MARK_NEAR turns from now
    "ships_far",  # the same MARK_FAR turns from now
    "prod_near",  # share of all owned production
    "prod_far",
    "planets_far",  # share of all owned planets
    "c_prod",  # share of the discounted production of all turns left
    "wealth",  # share of ships_near + c_prod, in ships
    "wealth_log",  # log of own wealth over that of the strongest opponent
    "wealth_late",  # wealth_log, growing in over the first LATE turns
    "ships_log",  # log of own ships over those of the opponent with most, near
    "prod_log",  # log of own production over that of the opponent with most, far
    "ships_lead",  # ships ahead of that opponent, in units of what will be made in the next LEAD_TURNS turns
    "neutral",  # share of the board's production that is neutral, as far as it lies in own reach
    "neutral_cheap",  # the same, planets with small garrisons only
    "danger",  # part of own production that the strongest opponent around could take
    "strike",  # part of the opponents' production that one's own ships around could take
    "hold",  # share of all owned production that is own and safe from the strongest opponent around
    "territory",  # share of the board's production that lies in own reach
    "pressure",  # mean share of reach over all planets
    "frontier",  # how near own garrisons are to opponents
    "reach",  # how near own garrisons are to planets of others, neutral ones too
    "comets",  # share of what held comets will still make, per owned production
)
N_FEATURES = len(FEATURE_NAMES)

RANGE = 18.0
"""Distance over which a garrison's reach falls to 1/e: four to six turns of a middling fleet."""
LATE = 100
LEAD_TURNS = 30
CHEAP = 20.0
"""Garrison at which a neutral planet counts 1/e as cheap."""

# Rows of Sums: what each seat has
NEAR, FAR, PROD_NEAR, PROD_FAR, COUNT, C_PROD, COMETS = range(7)


class Lay(NamedTuple):
    """How planets lie, and scratch of `features`."""

    close: F64  # [C, C] exp(-distance / RANGE)
    reach: F64  # [4, C] ships of a seat around a planet, weighted by `close`
    sums: F64  # [7, 4]
    total: F64  # [7] sum of `sums` over the seats


def make_lay(capacity: int) -> Lay:
    """Buffers for boards of `capacity` planets."""
    return Lay(np.zeros((capacity, capacity)), np.zeros((4, capacity)), np.zeros((7, 4)), np.zeros(7))


@kernel
def survey(lay: Lay, state: State) -> None:
    """Write down how near planets are to one another now."""
    n = state.head[N_PLANETS]
    for i in range(n):
        lay.close[i, i] = 1.0
        for j in range(i):
            dx, dy = state.p_x[i] - state.p_x[j], state.p_y[i] - state.p_y[j]
            w = math.exp(-math.sqrt(dx * dx + dy * dy) / RANGE)
            lay.close[i, j] = w
            lay.close[j, i] = w


@inlined
def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else 0.0


@inlined
def _part(part: float, whole: float) -> float:
    """As `_share`, of something that is had to the full when there is none of it."""
    return part / whole if whole > 0.0 else 1.0


@inlined
def _most_of_others(row: F64, seat: int, seats: int) -> float:
    most = 0.0
    for o in range(seats):
        if o != seat:
            most = max(most, row[o])
    return most


@inlined
def _add_up(fc: Forecast, lay: Lay) -> None:
    """Fill `sums`, `total` and `reach`."""
    sums, seats, n = lay.sums, fc.span[SEATS], fc.span[PLANETS]
    sums[:] = 0.0
    lay.reach[:] = 0.0
    near, far = fc.mark[1], fc.mark[2]
    for tick in range(HORIZON + 2):
        for s in range(seats):
            ships = fc.landing[tick, s]
            if tick > near:
                sums[NEAR, s] += ships
            if tick > far:
                sums[FAR, s] += ships
    for i in range(n):
        owner = fc.owner_at[1, i]
        if owner >= 0:
            ships = np.float64(fc.ships_at[1, i])
            sums[NEAR, owner] += ships
            sums[PROD_NEAR, owner] += fc.prod_at[1, i]
            for j in range(n):
                lay.reach[owner, j] += ships * lay.close[i, j]
        owner = fc.owner_at[2, i]
        if owner >= 0:
            sums[FAR, owner] += fc.ships_at[2, i]
            sums[PROD_FAR, owner] += fc.prod_at[2, i]
            if fc.prod_at[2, i] > 0:  # not a comet that is gone by then; its ships count as having left in time
                sums[COUNT, owner] += 1.0
        for s in range(seats):
            sums[C_PROD, s] += fc.c_prod[i, s]
            if fc.gone[i] < NEVER:
                sums[COMETS, s] += fc.c_prod[i, s]
    for r in range(sums.shape[0]):
        lay.total[r] = 0.0
        for s in range(seats):
            lay.total[r] += sums[r, s]


@kernel
def features(fc: Forecast, lay: Lay, out: npt.NDArray[np.float32]) -> None:
    """Write the features of every seat to `out` f32[4, F]; zeros beyond P.

    `fc` is settled, `lay` was surveyed on the same state.
    """
    _add_up(fc, lay)
    seats, n = fc.span[SEATS], fc.span[PLANETS]
    sums, total, reach, close = lay.sums, lay.total, lay.reach, lay.close
    late = min(1.0, fc.span[PLAYED] / LATE)
    turns = min(fc.span[LEFT], LEAD_TURNS)
    board_prod = 0.0
    for i in range(n):
        board_prod += fc.prod_at[2, i]
    out[:] = 0.0
    for s in range(seats):
        # -- what it holds
        wealth = sums[NEAR, s] + sums[C_PROD, s]
        richest = 0.0
        for o in range(seats):
            if o != s:
                richest = max(richest, sums[NEAR, o] + sums[C_PROD, o])
        other_ships = _most_of_others(sums[NEAR], s, seats)
        other_prod = _most_of_others(sums[PROD_FAR], s, seats)
        owned = total[PROD_FAR] + 1.0
        wealth_log = math.log((wealth + 10.0) / (richest + 10.0))
        # -- how its planets lie
        neutral, cheap, danger, strike, hold, territory, pressure = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        garrisons, frontier, outward, own, targets, others = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(n):
            if fc.prod_at[2, j] > 0 and fc.owner_at[2, j] != s:
                others += 1.0
                if fc.owner_at[2, j] >= 0:
                    targets += fc.prod_at[2, j]
        for i in range(n):
            if fc.prod_at[2, i] == 0:
                continue  # a comet that is gone by then: nothing to hold, to fear or to take
            mine = reach[s, i]
            theirs, strongest = 0.0, 0.0
            for o in range(seats):
                if o != s:
                    theirs += reach[o, i]
                    strongest = max(strongest, reach[o, i])
            prod = np.float64(fc.prod_at[2, i])
            share = mine / (mine + theirs + 1.0)
            territory += prod * share
            pressure += share
            owner = fc.owner_at[2, i]
            if owner < 0:
                neutral += prod * share
                cheap += prod * share * math.exp(-fc.ships_at[2, i] / CHEAP)
            elif owner == s:
                risk = strongest / (mine + strongest + 1.0)
                own += prod
                danger += prod * risk * risk
                hold += prod * (1.0 - risk)
                enemy = 0.0 if targets > 0.0 else 1.0
                other = 0.0 if others > 0.0 else 1.0
                for j in range(n):
                    if fc.owner_at[2, j] != s and fc.prod_at[2, j] > 0:
                        other = max(other, close[i, j])
                        if fc.owner_at[2, j] >= 0:
                            enemy = max(enemy, close[i, j])
                ships = np.float64(fc.ships_at[2, i])
                garrisons += ships
                frontier += ships * enemy
                outward += ships * other
            else:
                strike += prod * share * share
        row = out[s]
        row[0] = _share(sums[NEAR, s], total[NEAR])
        row[1] = _share(sums[FAR, s], total[FAR])
        row[2] = _share(sums[PROD_NEAR, s], total[PROD_NEAR])
        row[3] = _share(sums[PROD_FAR, s], total[PROD_FAR])
        row[4] = _share(sums[COUNT, s], total[COUNT])
        row[5] = _share(sums[C_PROD, s], total[C_PROD])
        row[6] = _share(wealth, total[NEAR] + total[C_PROD])
        row[7] = wealth_log
        row[8] = wealth_log * late
        row[9] = math.log((sums[NEAR, s] + 10.0) / (other_ships + 10.0))
        row[10] = math.log((sums[PROD_FAR, s] + 2.0) / (other_prod + 2.0))
        row[11] = (sums[NEAR, s] - other_ships) / (total[NEAR] + total[PROD_NEAR] * turns + 1.0)
        row[12] = neutral / (board_prod + 1.0)
        row[13] = cheap / (board_prod + 1.0)
        row[14] = _part(danger, own)
        row[15] = _part(strike, targets)
        row[16] = hold / owned
        row[17] = territory / (board_prod + 1.0)
        row[18] = pressure / max(n, 1)
        row[19] = frontier / (garrisons + 1.0)
        row[20] = outward / (garrisons + 1.0)
        row[21] = sums[COMETS, s] / (total[C_PROD] + 1.0)
