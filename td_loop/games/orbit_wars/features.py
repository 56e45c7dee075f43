"""Features of every seat: what each holds, what it will hold once all that is under way has landed, and where."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from td_loop.games.orbit_wars.forecast import HORIZON, LEFT, MARKS, PLANETS, SEATS, Forecast
from td_loop.games.orbit_wars.state import F64, N_PLANETS, STEP, Board, State
from td_loop.kernels import inlined, kernel

RANGE = 18.0

FEATURE_NAMES = (
    "ships_now",
    "prod_now",
    "planets_now",
    "ships_near",
    "prod_near",
    "ships_far",
    "prod_far",
    "planets_far",
    "c_prod",
    "aloft",
    "rule",
    "wealth",
    "wealth_log",
    "ships_log",
    "prod_log",
    "wealth_late",
    "neutral",
    "danger",
    "pressure",
    "frontier",
    "idle",
    "comets",
    "largest",
    "territory",
    "ships_lead_late",
    "prod_lead_early",
    "hold",
    "neutral_cheap",
    "strike",
    "support",
    "cprod_log",
    "rank_gap",
)
N_FEATURES = len(FEATURE_NAMES)


@kernel
def closeness(state: State, out: F64) -> None:
    """out[i, j] = exp(-distance of planets i and j / RANGE), f64[C, C]."""
    n = state.head[N_PLANETS]
    for i in range(n):
        out[i, i] = 1.0
        for j in range(i):
            dx, dy = state.p_x[i] - state.p_x[j], state.p_y[i] - state.p_y[j]
            w = math.exp(-math.sqrt(dx * dx + dy * dy) / RANGE)
            out[i, j] = w
            out[j, i] = w


@inlined
def _share(x, total):
    return x / total if total > 0.0 else 0.0


@kernel
def features(fc, close, out):
    P = fc.span[SEATS]
    n = fc.span[PLANETS]
    left = fc.span[LEFT]
    out[:] = 0.0
    ships = np.zeros((MARKS, 4))
    prod = np.zeros((MARKS, 4))
    count = np.zeros((MARKS, 4))
    cp = np.zeros(4)
    fly = np.zeros(4)
    big = np.zeros(4)
    phi = np.zeros((n, 4))
    # ships under way at each mark
    for s in range(P):
        acc = 0.0
        m = MARKS - 1
        for t in range(HORIZON + 1, -1, -1):
            while m >= 0 and t == fc.mark[m]:
                ships[m, s] += acc
                m -= 1
            acc += fc.landing[t, s]
        fly[s] = acc
    comets = np.zeros(4)
    for i in range(n):
        for m in range(MARKS):
            o = fc.owner_at[m, i]
            if o >= 0:
                ships[m, o] += fc.ships_at[m, i]
                prod[m, o] += fc.prod_at[m, i]
                count[m, o] += 1
        for s in range(P):
            cp[s] += fc.c_prod[i, s]
        o = fc.owner_at[2, i]
        if o >= 0:
            big[o] = max(big[o], fc.ships_at[2, i])
        if fc.owner_at[1, i] >= 0 and fc.gone[i] < 1000:
            comets[fc.owner_at[1, i]] += min(fc.gone[i], left) + fc.ships_at[1, i] * 0
        o = fc.owner_at[1, i]
        if o >= 0:
            x = float(fc.ships_at[1, i])
            for j in range(n):
                phi[j, o] += x * close[i, j]
    ts = np.zeros(MARKS)
    tp = np.zeros(MARKS)
    tc = np.zeros(MARKS)
    for m in range(MARKS):
        for s in range(P):
            ts[m] += ships[m, s]
            tp[m] += prod[m, s]
            tc[m] += count[m, s]
    tcp = cp.sum()
    tfly = fly.sum()
    phase = min(1.0, left / 450.0)
    wealth = np.zeros(4)
    for s in range(P):
        wealth[s] = ships[1, s] + cp[s]
    tw = wealth.sum()
    neutral_total = 0.0
    for i in range(n):
        if fc.owner_at[2, i] < 0:
            neutral_total += fc.prod_at[2, i]
    step = 500.0 - left
    late = min(1.0, step / 100.0)
    for s in range(P):
        bw = 0.0
        bs = 0.0
        bp = 0.0
        bc = 0.0
        for o in range(P):
            if o != s:
                bw = max(bw, wealth[o])
                bs = max(bs, ships[1, o])
                bp = max(bp, prod[2, o])
                bc = max(bc, cp[o])
        out[s, 0] = _share(ships[0, s], ts[0])
        out[s, 1] = _share(prod[0, s], tp[0])
        out[s, 2] = _share(count[0, s], tc[0])
        out[s, 3] = _share(ships[1, s], ts[1])
        out[s, 4] = _share(prod[1, s], tp[1])
        out[s, 5] = _share(ships[2, s], ts[2])
        out[s, 6] = _share(prod[2, s], tp[2])
        out[s, 7] = _share(count[2, s], tc[2])
        out[s, 8] = _share(cp[s], tcp)
        out[s, 9] = _share(fly[s], ts[0])
        out[s, 10] = _share(ships[0, s] + 20 * prod[0, s], ts[0] + 20 * tp[0])
        out[s, 11] = _share(wealth[s], tw)
        out[s, 12] = math.log((wealth[s] + 10) / (bw + 10))
        out[s, 13] = math.log((ships[1, s] + 10) / (bs + 10))
        out[s, 14] = math.log((prod[2, s] + 2) / (bp + 2))
        out[s, 15] = out[s, 12] * late
        neut = 0.0
        danger = 0.0
        press = 0.0
        terr = 0.0
        front = 0.0
        fw = 0.0
        hold = 0.0
        cheap = 0.0
        idle = 0.0
        strike = 0.0
        support = 0.0
        for i in range(n):
            me = phi[i, s]
            en = 0.0
            worst = 0.0
            for o in range(P):
                if o != s:
                    en += phi[i, o]
                    worst = max(worst, phi[i, o])
            sh = me / (me + en + 1.0)
            pr = fc.prod_at[2, i]
            terr += pr * sh
            own = fc.owner_at[2, i]
            if own < 0:
                neut += pr * sh
                cheap += pr * sh * math.exp(-fc.ships_at[2, i] / 20.0)
            elif own == s:
                r = worst / (me + worst + 1.0)
                danger += pr * r * r
                hold += pr * (1 - r)
                support += pr * min(1.0, (me - worst) / (fc.ships_at[1, i] + 10.0)) if me > worst else 0.0
                d = 0.0
                for j in range(n):
                    if fc.owner_at[2, j] >= 0 and fc.owner_at[2, j] != s:
                        d = max(d, close[i, j])
                x = fc.ships_at[2, i]
                front += x * -RANGE * math.log(d + 1e-3)
                fw += x
                dd = 0.0
                for j in range(n):
                    if fc.owner_at[2, j] != s and fc.prod_at[2, j] > 0:
                        dd = max(dd, close[i, j])
                idle += x * -RANGE * math.log(dd + 1e-3)
            else:
                strike += pr * sh * sh
            press += sh
        out[s, 16] = neut / (tp[2] + 1)
        out[s, 17] = danger / (tp[2] + 1)
        out[s, 18] = press / n
        out[s, 19] = front / (fw + 1)
        out[s, 20] = idle / (fw + 1)
        out[s, 21] = comets[s] / (ts[1] + 1)
        out[s, 22] = big[s] / (ts[2] + 1)
        tpa = 0.0
        for i in range(n):
            tpa += fc.prod_at[2, i]
        out[s, 23] = terr / (tpa + 1)
        out[s, 24] = (ships[1, s] - bs) / (tp[1] * min(left, 30) + ts[1] + 1)
        out[s, 25] = (prod[2, s] - bp) / (tp[2] + 1) * (1 - late)
        out[s, 26] = hold / (tp[2] + 1)
        out[s, 27] = cheap / (tp[2] + 1)
        out[s, 28] = strike / (tp[2] + 1)
        out[s, 29] = support / (tp[2] + 1)
        out[s, 30] = math.log((cp[s] + 10) / (bc + 10))
        out[s, 31] = (prod[2, s] - bp) / (tp[2] + 1) * late
