"""Our own players, by name: the two that come with the official game, and rule-based ones of several strengths.

An agent sees the whole position (as all players of Orbit Wars do), its seat and a random stream, and answers with
launches f64[L, 3]: planet index, angle (radians), ships.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from td_loop.games.orbit_wars.forecast import Forecast, begin, make_forecast
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.planner import Style, Workspace, make_workspace, plan
from td_loop.games.orbit_wars.state import (
    CENTER,
    EPISODE,
    N_PLANETS,
    ROTATION_RADIUS_LIMIT,
    Action,
    Position,
)

Agent = Callable[[Position, int, np.random.Generator], Action]

_FORECAST_GAMMA = 0.97  # the planner does not read the discounted production; any value does
_OFFICIAL_LEAST = 20  # the official agents launch half a garrison, and only when that is at least 20 ships


def _action(moves: list[tuple[int, float, int]]) -> Action:
    return np.array(moves, np.float64).reshape(-1, 3)


def idle(position: Position, seat: int, rng: np.random.Generator) -> Action:
    """Never launches."""
    return _action([])


def random_(position: Position, seat: int, rng: np.random.Generator) -> Action:
    """The official `random` agent: half of every large garrison, in any direction."""
    s = position.state
    moves = []
    for p in range(int(s.head[N_PLANETS])):
        if s.p_owner[p] == seat and s.p_ships[p] > 0:
            angle = rng.uniform(0.0, 2.0 * math.pi)
            ships = int(s.p_ships[p]) // 2
            if ships >= _OFFICIAL_LEAST:
                moves.append((p, angle, ships))
    return _action(moves)


def starter(position: Position, seat: int, rng: np.random.Generator) -> Action:
    """The official `starter` agent: half of every large garrison towards the nearest static planet of others.

    Written with the official operations in plain Python: symmetric maps make ties that the last bit decides.
    """
    s = position.state
    n = int(s.head[N_PLANETS])
    x, y = s.p_x[:n].tolist(), s.p_y[:n].tolist()
    owner, ships, radius = s.p_owner[:n].tolist(), s.p_ships[:n].tolist(), s.p_radius[:n].tolist()
    targets = [
        p
        for p in range(n)
        if owner[p] != seat
        and math.sqrt((x[p] - CENTER) ** 2 + (y[p] - CENTER) ** 2) + radius[p] >= ROTATION_RADIUS_LIMIT
    ]
    moves = []
    for p in range(n):
        half = ships[p] // 2
        if owner[p] != seat or half < _OFFICIAL_LEAST or not targets:
            continue
        t = min(targets, key=lambda t: math.sqrt((x[p] - x[t]) ** 2 + (y[p] - y[t]) ** 2))
        moves.append((p, math.atan2(y[t] - y[p], x[t] - x[p]), half))
    return _action(moves)


@lru_cache(maxsize=8)
def _buffers(capacity: int, episode_steps: int) -> tuple[Forecast, Workspace]:
    return make_forecast(capacity, episode_steps, _FORECAST_GAMMA), make_workspace(capacity)


def planned(style: Style) -> Agent:
    """A rule-based player of the given style."""

    def agent(position: Position, seat: int, rng: np.random.Generator) -> Action:
        board, state = position
        capacity = state.p_x.shape[0]
        fc, ws = _buffers(capacity, int(board.cfg[EPISODE]))
        paths = path_table(board)
        begin(fc, board, paths, state)
        wrong = np.exp(style.noise * rng.standard_normal(capacity))
        awake = np.asarray(rng.random(capacity) >= style.lapse)
        n = plan(board, paths, state, fc, style, ws, seat, wrong, awake)
        action = ws.moves[:n].copy()
        if rng.random() < style.blunder:
            action = _blunder(position, seat, rng, action)
        return action

    return agent


def _blunder(position: Position, seat: int, rng: np.random.Generator, action: Action) -> Action:
    """`action` with half of what is left on some planet sent off in any direction."""
    s = position.state
    left = np.where(s.p_owner == seat, s.p_ships, 0)[: s.head[N_PLANETS]]
    np.subtract.at(left, action[:, 0].astype(np.int64), action[:, 2].astype(np.int64))
    choices = np.flatnonzero(left >= 2)
    if not len(choices):
        return action
    p = int(rng.choice(choices))
    angle = float(np.float32(rng.uniform(-math.pi, math.pi)))
    return np.concatenate([action, _action([(p, angle, int(left[p]) // 2)])])


RUSHER = Style(horizon=40.0, enemy=4.0, trade=0.1, overkill=0.5, reach=30.0, support=0.0)
GREEDY = Style(horizon=60.0, reach=30.0)
BALANCED = Style(horizon=36.0, trade=0.6, least=1.0, reach=20.0, front=20.0, allies=3.0)
SETTLER = Style(horizon=60.0, enemy=-0.8, trade=0.6, least=1.5, reach=25.0, reserve=15.0)  # two make long games

STYLES: dict[str, Style] = {"rusher": RUSHER, "greedy": GREEDY, "balanced": BALANCED, "settler": SETTLER}
"""The rule-based players at their best; `weakened` makes lesser ones of them."""

AGENTS: dict[str, Agent] = {
    "idle": idle,
    "random": random_,
    "starter": starter,
    **{name: planned(style) for name, style in STYLES.items()},
}
"""All agents by name."""


def weakened(style: Style, skill: float) -> Style:
    """`style` as played by one who misjudges, overlooks and blunders; `skill`: 1 the style itself, 0 the worst."""
    error = 1.0 - skill
    return style._replace(
        noise=style.noise + 1.0 * error,
        lapse=min(1.0, style.lapse + 0.6 * error),
        blunder=min(1.0, style.blunder + 0.2 * error),
    )
