"""What becomes of every planet if nobody launches any more: arrivals in order, fought out by the official rules.

`C` is the planet capacity, `HORIZON` the number of ticks looked ahead, seats are 0..3. Tick k is the
k-th from now. A launch touches two timelines only, so a search changes those two (`send`) and asks what follows,
instead of playing everything again. What is summed over planets or fleets (`reach`, `late`) is whole numbers: they
are kept up by differences, and a launch that is taken back leaves no trace. Comets that have not appeared yet are
unknown here, as to a player.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from td_loop.games.orbit_wars.aim import FLYING, trace
from td_loop.games.orbit_wars.paths import PathTable
from td_loop.games.orbit_wars.state import EPISODE, F64, I64, N_FLEETS, N_PLANETS, STEP, Board, Position, State
from td_loop.games.orbit_wars.turn import fight
from td_loop.kernels import inlined, kernel

HORIZON = 80
"""Ticks looked ahead; a fleet that lands later counts as under way."""

NEVER = 1 << 30
"""The tick of what does not happen."""

MARKS = 3
"""Moments at which `settle` writes down who holds a planet: now, MARK_NEAR and MARK_FAR."""
MARK_NEAR = 12
MARK_FAR = 40

RANGE = 18.0
"""Distance over which a garrison's reach falls to 1/e: four to six turns of a middling fleet."""
REACH_UNIT = 1 << 16
"""What one ship on the very planet adds to `reach`."""

# Positions in Forecast.span
TICKS, LEFT, PLANETS, SEATS, PLAYED = 0, 1, 2, 3, 4


class Forecast(NamedTuple):
    """Timelines of all planets, and what `settle` last found on each.

    Rows of planets at and beyond span[PLANETS] are scrap.
    """

    span: I64  # [5] ticks in sight (HORIZON, fewer near the end), ticks left in the game, planets, P, turns played
    owner: I64  # [C] owner now
    ships: I64  # [C] garrison now, less what was sent
    prod: I64  # [C]
    gone: I64  # [C] tick in which a comet vanishes, or NEVER
    arrivals: I64  # [C, HORIZON + 1, 4] ships landing, by tick and seat
    ticks: I64  # [C, HORIZON + 1] ticks with arrivals, ascending
    n_ticks: I64  # [C]
    late: I64  # [MARKS, 4] ships under way that land after each mark, or never
    mark: I64  # [MARKS] the moments written down (capped by the end of the game)
    owner_at: I64  # [MARKS, C] owner at each mark
    ships_at: I64  # [MARKS, C] garrison at each mark
    prod_at: I64  # [MARKS, C] production at each mark: 0 once a comet is gone
    c_prod: F64  # [C, 4] discounted production over the ticks left, by the seat that gets it
    close: I64  # [C, C] exp(-distance now / RANGE), in REACH_UNITs
    reach: I64  # [4, C] ships of a seat on all planets at MARK_NEAR, each times its `close` to this planet
    discount: F64  # [episodeSteps + 1] discount[n] = sum over k = 1..n of gamma ** k


def make_forecast(capacity: int, episode_steps: int, gamma: float) -> Forecast:
    """An empty forecast for boards of `capacity` planets and games of `episode_steps`."""
    per_planet = (MARKS, capacity)
    discount = np.concatenate([[0.0], np.cumsum(gamma ** np.arange(1.0, max(episode_steps, 1) + 1))])

    def ints(*shape: int) -> I64:
        return np.zeros(shape, np.int64)

    return Forecast(
        ints(5), ints(capacity), ints(capacity), ints(capacity), ints(capacity),
        ints(capacity, HORIZON + 1, 4), ints(capacity, HORIZON + 1), ints(capacity), ints(MARKS, 4),
        ints(MARKS), ints(*per_planet), ints(*per_planet), ints(*per_planet),
        np.zeros((capacity, 4)), ints(capacity, capacity), ints(4, capacity), discount,
    )  # fmt: skip


def forecast_for(pos: Position, gamma: float) -> Forecast:
    """An empty forecast with room for `pos`."""
    return make_forecast(pos.state.p_x.shape[0], int(pos.board.cfg[EPISODE]), gamma)


