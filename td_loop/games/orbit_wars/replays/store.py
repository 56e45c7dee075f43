"""`ReplayStore`: random access to any frame of many games, from read-only mapped files.

Opening costs the index alone; a state costs a few microseconds. Processes that open one store share its pages.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.errors import ReplayError
from td_loop.games.base import MAX_SEATS, GameInfo, replay_set_hash
from td_loop.games.orbit_wars.replays.frames import make_board
from td_loop.games.orbit_wars.replays.layout import DTYPES, Entry, load_index
from td_loop.games.orbit_wars.replays.record import (
    HOME_ROWS,
    Array,
    Frames,
    GameRecord,
)
from td_loop.games.orbit_wars.state import (
    COMET_GROUP,
    HEAD_SIZE,
    MAX_COMET_PATH,
    Action,
    Board,
    Position,
    State,
)

_BOARDS_KEPT = 512
_CFG = 3
_PATH = 2 * COMET_GROUP * MAX_COMET_PATH


class ReplayStore:
    """Games of one store folder. Implements `td_loop.games.base.ReplaySet`.

    `games[i].n_frames` counts the frames that are fit for use: all, or those before the first crashed decision.
    States beyond it can still be read; `entries[i]` says how many there are.

    States and actions are private copies; a board is shared by all states of its game.
    """

    def __init__(self, path: Path) -> None:
        """Open the store at `path`.

        Raises:
            ReplayError: it is not a finished store, or it is damaged.
        """
        self.path = path
        self.entries, counts = load_index(path)
        self.games: Sequence[GameInfo] = [_info(e) for e in self.entries]
        self.content_hash = replay_set_hash(self.games)
        self._data = {name: _map(path / name, name, counts[name]) for name in DTYPES}
        self._head, self._ends = self._data["head.i32"], self._data["ends.i64"]
        self._planet_f, self._planet_i = self._data["planet.f64"], self._data["planet.i32"]
        self._fleet_f, self._fleet_i = self._data["fleet.f64"], self._data["fleet.i32"]
        self._comet, self._launch = self._data["comet.i16"], self._data["launch.f64"]
        self._place = [_place(e) for e in self.entries]
        self._boards: dict[int, Board] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def board(self, game: int) -> Board:
        """The board of a game, its comet groups taken from the observed frames. Never write to it."""
        if (board := self._boards.get(game)) is None:
            if len(self._boards) >= _BOARDS_KEPT:
                self._boards.pop(next(iter(self._boards)))
            board = self._boards[game] = self._read_board(self.entries[game])
        return board

    def state(self, game: int, turn: int) -> Position:
        """Frame `turn` of a game, as it was observed."""
        frame0, planet0, C, G, comet0, n_frames = self._place[game]
        if not 0 <= turn < n_frames:
            raise IndexError(f"game {game} has turns 0 to {n_frames - 1}, not {turn}")
        frame = frame0 + turn
        head = self._head[HEAD_SIZE * frame : HEAD_SIZE * (frame + 1)].astype(np.int64)
        at = planet0 + turn * C
        pf = self._planet_f[3 * at : 3 * (at + C)].copy()
        pi = self._planet_i[5 * at : 5 * (at + C)].astype(np.int64)
        comet_at = self._comet[comet0 + G * turn : comet0 + G * (turn + 1)].astype(np.int64)
        end = int(self._ends[(1 + MAX_SEATS) * frame])
        n = int(head[2])
        ff = self._fleet_f[3 * (end - n) : 3 * end].copy()
        fi = self._fleet_i[4 * (end - n) : 4 * end].astype(np.int64)
        C2, C3, C4, n2, n3 = 2 * C, 3 * C, 4 * C, 2 * n, 3 * n
        state = State(
            head,
            pi[:C], pf[:C], pf[C:C2], pf[C2:], pi[C:C2], pi[C2:C3], pi[C3:C4], pi[C4:],
            comet_at,
            fi[:n], fi[n:n2], ff[:n], ff[n:n2], ff[n2:], fi[n2:n3], fi[n3:],
        )  # fmt: skip
        return Position(self.board(game), state)

    def action(self, game: int, turn: int, seat: int) -> Action:
        """f64[L, 3]: launches of `seat` in frame `turn` that took effect, in order; L = 0 for seats beyond P."""
        if not 0 <= turn < self._place[game][5]:
            raise IndexError(f"game {game} has turns 0 to {self._place[game][5] - 1}, not {turn}")
        if not 0 <= seat < MAX_SEATS:
            raise IndexError(f"seat {seat} is not one of 0 to {MAX_SEATS - 1}")
        at = (1 + MAX_SEATS) * (self._place[game][0] + turn) + 1 + seat
        # A seat's launches start where those before it end: the seat before, or the last seat of the frame before.
        before = at - 1 if seat else at - 2
        start = int(self._ends[before]) if before >= 0 else 0
        return self._launch[3 * start : 3 * int(self._ends[at])].reshape(-1, 3).copy()

    def record(self, game: int) -> GameRecord:
        """A whole game in memory, as it was imported (to verify it, or to copy it to another store)."""
        e = self.entries[game]
        T, C, M, G, s = e.n_frames, e.capacity, e.n_home, e.n_groups, e.start
        ends = self._take("ends.i64", s, T * (1 + MAX_SEATS)).reshape(T, -1)
        board = self._take("board.f64", s, _CFG + HOME_ROWS * M + _PATH * G)
        fleets0, launches0 = s["fleet.i32"] // 4, s["launch.f64"] // 3
        n_fleets, n_launches = int(ends[-1, 0]) - fleets0, int(ends[-1, -1]) - launches0
        frames = Frames(
            cfg=board[:_CFG],
            home=board[_CFG : _CFG + HOME_ROWS * M].reshape(HOME_ROWS, M),
            group=self._take("group.i64", s, 3 * G).reshape(3, G),
            path=board[_CFG + HOME_ROWS * M :].reshape(2, G, COMET_GROUP, MAX_COMET_PATH),
            head=self._take("head.i32", s, T * HEAD_SIZE).reshape(T, -1),
            planet_f=self._take("planet.f64", s, T * 3 * C).reshape(T, 3, C),
            planet_i=self._take("planet.i32", s, T * 5 * C).reshape(T, 5, C),
            comet_at=self._take("comet.i16", s, T * G).reshape(T, G),
            fleet_f=self._take("fleet.f64", s, 3 * n_fleets),
            fleet_i=self._take("fleet.i32", s, 4 * n_fleets),
            fleet_end=ends[:, 0] - fleets0,
            launch=self._take("launch.f64", s, 3 * n_launches).reshape(-1, 3),
            launch_end=ends[:, 1:] - launches0,
        )
        return GameRecord(
            name=e.name,
            n_players=e.n_players,
            frames=frames,
            seed=e.seed,
            comet_speed=e.comet_speed,
            module_version=e.module_version,
            rewards=tuple(e.rewards),
            crashes=tuple((c[0], c[1]) if c else None for c in e.crashes),
        )

    def _take(self, name: str, start: dict[str, int], n: int) -> Array:
        return self._data[name][start[name] : start[name] + n].copy()

    def _read_board(self, e: Entry) -> Board:
        M, G = e.n_home, e.n_groups
        f = self._take("board.f64", e.start, _CFG + HOME_ROWS * M + _PATH * G)
        home = f[_CFG : _CFG + HOME_ROWS * M].reshape(HOME_ROWS, M)
        path = f[_CFG + HOME_ROWS * M :].reshape(2, G, COMET_GROUP, MAX_COMET_PATH)
        return make_board(f[:_CFG], e.n_players, home, self._take("group.i64", e.start, 3 * G).reshape(3, G), path)


def _info(e: Entry) -> GameInfo:
    outcome = None if e.outcome is None else np.array(e.outcome)
    return GameInfo(e.content_id, e.n_players, e.usable_frames, outcome, e.name)


def _place(e: Entry) -> tuple[int, int, int, int, int, int]:
    """First frame, first planet cell, C, G, first comet cell, T."""
    s = e.start
    return s["head.i32"] // HEAD_SIZE, s["planet.f64"] // 3, e.capacity, e.n_groups, s["comet.i16"], e.n_frames


def _map(path: Path, name: str, count: int) -> Array:
    """The first `count` items of a file, mapped read-only."""
    dtype: Any = DTYPES[name]
    if count == 0:
        return np.zeros(0, dtype)
    try:
        with path.open("rb") as f:
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as e:
        raise ReplayError(f"{path}: cannot be mapped ({e}); the store is damaged, import again") from e
    return np.frombuffer(mapped, dtype, count)
