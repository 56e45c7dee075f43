"""A turn in the making: the launches made so far, the candidates for the next one, and what V thinks of them.

Trying a candidate means: send it in the forecast, compute the features, take it back. `Q` pairs, `SLOTS`
candidates a pair, `K` knots, `F` features. The state machine (`advance`) works in small steps, so that a caller
can look at the clock between any two of them:

1. a candidate was never evaluated: evaluate it;
2. a pair of the present wave has not been proposed, or was touched by a launch since: propose its candidates;
3. take the candidate with the largest known gain. A gain from before the last launch is found again first
   (most only shrink as launches are made, so few need it); a fresh one is made;
4. nothing gains any more: open the next wave of pairs; after the last one, the plan is done.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.games.orbit_wars.features import C_PROD, FAR, Tally, features
from td_loop.games.orbit_wars.forecast import SEATS, Forecast, send
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.propose import SEVERAL, SLOTS, Pool, order_pairs, propose_group, propose_single
from td_loop.games.orbit_wars.state import B1, F64, I64, Board, State
from td_loop.kernels import kernel
from td_loop.value.kernel import seat_score

MAX_PLAN = 64
"""Launches of one turn."""
MIN_GAIN = 1e-2
"""A launch must raise the log odds of winning by this much: what gains less is noise that moves ships about."""

WON = 30.0
"""Log odds of a seat that will be the only one left; up to twice that if others make nothing any more."""

# What Plan.version holds beside a version
DEAD = -1

# Positions in Plan.at
VERSION, N_PLAN, SEAT, EVALS, DONE, WAVE, WAVE_END, NEXT_PAIR, NEXT_SLOT, N_MADE = range(10)


class Judge(NamedTuple):
    """V, ready for kernels."""

    knots: F64  # [F, K]
    coef: F64  # [F, K] of this game's segment
    alive: B1  # [4]
    tally: Tally
    row: npt.NDArray[np.float32]  # [4, F] scratch


class Plan(NamedTuple):
    """The launches made so far, and the gains of the pool's candidates."""

    at: I64  # [10] see the positions above
    value: F64  # [2] log odds of winning with the plan as it is; the least gain
    gain: F64  # [Q, SLOTS] what the candidate adds
    version: I64  # [Q, SLOTS] version of the plan for which the gain was found, or DEAD
    proposed: npt.NDArray[np.bool_]  # [Q]
    banned: npt.NDArray[np.bool_]  # [Q]
    src: I64  # [MAX_PLAN]
    dst: I64  # [MAX_PLAN]
    ships: I64  # [MAX_PLAN]
    eta: I64  # [MAX_PLAN]
    angle: F64  # [MAX_PLAN]
    pair: I64  # [MAX_PLAN] the pair that proposed it
    wait: I64  # [MAX_PLAN] ticks until it is to be launched; only those with 0 are
    made: I64  # [MAX_PLAN] launches with the same number were made together


def make_plan(pool: Pool) -> Plan:
    """An empty plan for the candidates of `pool`."""
    q = pool.source.shape[0]

    def ints(*shape: int) -> npt.NDArray[np.int64]:
        return np.zeros(shape, np.int64)

    return Plan(
        ints(10), np.zeros(2), np.zeros((q, SLOTS)), ints(q, SLOTS), np.zeros(q, np.bool_), np.zeros(q, np.bool_),
        ints(MAX_PLAN), ints(MAX_PLAN), ints(MAX_PLAN), ints(MAX_PLAN), np.zeros(MAX_PLAN), ints(MAX_PLAN),
        ints(MAX_PLAN), ints(MAX_PLAN),
    )  # fmt: skip