@kernel
def add_arrival(fc: Forecast, planet: int, tick: int, seat: int, ships: int) -> None:
    """`ships` more of `seat` land on `planet` in `tick` (negative: take back what was added). Does not settle."""
    for m in range(MARKS):
        if tick > fc.mark[m]:
            fc.late[m, seat] += ships
    if planet < 0 or tick > fc.span[TICKS]:
        return
    row = fc.arrivals[planet, tick]
    was = row[0] | row[1] | row[2] | row[3]
    row[seat] += ships
    now = row[0] | row[1] | row[2] | row[3]
    ticks, n = fc.ticks[planet], fc.n_ticks[planet]
    if was == 0 and now != 0:
        j = n
        while j > 0 and ticks[j - 1] > tick:
            ticks[j] = ticks[j - 1]
            j -= 1
        ticks[j] = tick
        fc.n_ticks[planet] = n + 1
    elif was != 0 and now == 0:
        j = 0
        while ticks[j] != tick:
            j += 1
        for m in range(j, n - 1):
            ticks[m] = ticks[m + 1]
        fc.n_ticks[planet] = n - 1


@inlined
def _stretch(fc: Forecast, planet: int, owner: int, ships: int) -> None:
    """`ships` more of `owner` reach out from a planet."""
    if owner < 0 or ships == 0:
        return
    for j in range(fc.span[PLANETS]):
        fc.reach[owner, j] += ships * fc.close[planet, j]


@kernel
def settle(fc: Forecast, planet: int) -> None:
    """Fight out the timeline of one planet: what it is at each mark, `c_prod` and its part in `reach`."""
    before, had = fc.owner_at[1, planet], fc.ships_at[1, planet]
    _fight_out(fc, planet)
    owner, ships = fc.owner_at[1, planet], fc.ships_at[1, planet]
    if owner == before:
        _stretch(fc, planet, owner, ships - had)
    else:
        _stretch(fc, planet, before, -had)
        _stretch(fc, planet, owner, ships)


@kernel
def _fight_out(fc: Forecast, planet: int) -> None:
    owner, ships, prod = fc.owner[planet], fc.ships[planet], fc.prod[planet]
    for seat in range(4):
        fc.c_prod[planet, seat] = 0.0
    # What a comet makes or holds in its last tick vanishes with it.
    end = min(fc.span[LEFT], fc.gone[planet] - 1)
    at = 0
    m = 0
    for j in range(fc.n_ticks[planet] + 1):
        tick = fc.ticks[planet, j] if j < fc.n_ticks[planet] else NEVER
        while m < MARKS and fc.mark[m] < tick:
            waited = min(fc.mark[m], end) - at
            fc.owner_at[m, planet] = owner
            fc.ships_at[m, planet] = ships + prod * waited if owner >= 0 else ships
            fc.prod_at[m, planet] = prod if fc.mark[m] < fc.gone[planet] else 0
            m += 1
        upto = min(tick, end)
        if owner >= 0 and upto > at:
            fc.c_prod[planet, owner] += prod * (fc.discount[upto] - fc.discount[at])
            ships += prod * (upto - at)
        at = upto
        if tick <= end:
            owner, ships = fight(owner, ships, fc.arrivals[planet], tick)
    if end == 0 and fc.gone[planet] == 1:
        # The comet vanishes in the coming tick: what does not leave it now is lost.
        for m in range(1, MARKS):
            fc.ships_at[m, planet] = 0


@kernel
def holding(fc: Forecast, planet: int, tick: int) -> tuple[int, int]:
    """(owner, garrison) of a planet after `tick`, arrivals of that tick fought out; (-1, 0) once it is gone."""
    if tick >= fc.gone[planet]:
        return -1, 0
    owner, ships, prod = fc.owner[planet], fc.ships[planet], fc.prod[planet]
    at = 0
    for j in range(fc.n_ticks[planet]):
        event = fc.ticks[planet, j]
        if event > tick:
            break
        if owner >= 0:
            ships += prod * (event - at)
        at = event
        owner, ships = fight(owner, ships, fc.arrivals[planet], event)
    if owner >= 0:
        ships += prod * (tick - at)
    return owner, ships


