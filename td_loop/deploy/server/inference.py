"""From a request's state to the policy's moves, or to the reason why there are none. Runs in a pool's thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from td_loop.errors import OutputError
from td_loop.games.served import Inputs, Served, Tensor
from td_loop.policy.runner import Runner

Moves = list[list[Any]]


class NoMoves(Exception):
    """The policy has no moves that can be played.

    Attributes:
        reason: one of `names.FALLBACK_REASONS`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Question:
    """A request's state, read once by whoever needs it first: the policy, or the rule if that hangs."""

    def __init__(self, read: Callable[[], tuple[Any, int]]) -> None:
        """`read`: see `Served.read_observation` and `Served.unpack`."""
        self._read = read
        self._found: tuple[Any, int] | None = None

    def state(self) -> tuple[Any, int]:
        """State and seat.

        Raises:
            DataError: the request holds none.
        """
        if self._found is None:
            self._found = self._read()
        return self._found


@dataclass(frozen=True, slots=True)
class Inferred:
    """A policy's answer.

    Attributes:
        moves: as the client gets them.
        state, seat: what was asked.
        inputs: of the network.
        logits: f32[S, O].
    """

    moves: Moves
    state: Any
    seat: int
    inputs: Inputs
    logits: Tensor


def infer(game: Served[Any, Any], runner: Runner, question: Question) -> Inferred:
    """The policy's moves.

    Raises:
        DataError: the request holds no state.
        NoMoves: the policy raised, or its answer has the wrong shape, is not finite, or is not legal.
    """
    state, seat = question.state()
    try:
        inputs = game.policy_inputs(state, seat)
        answer = runner(inputs)
    except Exception as e:
        raise NoMoves("error") from e
    logits = _checked(game, inputs, answer)
    try:
        action = game.choose(state, seat, inputs, logits)
        legal = game.is_legal(state, seat, action)
        moves = game.answer(action) if legal else []
    except OutputError as e:
        raise NoMoves("output") from e
    except Exception as e:
        raise NoMoves("error") from e
    if not legal:
        raise NoMoves("illegal")
    return Inferred(moves, state, seat, inputs, logits)


def _checked(game: Served[Any, Any], inputs: Inputs, answer: Any) -> Tensor:
    """f32[S, O] of an answer for one decision."""
    slots = next(
        inputs[spec.name].shape[spec.axes.index(game.contract.slots)]
        for spec in game.contract.inputs
        if game.contract.slots in spec.axes
    )
    if not isinstance(answer, np.ndarray) or answer.ndim != 3 or answer.shape[:2] != (1, slots):
        raise NoMoves("output")
    if answer.dtype.kind != "f" or not np.isfinite(answer).all():
        raise NoMoves("output")
    logits: Tensor = answer[0]
    return logits