@kernel
def log_odds(fc: Forecast, judge: Judge, seat: int) -> float:
    """log(V / (1 - V)) of `seat`: the same order as V, without its flatness near 0 and 1.

    A seat that will have nothing left is out: V, which has seen such states only in passing, is not asked.
    To be the only one left is to have won, the more so the sooner: if it were always worth the same, a plan that
    waits would do as well, in every turn again.
    """
    features(fc, judge.tally, judge.row)
    ships = judge.tally.sums[FAR]
    if ships[seat] == 0.0:
        return -WON
    mine = 0.0
    top = -1e300
    total = 0.0  # of exp(score - top) over the opponents
    for s in range(fc.span[SEATS]):
        if s == seat:
            mine = seat_score(judge.row[s], judge.knots, judge.coef)
        elif judge.alive[s] and ships[s] > 0.0:
            x = seat_score(judge.row[s], judge.knots, judge.coef)
            if x > top:
                total = total * math.exp(top - x) + 1.0
                top = x
            else:
                total += math.exp(x - top)
    made = judge.tally.sums[C_PROD]
    if total == 0.0:
        return float(WON * (1.0 + made[seat] / (judge.tally.total[C_PROD] + 1.0)))
    return float(min(mine - top - math.log(total), WON))


@kernel
def start_plan(
    plan: Plan, pool: Pool, fc: Forecast, judge: Judge, state: State, seat: int,
    targets: B1, wave: int, least: float,
) -> None:  # fmt: skip
    """An empty plan for `seat`. Its value is the first evaluation.

    Args:
        targets: bool[C] planets that launches may go to.
        wave: pairs looked at before the first launches are made, and again each time that nothing gains any more.
        least: a launch must raise the log odds by this much.
    """
    order_pairs(pool, fc, state, seat, targets)
    plan.at[:] = 0
    plan.at[SEAT] = seat
    plan.at[EVALS] = 1
    plan.at[WAVE] = wave
    plan.at[WAVE_END] = min(wave, pool.at[0])
    plan.value[1] = least
    plan.at[NEXT_SLOT] = SLOTS
    plan.value[0] = log_odds(fc, judge, seat)
    for q in range(pool.at[0]):
        plan.proposed[q] = False
        plan.banned[q] = False
        for s in range(SLOTS):
            plan.version[q, s] = DEAD


@kernel
def affordable(pool: Pool, fc: Forecast, q: int, s: int) -> bool:
    """Whether the sources still have the ships of a candidate (it names each source once)."""
    wait = pool.wait[q, s]
    for j in range(pool.size[q, s]):
        src = pool.src[q, s, j]
        if pool.ships[q, s, j] > fc.ships[src] + fc.prod[src] * wait:
            return False
    return bool(pool.size[q, s] > 0)


@kernel
def send_candidate(pool: Pool, fc: Forecast, seat: int, q: int, s: int, sign: int) -> None:
    """Send all launches of a candidate, or take them back (`sign` -1)."""
    for j in range(pool.size[q, s]):
        send(fc, seat, pool.src[q, s, j], pool.target[q], sign * pool.ships[q, s, j], pool.eta[q, s, j])


@kernel
def evaluate_candidate(plan: Plan, pool: Pool, fc: Forecast, judge: Judge, q: int, s: int) -> None:
    """Find what a candidate adds to the plan as it is. One evaluation."""
    seat = plan.at[SEAT]
    send_candidate(pool, fc, seat, q, s, 1)
    plan.gain[q, s] = log_odds(fc, judge, seat) - plan.value[0]
    send_candidate(pool, fc, seat, q, s, -1)
    plan.version[q, s] = plan.at[VERSION]
    plan.at[EVALS] += 1


@kernel
def touched(plan: Plan, pool: Pool, src: int, dst: int) -> None:
    """Ships left `src` for `dst`, or came back: the pairs that concern either must be proposed anew."""
    for q in range(plan.at[WAVE_END]):
        if pool.source[q] == src or pool.target[q] == dst or pool.target[q] == src:
            plan.proposed[q] = False
        elif pool.source[q] == SEVERAL:
            for j in range(pool.size[q, 0]):
                if pool.src[q, 0, j] == src:
                    plan.proposed[q] = False
    plan.at[NEXT_PAIR] = 0


