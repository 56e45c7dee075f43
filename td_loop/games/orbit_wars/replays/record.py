"""One replayed game in memory: every frame as it was observed, in flat arrays.

`T` frames, `P` seats, `M` home planets, `C` planet capacity, `G` comet groups seen in the game, `L` launches.

Frames are kept as observed, whether or not today's rules reproduce them, so there is one code path for all games.
The board's comet groups come from the frames too (path, ships and spawn turn are all visible while a group flies),
so a state steps into the next frame, comet spawns included, without anybody knowing the seed.

What counts as an outcome
-------------------------
`outcome` is for Monte-Carlo targets and validation. It is None, with `why_no_outcome` saying why, when

* the game was cut short: its last frame does not end the game, so nobody knows who would have won;
* a seat crashed (status ERROR, TIMEOUT or INVALID at some step): the official engine plays on with an idle seat
  and may even let it win, so the result says nothing about the states that led to it. The frames before the
  crash were played by agents at work and stay in use for Branch R and A: `usable_frames` ends at the frame on
  which the first crashed decision was due (a crash on the first move leaves frame 0, which no row is made of).
  All frames are stored.

Otherwise the seats with the (positive) maximum reward share 1; if a file lost its rewards, the official scoring
(most ships) of the last frame decides; if nobody won, the seats still alive share it (all, if nobody is left).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.games.orbit_wars.engine import shares
from td_loop.games.orbit_wars.state import DONE, N_FLEETS, N_PLANETS

Array = npt.NDArray[Any]

# Rows of the blocks below
P_X, P_Y, P_RADIUS = 0, 1, 2
P_OWNER, P_SHIPS, P_PROD, P_COMET, P_MEMBER = 0, 1, 2, 3, 4
F_X, F_Y, F_ANGLE = 0, 1, 2
F_ID, F_OWNER, F_FROM, F_SHIPS = 0, 1, 2, 3
HOME_X, HOME_Y, ORBIT_R, ORBIT_ANGLE, ROTATES, HOME_SHIPS = 0, 1, 2, 3, 4, 5
HOME_ROWS = 6
SPAWN, GROUP_SHIPS, GROUP_LEN = 0, 1, 2


class Frames(NamedTuple):
    """The arrays of one game (a NamedTuple, so that kernels take it as one argument).

    The fleet blocks of a frame k with n_k fleets are [3, n_k] and [4, n_k], stored flat, one after another.
    """

    cfg: Array  # f64[3] angular velocity, ship speed, episodeSteps
    home: Array  # f64[HOME_ROWS, M] HOME_X..HOME_SHIPS
    group: Array  # i64[3, G] SPAWN, GROUP_SHIPS, GROUP_LEN
    path: Array  # f64[2, G, COMET_GROUP, MAX_COMET_PATH] x and y
    head: Array  # i32[T, HEAD_SIZE] as State.head
    planet_f: Array  # f64[T, 3, C] P_X..P_RADIUS
    planet_i: Array  # i32[T, 5, C] P_OWNER..P_MEMBER
    comet_at: Array  # i16[T, G] as State.comet_at
    fleet_f: Array  # f64[3 * fleets] F_X..F_ANGLE
    fleet_i: Array  # i32[4 * fleets] F_ID..F_SHIPS
    fleet_end: Array  # i64[T] cumulative count of fleets
    launch: Array  # f64[L, 3] planet index, angle, ships
    launch_end: Array  # i64[T, MAX_SEATS] cumulative count of launches, seat by seat within a frame


@dataclass(frozen=True)
class GameRecord:
    """A game: its frames and what is known about it.

    Attributes:
        name: what to call it in messages.
        n_players: P.
        frames: see `Frames`.
        seed: the episode seed, if the file tells.
        comet_speed: `cometSpeed` of the configuration.
        module_version: version of kaggle-environments that played it; "" if unknown.
        rewards: one a seat, None where the file has null.
        crashes: one a seat: (step, status) of the first step whose status is ERROR, TIMEOUT or INVALID, else None.
    """

    name: str
    n_players: int
    frames: Frames
    seed: int | None = None
    comet_speed: float = 4.0
    module_version: str = ""
    rewards: tuple[float | None, ...] = ()
    crashes: tuple[tuple[int, str] | None, ...] = field(default=())

    @property
    def n_frames(self) -> int:
        """T."""
        return len(self.frames.head)

    @property
    def n_launches(self) -> int:
        """L."""
        return len(self.frames.launch)

    @property
    def ended(self) -> bool:
        """Whether the last frame ends the game."""
        return bool(self.frames.head[-1, DONE])

    @cached_property
    def usable_frames(self) -> int:
        """Frames up to the first crashed decision, frame 0 at least; T when no seat crashed."""
        return min([self.n_frames, *(max(crash[0], 1) for crash in self.crashes if crash)])

    @cached_property
    def content_id(self) -> str:
        """Hex SHA-256 of what was played: settings, map, frames and launches.

        Not the file's name, compression, team names, number types, seed or rewards: a copy that lost its seed or
        its rewards is the same game, and must not stand in both training and validation.
        """
        h = hashlib.sha256(b"orbit_wars game 1\0%d\0" % self.n_players)
        f = self.frames
        for a in (
            f.cfg,
            f.home,
            f.head,
            f.planet_f,
            f.planet_i,
            f.fleet_f,
            f.fleet_i,
            f.fleet_end,
            f.launch,
            f.launch_end,
        ):
            h.update(repr(a.shape).encode())
            h.update(np.ascontiguousarray(a).data)
        return h.hexdigest()

    @cached_property
    def outcome_or_why(self) -> tuple[npt.NDArray[np.float64] | None, str]:
        """(f64[4], "") with winners sharing 1, or (None, why there is no outcome). See the module's text."""
        for seat, crash in enumerate(self.crashes):
            if crash:
                return None, f"seat {seat} crashed ({crash[1]} at step {crash[0]})"
        if not self.ended:
            return None, "cut short"
        owned, score = last_frame_standing(self.frames, self.n_players)
        known = [r for r in self.rewards if r is not None]
        points = np.array(known) if len(known) == self.n_players else score
        return shares((points == points.max()) & (points > 0), owned), ""


