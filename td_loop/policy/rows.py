"""What a policy learns from: states, and the options that a teacher chose there; by game, in rounds.

The teacher is the game's search. It is asked about states that it comes to itself and about states that the policy
comes to: a policy that has only seen the teacher's games does not know what to do after its own mistakes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.games.base import Budget, ReplaySet, Search
from td_loop.games.served import Taught, Tensor
from td_loop.policy.config import PolicyFitConfig
from td_loop.policy.runner import Runner
from td_loop.rng import Stream, stream

HELD_OUT = 10
"""One game in so many is kept for validation."""
_GAMES, _REPLAYS = 0, 1  # streams of Stream.POLICY
_LEARNER, _TEACHER = 0.6, 0.15  # how often either sits in a seat; the others are built-in players
_NOISY = 0.3  # part of the learner's seats that wander off what it would do
_TEMPERATURE = 0.5  # of the Gumbel noise on their logits

Player = Callable[[Any, int, np.random.Generator], Any]


@dataclass(frozen=True)
class Row:
    """One decision.

    Attributes:
        state, seat: where it was asked for.
        options: i64[S] what was chosen, -1 where no option is like it.
        game: number of its game: rows of one game are either all learnt from or all held out.
    """

    state: Any
    seat: int
    options: npt.NDArray[np.int64]
    game: int

    @property
    def held_out(self) -> bool:
        """Whether it is for validation alone."""
        return self.game % HELD_OUT == 0


def play_rows(
    game: Taught[Any, Any],
    config: PolicyFitConfig,
    round_: int,
    teacher: Search[Any, Any],
    learner: Runner | None,
    advance: Callable[[int], None],
) -> list[Row]:
    """The rows of one round.

    Args:
        game: the game.
        config: see there.
        round_: number of the round, from 0.
        teacher: the search.
        learner: the policy so far; None: the teacher plays in its place.
        advance: told of every game that was played.
    """
    rows: list[Row] = []
    for k in range(config.games):
        number = round_ * config.games + k
        rows += _Table(game, config, teacher, learner, number).play(2 if k % 2 == 0 else 4)
        advance(1)
    return rows


class _Table:
    """One game and who sits at it."""

    def __init__(
        self,
        game: Taught[Any, Any],
        config: PolicyFitConfig,
        teacher: Search[Any, Any],
        learner: Runner | None,
        number: int,
    ) -> None:
        self.game, self.config, self.number = game, config, number
        self._teacher, self._learner = teacher, learner
        self._rng = stream(config.seed, Stream.POLICY, _GAMES, number)
        self.rows: list[Row] = []

    def play(self, p: int) -> list[Row]:
        """The rows of a game of `p` seats."""
        state = self.game.initial(int(self._rng.integers(1, 2**31)), p)
        seats = [self._seat() for _ in range(p)]
        while self.game.outcome(state) is None:
            alive = self.game.alive(state)
            actions = [seats[s](state, s, self._rng) if alive[s] else None for s in range(p)]
            state = self.game.step(state, actions)
        return self.rows

    def _seat(self) -> Player:
        drawn = self._rng.random()
        if drawn < _LEARNER and self._learner is not None:
            return self._policy(self._learner, self._rng.random() < _NOISY)
        if drawn < _LEARNER + _TEACHER:
            return self._teach
        players = list(self.game.players.values())
        return players[int(self._rng.integers(len(players)))]

    def _ask(self, state: Any, seat: int) -> Any:
        return self._teacher(state, seat, Budget(evals=self.config.teacher_evals), self._rng).action

    def _keep(self, state: Any, seat: int, action: Any) -> None:
        options = self.game.options_of(state, seat, action)
        self.rows.append(Row(self.game.compact(state), seat, options, self.number))

    def _teach(self, state: Any, seat: int, rng: np.random.Generator) -> Any:
        action = self._ask(state, seat)
        self._keep(state, seat, action)
        return action

    def _policy(self, run: Runner, noisy: bool) -> Player:
        def decide(state: Any, seat: int, rng: np.random.Generator) -> Any:
            if rng.random() < self.config.labelled:
                self._keep(state, seat, self._ask(state, seat))
            inputs = self.game.policy_inputs(state, seat)
            logits = run(inputs)[0]
            if noisy:
                logits = logits + (rng.gumbel(size=logits.shape) * _TEMPERATURE).astype(np.float32)
            return self.game.choose(state, seat, inputs, logits)

        return decide


def replay_rows(
    game: Taught[Any, Any], config: PolicyFitConfig, replays: ReplaySet[Any, Any], first: int
) -> list[Row]:
    """Moves of seats that won their game alone, drawn evenly over all frames.

    Args:
        game: the game.
        config: see there.
        replays: the games.
        first: number of their first game.
    """
    won = [
        (g, seat)
        for g, info in enumerate(replays.games)
        if info.outcome is not None
        for seat in np.flatnonzero(np.asarray(info.outcome) > 0.99).tolist()
    ]
    frames = [(g, t, seat) for g, seat in won for t in range(replays.games[g].n_frames - 1)]
    rng = stream(config.seed, Stream.POLICY, _REPLAYS)
    drawn = rng.permutation(len(frames))[: config.replay_rows]
    rows = []
    for k in np.sort(drawn):
        g, t, seat = frames[k]
        state = replays.state(g, t)
        rows.append(Row(state, seat, game.options_of(state, seat, replays.action(g, t, seat)), first + g))
    return rows


def padded(game: Taught[Any, Any], rows: list[Row]) -> tuple[dict[str, Tensor], npt.NDArray[np.int64]]:
    """Inputs of several rows as one batch, padded with 0, and options i64[B, S], -1 where there is none."""
    every = [game.policy_inputs(row.state, row.seat) for row in rows]
    lengths: dict[str, int] = {}
    for inputs in every:
        for spec in game.contract.inputs:
            for axis, n in zip(spec.axes, inputs[spec.name].shape, strict=True):
                if isinstance(axis, str):
                    lengths[axis] = max(lengths.get(axis, 1), n)
    lengths["B"] = len(rows)
    batch = {}
    for spec in game.contract.inputs:
        shape = [a if isinstance(a, int) else lengths[a] for a in spec.axes]
        out = np.zeros(shape, np.float32)
        for b, inputs in enumerate(every):
            x = inputs[spec.name][0]
            place: tuple[Any, ...] = (b, *(slice(0, n) for n in x.shape))
            out[place] = x
        batch[spec.name] = out
    options = np.full((len(rows), lengths[game.contract.slots]), -1, np.int64)
    for b, row in enumerate(rows):
        options[b, : len(row.options)] = row.options
    return batch, options
