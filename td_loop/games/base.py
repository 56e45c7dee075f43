"""What the loop, prepare and the arena need from a game. Nothing outside a game's own folder knows more.

`P` is the number of seats of a game (2..4), `F` the number of features, `T` the number of frames of a replay.
Vectors over seats always have length 4, in seat order, padded with 0 / False: seats are never re-labelled.
A frame is one turn of one replay; its action leads to the next frame; the last frame has no action.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from td_loop.errors import UsageError
from td_loop.value.model import SplineValue

FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]

MAX_SEATS = 4
TURN_BITS = 11
"""A frame id is `content_hash(52 bits) << TURN_BITS | turn`: 63 bits, so it fits a positive int64."""

S = TypeVar("S")
"""A game's state: what one turn looks like, opaque to everybody but the game. Never changed in place."""
A = TypeVar("A")
"""One seat's action of one turn: a sequence of launches (moves), opaque to everybody but the game."""
S_contra = TypeVar("S_contra", contravariant=True)
S_co = TypeVar("S_co", covariant=True)
A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True)
class GameInfo:
    """One replayed game.

    Attributes:
        content_id: hex SHA-256 of the game's content; never of its file name or place in a folder.
        n_players: P.
        n_frames: T, the number of frames; turns run from 0 to T-1.
        outcome: f64[4], winners share 1 equally; None when the outcome is not known or not to be trusted.
        name: what to call it in messages (a file name, or `seed 17`).
    """

    content_id: str
    n_players: int
    n_frames: int
    outcome: FloatArray | None
    name: str

    def frame_id(self, turn: int) -> int:
        """Stable id of a frame (int64 >= 0): a function of content and turn alone."""
        return int(self.content_id[:13], 16) << TURN_BITS | turn


@dataclass(frozen=True)
class Budget:
    """What one search may spend. At least one of the two is set; the first one reached ends the search.

    Attributes:
        seconds: wall-clock time. Cannot repeat exactly.
        evals: number of evaluated candidates. Repeats exactly.

    Raises:
        UsageError: none of the two is set, or one is out of range.
    """

    seconds: float | None = None
    evals: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is None and self.evals is None:
            raise UsageError("a search needs a budget: set its seconds, its evals or both")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UsageError(f"a search's seconds must be above 0 and finite, not {self.seconds}")
        if self.evals is not None and self.evals < 1:
            raise UsageError(f"a search's evals must be 1 or more, not {self.evals}")


@dataclass(frozen=True)
class Decision(Generic[A]):
    """Answer of a search: an action (always one, if only "no launch") and the candidates it evaluated."""

    action: A
    evals: int


class Search(Protocol[S_contra, A]):
    """A search bound to one frozen value function. Keeps buffers between calls; one per process."""

    def __call__(self, state: S_contra, seat: int, budget: Budget, rng: np.random.Generator) -> Decision[A]:
        """Choose the action of `seat` in `state`; it must not look at what nobody could know yet."""
        ...


class ReplaySet(Protocol[S_co, A_co]):
    """Games opened for random access, without holding them in memory (workers open the same path again)."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...

    @property
    def content_hash(self) -> str:
        """`replay_set_hash` of its games."""
        ...

    @property
    def games(self) -> Sequence[GameInfo]:
        """The games."""
        ...

    def state(self, game: int, turn: int) -> S_co:
        """The full state of a frame; what is drawn later (comets, say) is known to it but not shown by it."""
        ...

    def action(self, game: int, turn: int, seat: int) -> A_co:
        """What `seat` did in frame `turn` < T-1: legal launches only, in the order they took effect."""
        ...


class Game(Protocol[S, A]):
    """A 2..4-seat simulation game."""

    name: str
    feature_names: tuple[str, ...]

    def compile(self) -> None:
        """Compile all kernels into the disk cache, so that workers only load them."""
        ...

    def open_replays(self, source: Path | None, cache: Path) -> ReplaySet[S, A]:
        """Open replays; None is the bundled set. What must be converted first is kept under `cache`.

        Raises:
            ReplayError: nothing usable there.
        """
        ...

    def initial(self, seed: int, n_players: int) -> S:
        """The first state of a game."""
        ...

    def n_players(self, state: S) -> int:
        """P."""
        ...

    def alive(self, state: S) -> BoolArray:
        """bool[4]: seats that are still in the game. A seat that is out stays out."""
        ...

    def outcome(self, state: S) -> FloatArray | None:
        """None while the game goes on; else f64[4], winners share 1 (if nobody won, alive seats share it)."""
        ...

    def features(self, state: S, gamma: float) -> npt.NDArray[np.float32]:
        """f32[4, F]: features of every seat; zeros beyond P. `gamma` discounts the production forecast."""
        ...

    def step(self, state: S, actions: Sequence[A | None]) -> S:
        """One tick of the engine under one action a seat (None: no launch)."""
        ...

    def n_launches(self, action: A) -> int:
        """How many launches the action holds."""
        ...

    def partial(self, state: S, seat: int, action: A, m: int) -> S:
        """`state` with the first `m` launches of `seat`'s action already made, before the tick."""
        ...

    def make_search(self, value: SplineValue) -> Search[S, A]:
        """A search under `value`."""
        ...


Player = Callable[[S, int, np.random.Generator], A]
"""Chooses a seat's action from the state and a random stream of its own."""


class Session(Protocol[S_co, A]):
    """One game being played, with what agents of other programs are shown of it and answer."""

    @property
    def state(self) -> S_co:
        """Where the game stands."""
        ...

    def observation(self, seat: int, overage_s: float) -> dict[str, Any]:
        """What the official environment shows to the agent of `seat`, which has `overage_s` extra seconds left."""
        ...

    def read(self, seat: int, raw: Any) -> A:
        """The action that an agent's answer stands for; an answer that is no action at all is no launch.

        Raises:
            Exception: whatever the official environment raises on an answer that it cannot read.
        """
        ...

    def step(self, actions: Sequence[A | None]) -> None:
        """Play one turn; see `Game.step`."""
        ...


class Playable(Game[S, A], Protocol[S, A]):
    """A game that the arena can play."""

    @property
    def players(self) -> Mapping[str, Player[S, A]]:
        """Built-in players by name. They keep nothing between two calls but buffers."""
        ...

    @property
    def configuration(self) -> Mapping[str, Any]:
        """What the official environment passes to an agent beside the observation."""
        ...

    def open_session(self, seed: int, n_players: int) -> Session[S, A]:
        """A new game; equal seeds give equal first states."""
        ...


def replay_set_hash(games: Sequence[GameInfo]) -> str:
    """Hex SHA-256 over the sorted content ids: the same games give the same hash, in whatever order they lie."""
    return hashlib.sha256("\n".join(sorted(g.content_id for g in games)).encode()).hexdigest()