def fleet_block(columns: Sequence[Array], counts: Array, dtype: type) -> Array:
    """Fleet columns, each [fleets] in frame order, as one flat block [columns, n_k] a frame.

    Args:
        columns: same length each.
        counts: i64[T] fleets a frame.
        dtype: of the block.
    """
    start = np.repeat(np.cumsum(counts) - counts, counts)
    width = np.repeat(counts, counts)
    place = len(columns) * start + np.arange(len(start)) - start
    block: Array = np.empty(len(columns) * len(start), dtype)
    for row, column in enumerate(columns):
        block[place + row * width] = column
    return block


def last_frame_standing(f: Frames, n_players: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """bool[P] who still owns a planet or a fleet in the last frame, f64[P] ships on planets and under way."""
    n, m = int(f.head[-1, N_PLANETS]), int(f.head[-1, N_FLEETS])
    fleets = f.fleet_i[len(f.fleet_i) - 4 * m :].reshape(4, m)
    owner = np.concatenate([f.planet_i[-1, P_OWNER, :n], fleets[F_OWNER]])
    ships = np.concatenate([f.planet_i[-1, P_SHIPS, :n], fleets[F_SHIPS]])
    owned = np.isin(np.arange(n_players), owner)
    score = np.bincount(owner[owner >= 0], weights=ships[owner >= 0], minlength=n_players)
    return owned, score.astype(np.float64)


def ends_game(step: int, owners: Array, episode_steps: int) -> bool:
    """Whether a frame that a tick led to ends the game: time is up, or at most one seat has planets or fleets."""
    return step >= episode_steps - 1 or len(np.unique(owners[owners >= 0])) <= 1