@kernel
def make_candidate(plan: Plan, pool: Pool, fc: Forecast, q: int, s: int) -> None:
    """Put a candidate whose gain is fresh into the plan."""
    send_candidate(pool, fc, plan.at[SEAT], q, s, 1)
    plan.value[0] += plan.gain[q, s]
    plan.at[VERSION] += 1
    plan.at[N_MADE] += 1
    for j in range(pool.size[q, s]):
        n = plan.at[N_PLAN]
        plan.src[n] = pool.src[q, s, j]
        plan.dst[n] = pool.target[q]
        plan.ships[n] = pool.ships[q, s, j]
        plan.eta[n] = pool.eta[q, s, j]
        plan.angle[n] = pool.angle[q, s, j]
        plan.pair[n] = q
        plan.wait[n] = pool.wait[q, s]
        plan.made[n] = plan.at[N_MADE]
        plan.at[N_PLAN] = n + 1
        touched(plan, pool, plan.src[n], plan.dst[n])


@kernel
def _propose_next(plan: Plan, pool: Pool, fc: Forecast, board: Board, paths: PathTable, state: State) -> bool:
    """Propose the next pair of the wave that waits for it; False when none does."""
    for q in range(plan.at[NEXT_PAIR], plan.at[WAVE_END]):
        if plan.proposed[q] or plan.banned[q]:
            continue
        for s in range(SLOTS):
            plan.version[q, s] = DEAD
        if pool.source[q] == SEVERAL:
            propose_group(pool, q, fc, board, paths, state, plan.at[SEAT])
        else:
            propose_single(pool, q, fc, board, paths, state, plan.at[SEAT])
        plan.proposed[q] = True
        plan.at[NEXT_PAIR] = q
        plan.at[NEXT_SLOT] = 0
        return True
    plan.at[NEXT_PAIR] = plan.at[WAVE_END]
    return False


@kernel
def _best(plan: Plan, pool: Pool, fc: Forecast) -> tuple[int, int]:
    """(pair, slot) of the largest known gain above the least that can be paid for; (-1, 0) if there is none."""
    best, slot = -1, 0
    most = plan.value[1]
    for q in range(plan.at[WAVE_END]):
        for s in range(SLOTS):
            if plan.version[q, s] != DEAD and plan.gain[q, s] > most:
                if affordable(pool, fc, q, s) and not plan.banned[q]:
                    best, slot, most = q, s, plan.gain[q, s]
                else:
                    plan.version[q, s] = DEAD
    return best, slot


@kernel
def advance(
    plan: Plan, pool: Pool, fc: Forecast, judge: Judge, board: Board, paths: PathTable, state: State,
    steps: int, evals: int,
) -> None:  # fmt: skip
    """Take up to `steps` steps, until `plan.at[EVALS]` reaches `evals` or the plan is done."""
    for _ in range(steps):
        if plan.at[EVALS] >= evals or plan.at[DONE]:
            return
        if plan.at[NEXT_SLOT] < SLOTS:
            q, s = plan.at[NEXT_PAIR], plan.at[NEXT_SLOT]
            plan.at[NEXT_SLOT] += 1
            evaluates = affordable(pool, fc, q, s)
        elif _propose_next(plan, pool, fc, board, paths, state):
            continue
        else:
            q, s = _best(plan, pool, fc)
            evaluates = q >= 0 and plan.version[q, s] != plan.at[VERSION]
            if q >= 0 and plan.at[N_PLAN] + pool.size[q, s] > MAX_PLAN:
                plan.at[DONE] = 1
            elif q >= 0 and not evaluates:
                make_candidate(plan, pool, fc, q, s)
            elif q < 0 and plan.at[WAVE_END] < pool.at[0]:
                plan.at[WAVE_END] = min(plan.at[WAVE_END] + plan.at[WAVE], pool.at[0])
            elif q < 0:
                plan.at[DONE] = 1
        if evaluates:
            evaluate_candidate(plan, pool, fc, judge, q, s)


@kernel
def close_plan(plan: Plan, pool: Pool, fc: Forecast) -> None:
    """The budget has ended: if nothing was made yet, make the best candidate seen so far."""
    q, s = _best(plan, pool, fc)
    if plan.at[N_PLAN] == 0 and q >= 0 and plan.version[q, s] == plan.at[VERSION]:
        make_candidate(plan, pool, fc, q, s)