@kernel
def shortfall(fc: Forecast, planet: int, seat: int, eta: int, until: int) -> tuple[int, int, int]:
    """How many ships `seat` lacks on `planet` from tick `eta` on to hold it until tick `until`.

    Returns:
        (ships, since, holder): ships to land at `eta`, the first tick in which somebody else holds the planet, and
        who; (0, until, seat) when `seat` holds it anyway.
    """
    until = min(until, fc.gone[planet] - 1)
    if eta > until:
        return 0, until, seat
    owner, ships = holding(fc, planet, eta)
    if owner != seat:
        return ships + 1, eta, owner
    at = eta
    for j in range(fc.n_ticks[planet]):
        tick = fc.ticks[planet, j]
        if tick <= eta:
            continue
        if tick > until:
            break
        owner, ships = fight(owner, ships + fc.prod[planet] * (tick - at), fc.arrivals[planet], tick)
        at = tick
        if owner != seat:
            return ships + 1, tick, owner
    return 0, until, seat


@kernel
def spare(fc: Forecast, planet: int) -> int:
    """Ships that can leave the planet now without its owner losing it to a fleet that is under way."""
    owner, ships, prod = fc.owner[planet], fc.ships[planet], fc.prod[planet]
    least: int = ships
    at = 0
    for j in range(fc.n_ticks[planet]):
        tick = fc.ticks[planet, j]
        if tick >= fc.gone[planet]:
            break
        now, ships = fight(owner, ships + prod * (tick - at), fc.arrivals[planet], tick)
        at = tick
        if now != owner:
            return 0
        least = min(least, ships)
    return max(least, 0)


@kernel
def begin(fc: Forecast, board: Board, paths: PathTable, state: State) -> None:
    """Make the forecast of `state`: every fleet under way is traced to where it lands, every planet settled."""
    for i in range(fc.owner.shape[0]):
        for j in range(fc.n_ticks[i]):
            for seat in range(4):
                fc.arrivals[i, fc.ticks[i, j], seat] = 0
        fc.n_ticks[i] = 0
        fc.owner_at[1, i] = -1  # nothing of it is in `reach` yet
    fc.late[:] = 0
    fc.reach[:] = 0
    left = max(0, np.int64(board.cfg[EPISODE]) - 1 - state.head[STEP])
    n = state.head[N_PLANETS]
    fc.span[TICKS] = min(HORIZON, left)
    fc.span[LEFT] = left
    fc.span[PLANETS] = n
    fc.span[SEATS] = board.n_players
    fc.span[PLAYED] = state.head[STEP]
    fc.mark[0] = 0
    fc.mark[1] = min(MARK_NEAR, left)
    fc.mark[2] = min(MARK_FAR, left)
    for i in range(n):
        fc.owner[i] = state.p_owner[i]
        fc.ships[i] = state.p_ships[i]
        fc.prod[i] = state.p_prod[i]
        group = state.p_comet[i]
        fc.gone[i] = NEVER if group < 0 else board.comet_len[group] - state.comet_at[group]
        for j in range(i + 1):
            dx, dy = state.p_x[i] - state.p_x[j], state.p_y[i] - state.p_y[j]
            w = round(REACH_UNIT * math.exp(-math.sqrt(dx * dx + dy * dy) / RANGE))
            fc.close[i, j] = w
            fc.close[j, i] = w
    for f in range(state.head[N_FLEETS]):
        eta, where = trace(board, paths, state, state.f_x[f], state.f_y[f], state.f_angle[f], state.f_ships[f])
        if where == FLYING:
            add_arrival(fc, -1, NEVER, state.f_owner[f], state.f_ships[f])
        elif where >= 0:
            add_arrival(fc, where, eta, state.f_owner[f], state.f_ships[f])
    for i in range(n):
        settle(fc, i)


@kernel
def send(fc: Forecast, seat: int, src: int, dst: int, ships: int, eta: int) -> None:
    """`seat` launches `ships` from `src`; they land on `dst` in tick `eta`. Both planets are settled anew.

    A negative number of ships takes the same launch back.
    """
    fc.ships[src] -= ships
    add_arrival(fc, dst, eta, seat, ships)
    settle(fc, src)
    settle(fc, dst)
