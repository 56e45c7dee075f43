"""From rows to inputs and targets: what a worker does with a chunk. `B` rows of a chunk, `F` features."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.games import get_game
from td_loop.games.base import MAX_SEATS, BoolArray, Budget, FloatArray, Game, ReplaySet
from td_loop.kernels import compilations
from td_loop.prepare.rows import Rows
from td_loop.rng import Stream, stream
from td_loop.value.evaluate import evaluate
from td_loop.value.model import SplineValue

NO_CANDIDATE = "the search evaluated no candidate within its budget"


class Chunk(NamedTuple):
    """Rows of one branch that are computed together."""

    row: npt.NDArray[np.int64]  # [B] their place in `Rows`, which also names their random stream
    rows: Rows  # [B] each
    search: bool  # False: agent rows take the replay's action (the search was lost too often)
    attempt: int = 0  # how often these rows were lost before


@dataclass
class Computed:
    """A chunk's results, row by row as in the file, and what went wrong in its searches."""

    ARRAYS: ClassVar = (
        "features",
        "target",
        "alive",
        "n_players",
        "is_partial",
        "has_mc",
        "mc_target",
        "fallback",
    )

    features: npt.NDArray[np.float32]  # [B, 4, F] of the input
    target: npt.NDArray[np.float32]  # [B, 4]
    alive: BoolArray  # [B, 4] at s
    n_players: npt.NDArray[np.int8]  # [B]
    is_partial: BoolArray  # [B]
    has_mc: BoolArray  # [B]
    mc_target: npt.NDArray[np.float32]  # [B, 4], 0 where has_mc is False
    fallback: BoolArray  # [B] the search gave no decision; the replay's action stands in
    faults: dict[str, Fault] = field(default_factory=dict)  # searches without a decision, by cause
    compiled: list[str] = field(default_factory=list)  # kernels that the cache on disk lacked

    @staticmethod
    def empty(b: int, n_features: int) -> Computed:
        """Room for `b` rows."""
        return Computed(
            features=np.zeros((b, MAX_SEATS, n_features), np.float32),
            target=np.zeros((b, MAX_SEATS), np.float32),
            alive=np.zeros((b, MAX_SEATS), bool),
            n_players=np.zeros(b, np.int8),
            is_partial=np.zeros(b, bool),
            has_mc=np.zeros(b, bool),
            mc_target=np.zeros((b, MAX_SEATS), np.float32),
            fallback=np.zeros(b, bool),
        )


@dataclass
class Fault:
    """Why searches gave no decision: how many, and what to show of the first."""

    count: int
    text: str


@dataclass(frozen=True)
class Recipe:
    """What a worker needs to know once. Small: replays are opened again by path, the game by name."""

    game: str
    replays: Path
    content_hash: str
    cache: Path
    value: SplineValue
    seed: int
    budget: Budget
    partial_input_p: float
    mc_target_p: float

    def __call__(self) -> RowComputer:
        """Open everything, in the process that will compute."""
        game: Game[Any, Any] = get_game(self.game)
        with compilations() as compiled:
            compile_kernels(
                game, self.value
            )  # loads them; a first search that did so would spend its budget on it
        replays = game.open_replays(self.replays, self.cache)
        if replays.content_hash != self.content_hash:
            raise RuntimeError(f"{self.replays}: changed while prepare was running")
        return RowComputer(self, game, replays, compiled)


def compile_kernels(game: Game[Any, Any], value: SplineValue) -> None:
    """Compile into the disk cache, or load from it, everything that rows need."""
    game.compile()
    shape = (1, MAX_SEATS, len(value.feature_names))
    evaluate(value, np.zeros(shape, np.float32), np.full(1, 2, np.int8), np.ones(shape[:2], bool))


def on_alive(mass: FloatArray, alive: BoolArray) -> FloatArray:
    """`mass` f[B, 4] on the seats `alive` bool[B, 4] alone, scaled to rows that sum to 1.

    Where it leaves nothing (nobody won, or everybody fell in the same tick) the seats alive share 1.
    """
    mass = np.where(alive, mass, 0.0)
    mass = np.where(mass.sum(axis=1, keepdims=True) > 0, mass, alive)
    return np.asarray(mass / mass.sum(axis=1, keepdims=True))


