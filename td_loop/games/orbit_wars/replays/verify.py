"""Does our engine reproduce a recorded game, bit for bit? From its seed, or without one, frame by frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from td_loop.games.orbit_wars.board import empty_state, new_game
from td_loop.games.orbit_wars.engine import rewards, with_room
from td_loop.games.orbit_wars.replays.frames import FIELDS, SAME, follow, home_table, load, make_board, move_rows
from td_loop.games.orbit_wars.replays.record import (
    GROUP_LEN,
    GROUP_SHIPS,
    HOME_SHIPS,
    HOME_X,
    HOME_Y,
    SPAWN,
    Frames,
    GameRecord,
)
from td_loop.games.orbit_wars.state import COMET_GROUP, N_FLEETS, Board, Position

EXACT, STEPWISE, DIFFERS = "exact", "stepwise", "differs"


@dataclass(frozen=True)
class Difference:
    """The first place in which our engine leaves the recorded game.

    Attributes:
        turn: the frame.
        field: named like `planets[3].ships` or `fleets[12].x`.
        recorded: its value in the file.
        ours: its value in our engine.
    """

    turn: int
    field: str
    recorded: float
    ours: float

    def __str__(self) -> str:
        return f"turn {self.turn}, {self.field}: recorded {self.recorded!r}, ours {self.ours!r}"


@dataclass(frozen=True)
class Verdict:
    """What verifying a game found.

    Attributes:
        from_seed: map, comets and all turns were made from the seed; else each recorded frame was stepped once.
        difference: None when everything agrees.
    """

    from_seed: bool
    difference: Difference | None

    @property
    def status(self) -> str:
        """EXACT, STEPWISE (no seed, every frame steps into the next) or DIFFERS."""
        if self.difference:
            return DIFFERS
        return EXACT if self.from_seed else STEPWISE

    @property
    def label(self) -> str:
        """The status, or what differs: what a store's index keeps."""
        return str(self.difference) if self.difference else self.status


def verdict(record: GameRecord) -> Verdict:
    """Play a recorded game with our engine and compare every frame, comet path and reward."""
    f = record.frames
    from_seed = record.seed is not None and record.n_players in (2, 4)
    recorded_board = make_board(f.cfg, record.n_players, f.home, f.group, f.path)
    if from_seed:
        assert record.seed is not None
        start = new_game(
            record.seed,
            record.n_players,
            episode_steps=int(f.cfg[2]),
            ship_speed=float(f.cfg[1]),
            comet_speed=record.comet_speed,
        )
    else:
        # Room for a group more than any frame shows: a rule of old may let groups overlap.
        capacity = f.planet_f.shape[2] + COMET_GROUP
        start = Position(recorded_board, empty_state(capacity, int(f.head[0, N_FLEETS]), f.group.shape[1]))
        load(f, 0, start.state)
    differences = [_map_difference(f, start.board), _comet_difference(f, start.board)]
    moves, moves_end = move_rows(f.launch, f.launch_end)
    made = np.diff(moves_end, prepend=0)
    state = with_room(start.state, int((f.head[:, N_FLEETS] + made).max()) - int(start.state.head[N_FLEETS]))
    turn, field, row, recorded, ours = follow(f, start.board, state, moves, moves_end, not from_seed)
    if field != SAME:
        differences.append(Difference(turn, FIELDS[field].format(row), recorded, ours))
    elif record.ended:
        differences.append(_reward_difference(record, Position(start.board, state)))
    found = [d for d in differences if d]
    return Verdict(from_seed, min(found, key=lambda d: d.turn) if found else None)


def _map_difference(f: Frames, board: Board) -> Difference | None:
    if board.cfg[0] != f.cfg[0]:
        return Difference(0, "angular_velocity", float(f.cfg[0]), float(board.cfg[0]))
    if len(board.home_x) != f.home.shape[1]:
        return Difference(0, "len(initial_planets)", float(f.home.shape[1]), float(len(board.home_x)))
    ours = home_table(board)
    for row, field in ((HOME_X, "x"), (HOME_Y, "y"), (HOME_SHIPS, "ships")):
        if len(at := np.flatnonzero(f.home[row] != ours[row])):
            i = int(at[0])
            return Difference(0, f"initial_planets[{i}].{field}", float(f.home[row, i]), float(ours[row, i]))
    return None


def _comet_difference(f: Frames, board: Board) -> Difference | None:
    """Comet paths whole: frames show only the part that was flown before the game ended."""
    for g, spawn in enumerate(f.group[SPAWN].tolist()):
        at = np.flatnonzero((board.comet_spawn == spawn) & (board.comet_len > 0))
        if not len(at):
            return Difference(spawn, f"comets[{g}]", 1.0, 0.0)
        o, n = int(at[0]), int(f.group[GROUP_LEN, g])
        if int(board.comet_len[o]) != n:
            return Difference(spawn, f"comets[{g}] path length", float(n), float(board.comet_len[o]))
        if int(board.comet_ships[o]) != f.group[GROUP_SHIPS, g]:
            return Difference(
                spawn, f"comets[{g}] ships", float(f.group[GROUP_SHIPS, g]), float(board.comet_ships[o])
            )
        for axis, ours in enumerate((board.comet_x[o], board.comet_y[o])):
            if len(bad := np.argwhere(f.path[axis, g, :, :n] != ours[:, :n])):
                i, k = bad[0].tolist()
                name = f"comets[{g}].paths[{i}][{k}].{'xy'[axis]}"
                return Difference(spawn, name, float(f.path[axis, g, i, k]), float(ours[i, k]))
    return None


def _reward_difference(record: GameRecord, end: Position) -> Difference | None:
    for seat, (recorded, ours) in enumerate(zip(record.rewards, rewards(end), strict=False)):
        if recorded is not None and recorded != ours:
            return Difference(record.n_frames - 1, f"rewards[{seat}]", recorded, float(ours))
    return None
