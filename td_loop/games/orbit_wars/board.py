"""Boards: a game's map and comets from its seed, and planet positions at any step."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from td_loop.errors import UsageError
from td_loop.games.orbit_wars import comets, mersenne, planets
from td_loop.games.orbit_wars.state import (
    ANGULAR_VELOCITY,
    B1,
    CENTER,
    CFG_SIZE,
    COMET_GROUP,
    COMET_SPAWN_STEPS,
    COMET_SPEED,
    EPISODE,
    EPISODE_STEPS,
    F64,
    HEAD_SIZE,
    I64,
    MAX_COMET_PATH,
    MAX_SPEED,
    N_PLANETS,
    ROTATION_RADIUS_LIMIT,
    SHIP_SPEED,
    SPEED_TABLE,
    SQUARE,
    STEP,
    Board,
    Position,
    State,
)
from td_loop.kernels import inlined

HOME_SHIPS = 10
START_FLEETS = 128  # fleet capacity of a new game; `engine.step` grows it as needed
_BOARDS_KEPT = 128


class _Map(NamedTuple):
    """What a seed draws, whatever the number of players."""

    board: Board  # with n_players 0
    radius: F64  # [M]
    prod: I64  # [M]
    home: int  # first planet of the home group


@inlined
def planet_xy(board: Board, planet: int, step: int) -> tuple[float, float]:
    """Where home planet `planet` stands in the observation of `step`, exactly as the official engine shows it."""
    if step < 1 or not board.rotates[planet]:
        return board.home_x[planet], board.home_y[planet]
    angle = board.orbit_angle[planet] + board.cfg[ANGULAR_VELOCITY] * (step - 1)
    return (
        CENTER + board.orbit_r[planet] * math.cos(angle),
        CENTER + board.orbit_r[planet] * math.sin(angle),
    )


@cache
def speed_table(ship_speed: float) -> F64:
    """f64[SPEED_TABLE]: units a turn by number of ships, computed as the official engine does."""
    table = np.ones(SPEED_TABLE)
    for ships in range(1, SPEED_TABLE):
        speed = 1.0 + (ship_speed - 1.0) * (math.log(ships) / math.log(1000)) ** 1.5
        table[ships] = min(speed, ship_speed)
    return table


@cache
def _walk_table() -> F64:
    return comets.walk_table()


def orbits(x: F64, y: F64, radius: F64) -> tuple[F64, F64, B1]:
    """Orbit radius, initial angle and "does it rotate" of planets, as the official engine computes them.

    Args:
        x, y, radius: [M] initial positions and radii.
    """
    # Python floats: numpy's square, sqrt and arctan2 need not agree with the C library's in the last bit.
    dx = [float(v) - CENTER for v in x]
    dy = [float(v) - CENTER for v in y]
    r = np.array([math.sqrt(a**2 + b**2) for a, b in zip(dx, dy, strict=True)])
    angle = np.array([math.atan2(b, a) for a, b in zip(dx, dy, strict=True)])
    return r, angle, r + radius < ROTATION_RADIUS_LIMIT


def make_cfg(angular_velocity: float, ship_speed: float, episode_steps: int) -> F64:
    """f64[CFG_SIZE] for a Board."""
    cfg = np.zeros(CFG_SIZE)
    cfg[ANGULAR_VELOCITY] = angular_velocity
    cfg[MAX_SPEED] = ship_speed
    cfg[EPISODE] = episode_steps
    cfg[SQUARE] = 2.0
    return cfg


@lru_cache(maxsize=_BOARDS_KEPT)
def _draw(seed: int, episode_steps: int, ship_speed: float, comet_speed: float) -> _Map:
    drawn = planets.make_planets()
    w, m, home = planets.draw_map(mersenne.seed_key(seed), 2.0, drawn)
    px, py, radius = (a[:m].copy() for a in (drawn.x, drawn.y, drawn.radius))
    ships, prod = (a[:m].copy() for a in (drawn.ships, drawn.prod))
    orbit_r, orbit_angle, rotates = orbits(px, py, radius)
    homes = comets.Homes(px, py, radius, orbit_r, orbit_angle, rotates, w)

    g = len(COMET_SPAWN_STEPS)
    comet_x = np.zeros((g, COMET_GROUP, MAX_COMET_PATH))
    comet_y = np.zeros((g, COMET_GROUP, MAX_COMET_PATH))
    comet_len = np.zeros(g, np.int64)
    comet_ships = np.zeros(g, np.int64)
    for i, spawn in enumerate(COMET_SPAWN_STEPS):
        comet_len[i], comet_ships[i] = comets.make_group(
            mersenne.seed_key(f"orbit_wars-comet-{seed}-{spawn}"),
            homes,
            spawn,
            comet_speed,
            2.0,
            _walk_table(),
            comet_x[i],
            comet_y[i],
        )
    board = Board(
        cfg=make_cfg(w, ship_speed, episode_steps),
        speed=speed_table(ship_speed),
        n_players=0,
        home_x=px,
        home_y=py,
        home_ships=ships,
        orbit_r=orbit_r,
        orbit_angle=orbit_angle,
        rotates=rotates,
        comet_spawn=np.array(COMET_SPAWN_STEPS, np.int64),
        comet_ships=comet_ships,
        comet_len=comet_len,
        comet_x=comet_x,
        comet_y=comet_y,
    )
    return _Map(board, radius, prod, home)


def forget() -> None:
    """Drop the maps kept in memory; a benchmark that counts their making calls this."""
    _draw.cache_clear()


def empty_state(planet_capacity: int, fleet_capacity: int, groups: int) -> State:
    """A state without planets and fleets, step 0."""
    c, n = planet_capacity, fleet_capacity
    return State(
        head=np.zeros(HEAD_SIZE, np.int64),
        p_owner=np.full(c, -1, np.int64),
        p_x=np.zeros(c),
        p_y=np.zeros(c),
        p_radius=np.zeros(c),
        p_ships=np.zeros(c, np.int64),
        p_prod=np.zeros(c, np.int64),
        p_comet=np.full(c, -1, np.int64),
        p_member=np.full(c, -1, np.int64),
        comet_at=np.full(groups, -1, np.int64),
        f_id=np.zeros(n, np.int64),
        f_owner=np.zeros(n, np.int64),
        f_x=np.zeros(n),
        f_y=np.zeros(n),
        f_angle=np.zeros(n),
        f_from=np.zeros(n, np.int64),
        f_ships=np.zeros(n, np.int64),
    )


def new_game(
    seed: int,
    n_players: int,
    *,
    episode_steps: int = EPISODE_STEPS,
    ship_speed: float = SHIP_SPEED,
    comet_speed: float = COMET_SPEED,
) -> Position:
    """The first state of a game, as the official environment shows it after `reset`.

    Args:
        seed: the episode seed (`info.seed` of a replay).
        n_players: 2 or 4.
        episode_steps: number of frames of a full game.
        ship_speed: largest speed of a fleet, units a turn.
        comet_speed: units a turn.

    Raises:
        UsageError: another number of players.
    """
    if n_players not in (2, 4):
        raise UsageError(f"Orbit Wars is played by 2 or 4 seats, not {n_players}")
    drawn = _draw(int(seed), int(episode_steps), float(ship_speed), float(comet_speed))
    m = len(drawn.prod)
    s = empty_state(m + COMET_GROUP, START_FLEETS, len(COMET_SPAWN_STEPS))
    s.head[STEP] = 0
    s.head[N_PLANETS] = m
    s.p_x[:m] = drawn.board.home_x
    s.p_y[:m] = drawn.board.home_y
    s.p_radius[:m] = drawn.radius
    s.p_ships[:m] = drawn.board.home_ships
    s.p_prod[:m] = drawn.prod
    homes = (0, 3) if n_players == 2 else (0, 1, 2, 3)
    for seat, copy in enumerate(homes):
        s.p_owner[drawn.home + copy] = seat
        s.p_ships[drawn.home + copy] = HOME_SHIPS
    return Position(drawn.board._replace(n_players=n_players), s)
