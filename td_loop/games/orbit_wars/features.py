"""Features of every seat: what it will hold once all that is under way has landed, and how its planets lie.

Everything is taken from the forecast, so a launch shows by its consequences: ships count where they land, a planet
that a fleet will take counts as taken. What is common to all seats says nothing under a softmax over seats, so the
turn enters only through products. Nothing counts that a search could have for the asking (ships under way as
such, say: a value function that was fitted to like them makes it launch for the sake of launching). What is said
of planets is relative to what a seat can get or lose, and at its best when nothing is left to get: or the capture
of an opponent's last planet would look like a loss (of targets), and won games would not end.

`F` features; near and far are the marks of `forecast.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.games.orbit_wars.forecast import LEFT, NEVER, PLANETS, PLAYED, REACH_UNIT, SEATS, Forecast
from td_loop.games.orbit_wars.state import F64
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
    "danger",  # part of own production that the strongest opponent around could take
    "strike",  # part of the opponents' production that one's own ships around could take
    "hold",  # share of all owned production that is own and safe from the strongest opponent around
    "territory",  # share of the board's production that lies in own reach
    "pressure",  # mean share of reach over all planets
    "comets",  # share of what held comets will still make, per owned production
)
N_FEATURES = len(FEATURE_NAMES)

LATE = 100
LEAD_TURNS = 30

# Rows of Tally.sums: what each seat has
NEAR, FAR, PROD_NEAR, PROD_FAR, COUNT, C_PROD, COMETS, DANGER, STRIKE, HOLD, TERRITORY, PRESSURE = range(12)


class Tally(NamedTuple):
    """What `features` adds up on its way."""

    sums: F64  # [12, 4]
    total: F64  # [12] sum of `sums` over the seats


def make_tally() -> Tally:
    """Zeros."""
    return Tally(np.zeros((12, 4)), np.zeros(12))


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
def _count(fc: Forecast, tally: Tally) -> None:
    """Add up what each seat has."""
    sums, seats = tally.sums, fc.span[SEATS]
    for s in range(seats):
        sums[NEAR, s] = fc.late[1, s]
        sums[FAR, s] = fc.late[2, s]
    for i in range(fc.span[PLANETS]):
        owner = fc.owner_at[1, i]
        if owner >= 0:
            sums[NEAR, owner] += fc.ships_at[1, i]
            sums[PROD_NEAR, owner] += fc.prod_at[1, i]
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


@inlined
def _look_around(fc: Forecast, tally: Tally) -> float:
    """Add up how the planets of each seat lie; returns the production of the board."""
    sums, seats = tally.sums, fc.span[SEATS]
    board_prod = 0.0
    for i in range(fc.span[PLANETS]):
        prod = np.float64(fc.prod_at[2, i])
        if prod == 0.0:
            continue  # a comet that is gone by then: nothing to hold, to fear or to take
        board_prod += prod
        top, second, strongest, together = -1, 0, 0, 0
        for s in range(seats):
            r = fc.reach[s, i]
            together += r
            if top < 0 or r > strongest:
                top, second, strongest = s, strongest, r
            elif r > second:
                second = r
        part = 1.0 / (together + REACH_UNIT)
        owner = fc.owner_at[2, i]
        for s in range(seats):
            share = fc.reach[s, i] * part
            sums[TERRITORY, s] += prod * share
            sums[PRESSURE, s] += share
            if s == owner:
                other = second if top == s else strongest
                risk = other / (fc.reach[s, i] + other + REACH_UNIT)
                sums[DANGER, s] += prod * risk * risk
                sums[HOLD, s] += prod * (1.0 - risk)
            elif owner >= 0:
                sums[STRIKE, s] += prod * share * share
    return board_prod


@kernel
def features(fc: Forecast, tally: Tally, out: npt.NDArray[np.float32]) -> None:
    """Write the features of every seat to `out` f32[4, F]; zeros beyond P.

    `fc` is settled.
    """
    seats = fc.span[SEATS]
    sums, total = tally.sums, tally.total
    sums[:] = 0.0
    _count(fc, tally)
    board_prod = _look_around(fc, tally)
    for r in range(sums.shape[0]):
        total[r] = 0.0
        for s in range(seats):
            total[r] += sums[r, s]
    late = min(1.0, fc.span[PLAYED] / LATE)
    turns = min(fc.span[LEFT], LEAD_TURNS)
    owned = total[PROD_FAR] + 1.0
    out[:] = 0.0
    for s in range(seats):
        wealth = sums[NEAR, s] + sums[C_PROD, s]
        richest = 0.0
        for o in range(seats):
            if o != s:
                richest = max(richest, sums[NEAR, o] + sums[C_PROD, o])
        other_ships = _most_of_others(sums[NEAR], s, seats)
        other_prod = _most_of_others(sums[PROD_FAR], s, seats)
        wealth_log = math.log((wealth + 10.0) / (richest + 10.0))
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
        row[12] = _part(sums[DANGER, s], sums[PROD_FAR, s])
        row[13] = _part(sums[STRIKE, s], total[PROD_FAR] - sums[PROD_FAR, s])
        row[14] = sums[HOLD, s] / owned
        row[15] = sums[TERRITORY, s] / (board_prod + 1.0)
        row[16] = sums[PRESSURE, s] / max(fc.span[PLANETS], 1)
        row[17] = sums[COMETS, s] / (total[C_PROD] + 1.0)
