"""Second thoughts on a plan: take back what was launched together, fill the gap anew, keep the better plan."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.forecast import Forecast, send
from td_loop.games.orbit_wars.plan import (
    DONE,
    EVALS,
    MAX_PLAN,
    N_PLAN,
    NEXT_SLOT,
    SEAT,
    VERSION,
    Judge,
    Plan,
    log_odds,
    touched,
)
from td_loop.games.orbit_wars.propose import SLOTS, Pool
from td_loop.games.orbit_wars.state import F64, I64
from td_loop.kernels import kernel

# Rows of Kept.launches
SRC, DST, SHIPS, ETA, PAIR, MADE, WAIT = range(7)


class Kept(NamedTuple):
    """The launches of the best plan so far."""

    n: I64  # [1] launches
    value: F64  # [1]
    launches: I64  # [7, MAX_PLAN] src, dst, ships, eta, pair, made, wait
    angle: F64  # [MAX_PLAN]


def make_kept() -> Kept:
    """Room for one plan."""
    return Kept(np.zeros(1, np.int64), np.zeros(1), np.zeros((7, MAX_PLAN), np.int64), np.zeros(MAX_PLAN))


@kernel
def keep(kept: Kept, plan: Plan) -> None:
    """Remember the launches of `plan`."""
    n = plan.at[N_PLAN]
    kept.n[0] = n
    kept.value[0] = plan.value[0]
    for j in range(n):
        kept.launches[SRC, j] = plan.src[j]
        kept.launches[DST, j] = plan.dst[j]
        kept.launches[SHIPS, j] = plan.ships[j]
        kept.launches[ETA, j] = plan.eta[j]
        kept.launches[PAIR, j] = plan.pair[j]
        kept.launches[MADE, j] = plan.made[j]
        kept.launches[WAIT, j] = plan.wait[j]
        kept.angle[j] = plan.angle[j]


@kernel
def _changed(plan: Plan) -> None:
    plan.at[VERSION] += 1
    plan.at[NEXT_SLOT] = SLOTS
    plan.at[DONE] = 0


@kernel
def send_kept(fc: Forecast, seat: int, kept: Kept, sign: int) -> None:
    """Send all launches that were remembered, or take them back (`sign` -1)."""
    for j in range(kept.n[0]):
        src, dst = kept.launches[SRC, j], kept.launches[DST, j]
        send(fc, seat, src, dst, sign * kept.launches[SHIPS, j], kept.launches[ETA, j])


@kernel
def reconsider(plan: Plan, pool: Pool, kept: Kept) -> None:
    """Others have made, or taken back, the launches of `kept`: the pairs of `plan` concerned are proposed anew."""
    for j in range(kept.n[0]):
        touched(plan, pool, kept.launches[SRC, j], kept.launches[DST, j])


@kernel
def take_back(plan: Plan, pool: Pool, fc: Forecast, judge: Judge, made: I64) -> None:
    """Take back all launches whose `made` number is listed, ban their pairs, find the value. One evaluation.

    Args:
        made: [any] numbers, as in `plan.made`; there may be none.
    """
    n = 0
    for j in range(plan.at[N_PLAN]):
        out = False
        for m in made:
            out = out or plan.made[j] == m
        if out:
            send(fc, plan.at[SEAT], plan.src[j], plan.dst[j], -plan.ships[j], plan.eta[j])
            touched(plan, pool, plan.src[j], plan.dst[j])
            plan.banned[plan.pair[j]] = True
            continue
        plan.src[n] = plan.src[j]
        plan.dst[n] = plan.dst[j]
        plan.ships[n] = plan.ships[j]
        plan.eta[n] = plan.eta[j]
        plan.angle[n] = plan.angle[j]
        plan.pair[n] = plan.pair[j]
        plan.made[n] = plan.made[j]
        plan.wait[n] = plan.wait[j]
        n += 1
    plan.at[N_PLAN] = n
    _changed(plan)
    plan.value[0] = log_odds(fc, judge, plan.at[SEAT])
    plan.at[EVALS] += 1


@kernel
def go_back(plan: Plan, fc: Forecast, kept: Kept) -> None:
    """Make `plan` what `keep` remembered; candidates proposed since stay, and are evaluated before any is made."""
    seat = plan.at[SEAT]
    for j in range(plan.at[N_PLAN]):
        send(fc, seat, plan.src[j], plan.dst[j], -plan.ships[j], plan.eta[j])
    send_kept(fc, seat, kept, 1)
    n = kept.n[0]
    for j in range(n):
        plan.src[j] = kept.launches[SRC, j]
        plan.dst[j] = kept.launches[DST, j]
        plan.ships[j] = kept.launches[SHIPS, j]
        plan.eta[j] = kept.launches[ETA, j]
        plan.pair[j] = kept.launches[PAIR, j]
        plan.made[j] = kept.launches[MADE, j]
        plan.wait[j] = kept.launches[WAIT, j]
        plan.angle[j] = kept.angle[j]
    plan.at[N_PLAN] = n
    plan.value[0] = kept.value[0]
    _changed(plan)
