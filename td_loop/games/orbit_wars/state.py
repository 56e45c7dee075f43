"""The state of a game of Orbit Wars as flat arrays: what every kernel of this folder reads and writes.

`M` is the number of home planets (4 per symmetric group), `C` the planet capacity (M + room for comets),
`N` the fleet capacity, `G` the number of comet groups (one per spawn turn).

Planets are addressed by index. In every game of the official engine the index *is* the id: home planets are
0..M-1 in order, a comet group takes the four ids after the highest, and it is gone before the next one comes.
(Whoever reads a state from outside maps ids to indices at the rim.) List order is kept: planets, fleets and
comet members stand in the order of the official lists, because collisions and combat are resolved in it.

`Board` and `State` are NamedTuples of arrays, so a numba kernel takes each as one argument.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BOARD_SIZE = 100.0
CENTER = 50.0
SUN_RADIUS = 10.0
ROTATION_RADIUS_LIMIT = 50.0
COMET_RADIUS = 1.0
COMET_PRODUCTION = 1
COMET_GROUP = 4  # comets a group
COMET_SPAWN_STEPS = (50, 150, 250, 350, 450)
MAX_COMET_PATH = 40
EPISODE_STEPS = 500
SHIP_SPEED = 6.0
SPEED_TABLE = 1025
COMET_SPEED = 4.0

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
B1 = npt.NDArray[np.bool_]

# Positions in Board.cfg
ANGULAR_VELOCITY, MAX_SPEED, EPISODE, SQUARE = 0, 1, 2, 3
CFG_SIZE = 4

# Positions in State.head
STEP, N_PLANETS, N_FLEETS, NEXT_FLEET_ID, DONE = 0, 1, 2, 3, 4
HEAD_SIZE = 5


class Board(NamedTuple):
    """What does not change during a game. Shared by all of its states; never written to.

    Comet groups listed here include those to come: the engine needs them, a search must not look at groups whose
    spawn step lies ahead of the state's step (no planet's `comet` names them yet).
    """

    cfg: F64  # [CFG_SIZE] angular velocity (radians a turn), ship speed, episodeSteps, and 2.0 (see `exact`)
    speed: F64  # [SPEED_TABLE] units a turn of a fleet by its ships (index 0 is scrap); larger fleets are computed
    n_players: int  # P
    home_x: F64  # [M] initial positions (of observation 0)
    home_y: F64  # [M]
    home_ships: I64  # [M] garrisons as drawn, before the home planets got theirs
    orbit_r: F64  # [M] sqrt(dx**2 + dy**2) from the centre, as the official engine computes it
    orbit_angle: F64  # [M] atan2(dy, dx) of the initial position
    rotates: B1  # [M] orbit_r + radius < ROTATION_RADIUS_LIMIT
    comet_spawn: I64  # [G] the group appears in observation `comet_spawn[g]` (50, 150, ...)
    comet_ships: I64  # [G] ships of each of the group's comets when it appears
    comet_len: I64  # [G] points on the path
    comet_x: F64  # [G, COMET_GROUP, MAX_COMET_PATH]
    comet_y: F64  # [G, COMET_GROUP, MAX_COMET_PATH]


class State(NamedTuple):
    """One turn. Rows at and beyond head[N_PLANETS] / head[N_FLEETS] are scrap.

    `head[STEP]` is the `step` of the observation: 0 at the start. A planet that rotates stands at
    orbit_angle + angular velocity * (step - 1) when step >= 1, and at its home position at step 0.
    """

    head: I64  # [HEAD_SIZE]
    p_owner: I64  # [C] seat, or -1
    p_x: F64  # [C]
    p_y: F64  # [C]
    p_radius: F64  # [C]
    p_ships: I64  # [C]
    p_prod: I64  # [C] ships a turn when owned
    p_comet: I64  # [C] comet group g, or -1 for a home planet
    p_member: I64  # [C] which of the group's four paths, or -1
    comet_at: I64  # [G] path_index of each group: -1 before it is placed; meaningful while a planet names it
    f_id: I64  # [N]
    f_owner: I64  # [N]
    f_x: F64  # [N]
    f_y: F64  # [N]
    f_angle: F64  # [N]
    f_from: I64  # [N] planet index that it left
    f_ships: I64  # [N]


Action = npt.NDArray[np.float64]
"""[L, 3] launches of one seat in one turn: planet index, angle (radians), ships. Made in this order."""


class Position(NamedTuple):
    """What the game boundary calls a state: a board and one turn on it."""

    board: Board
    state: State


def copy_state(s: State) -> State:
    """A state that shares no array with `s`."""
    return State._make(a.copy() for a in s)