class RowComputer:
    """Computes chunks. A row depends on the recipe and its own number alone, so chunks may come in any order."""

    def __init__(
        self,
        recipe: Recipe,
        game: Game[Any, Any],
        replays: ReplaySet[Any, Any],
        compiled: Sequence[str] = (),
    ) -> None:
        self.recipe, self.game, self.replays = recipe, game, replays
        self.search = game.make_search(recipe.value)
        self._compiled = list(compiled)  # not reported yet

    def __call__(self, chunk: Chunk) -> Computed:
        """Inputs and targets of a chunk.

        Raises:
            ValueError: the game's features are not finite, or the focal seat is out; the message names the frame.
        """
        with compilations() as compiled:
            out = self._compute(chunk)
        out.compiled, self._compiled = self._compiled + compiled, []
        return out

    def _compute(self, chunk: Chunk) -> Computed:
        recipe, game = self.recipe, self.game
        b = len(chunk.row)
        out = Computed.empty(b, len(game.feature_names))
        mass, known = np.zeros((b, MAX_SEATS)), np.zeros(b, bool)
        alive_next, features_next = np.zeros((b, MAX_SEATS), bool), np.zeros_like(out.features)
        for i, (row, g, turn, seat, agent) in enumerate(
            zip(chunk.row.tolist(), *(column.tolist() for column in chunk.rows), strict=True)
        ):
            rng = stream(recipe.seed, Stream.ROW, row)
            partial_draw, prefix_draw, mc_draw = rng.random(3)
            info, state = self.replays.games[g], self.replays.state(g, turn)
            out.n_players[i], out.alive[i] = info.n_players, game.alive(state)
            if not out.alive[i, seat]:
                raise ValueError(
                    f"{info.name}, turn {turn}: seat {seat} came back to life; the game must not do that"
                )

            decided = None
            if agent and chunk.search:
                decided = self._decide(state, g, turn, seat, rng, out)
            out.fallback[i] = agent and decided is None
            after = decided[1] if decided else self.replays.state(g, turn + 1)

            if partial_draw < recipe.partial_input_p:
                action = decided[0] if decided else self.replays.action(g, turn, seat)
                launches = game.n_launches(action)
                if launches > 0:
                    out.is_partial[i] = True
                    state = game.partial(state, seat, action, 1 + int(prefix_draw * launches))
            out.features[i] = game.features(state, recipe.value.gamma)

            outcome = game.outcome(after)
            if outcome is None:
                features_next[i], alive_next[i] = game.features(after, recipe.value.gamma), game.alive(after)
            else:
                mass[i], known[i] = outcome, True

            if info.outcome is not None and mc_draw < recipe.mc_target_p:
                out.has_mc[i], out.mc_target[i] = True, info.outcome

        self._check_finite(chunk, out.features)
        self._check_finite(chunk, features_next)
        if not known.all():
            open_ = ~known
            mass[open_] = evaluate(
                recipe.value, features_next[open_], out.n_players[open_], (alive_next & out.alive)[open_]
            )
        out.target[:] = on_alive(mass, out.alive)
        out.mc_target[out.has_mc] = on_alive(out.mc_target[out.has_mc], out.alive[out.has_mc])
        return out

    def _decide(
        self, state: Any, g: int, turn: int, seat: int, rng: np.random.Generator, out: Computed
    ) -> tuple[Any, Any] | None:
        """The searched action of `seat` and the state that it leads to; None when the search gave no decision."""
        others = [
            self.replays.action(g, turn, s) if s != seat and out_alive else None
            for s, out_alive in enumerate(self.game.alive(state).tolist())
        ]
        try:
            decision = self.search(state, seat, self.recipe.budget, rng)
            if decision.evals < 1:
                out.faults.setdefault(NO_CANDIDATE, Fault(0, NO_CANDIDATE)).count += 1
                return None
            others[seat] = decision.action
            return decision.action, self.game.step(state, others)
        except MemoryError:  # whatever took it may still hold it: this worker is of no use any more
            raise
        except Exception as e:
            # Searches of other teams raised on every call and a fallback hid it: so count them, and show one.
            line = traceback.extract_tb(e.__traceback__)[-1]
            kind = f"{type(e).__name__} in {line.filename}:{line.lineno}"
            out.faults.setdefault(kind, Fault(0, traceback.format_exc())).count += 1
            return None

    def _check_finite(self, chunk: Chunk, features: npt.NDArray[np.float32]) -> None:
        bad = np.argwhere(~np.isfinite(features))
        if len(bad):
            i, seat, f = bad[0]
            name = self.replays.games[chunk.rows.game[i]].name
            raise ValueError(
                f"{name}, turn {chunk.rows.turn[i]}: feature {self.game.feature_names[f]} of seat {seat} "
                f"is {features[i, seat, f]}"
            )
