"""What `policy` and `deploy` need from a game: tensors for a policy network, and an action out of what it answers.

Letters: B batch, S slots (things that decide: one owned planet, say), O options of a slot (option 0 is "stay").
A policy network is a function from named tensors to `logits` f32[B, S, O]: one distribution a slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from td_loop.games.base import A, Playable, S

Tensor = npt.NDArray[np.float32]
Inputs = Mapping[str, Tensor]
"""Name -> f32 tensor with a leading batch axis; names, order and axes are those of `PolicyContract.inputs`."""

STAY = 0
"""The option that is always open."""
MASKED = -1e9
"""Logit of an option that is not open: finite, so that a non-finite logit is always a fault of the network."""


@dataclass(frozen=True)
class TensorSpec:
    """One input of a policy.

    Attributes:
        name: its name in the network.
        axes: one entry an axis; a string is an axis of variable length (equal names are equal lengths), "B" the
            batch; a number is a fixed length.
        columns: what stands along the last axis, or () where that is of variable length.
        mask: the name of the input that tells real entries of the variable axes from padding, or "".
    """

    name: str
    axes: tuple[int | str, ...]
    columns: tuple[str, ...] = ()
    mask: str = ""


@dataclass(frozen=True)
class PolicyContract:
    """What goes into a game's policy and what comes out; part of every artefact, and compared when one is opened.

    Attributes:
        game: name of the game.
        version: of the meaning of inputs and options; another one is another contract.
        inputs: in the order in which a network takes them.
        slots: the name of the axis S.
        limits: the most entries of each axis of variable length but "B".
    """

    game: str
    version: int
    inputs: tuple[TensorSpec, ...]
    slots: str
    limits: Mapping[str, int]


class Served(Playable[S, A], Protocol[S, A]):
    """A game whose policy can be trained, served and released."""

    @property
    def contract(self) -> PolicyContract:
        """What goes in and comes out."""
        ...

    def policy_inputs(self, state: S, seat: int) -> Inputs:
        """Tensors of one decision, B = 1, unpadded; every variable axis has at least one (maybe masked) entry."""
        ...

    def open_options(self, inputs: Inputs, n_slots: int, n_options: int) -> npt.NDArray[np.bool_]:
        """bool[S, O]: the options that a slot has. Slots that decide nothing have STAY alone."""
        ...

    def choose(self, state: S, seat: int, inputs: Inputs, logits: Tensor) -> A:
        """The most likely open option of every slot, without any noise, as a legal action. `logits` f32[S, O].

        Args:
            state, seat: whose turn it is.
            inputs: what `policy_inputs` made of them.
            logits: the policy's answer.

        Raises:
            OutputError: the shape is wrong or a logit of an open option is not finite.
        """
        ...

    def is_legal(self, state: S, seat: int, action: A) -> bool:
        """Whether the engine takes every launch of `action` as it stands."""
        ...

    def read_observation(self, observation: Mapping[str, Any]) -> tuple[S, int]:
        """State and seat of an observation as the official environment shows it.

        Raises:
            DataError: it is none; the message names the place.
        """
        ...

    def pack(self, state: S, seat: int) -> bytes:
        """What `read_observation` reads, as a compact binary body."""
        ...

    def unpack(self, body: bytes) -> tuple[S, int]:
        """The inverse of `pack`; bounds are checked.

        Raises:
            DataError: not such a body.
        """
        ...

    def answer(self, action: A) -> list[list[Any]]:
        """The action as the official environment takes it from an agent."""
        ...

    def rule_of(self, state: S, seat: int) -> list[list[Any]]:
        """A legal answer of a fast rule, for whenever the policy has none. Never raises: at worst it is []."""
        ...


class Taught(Served[S, A], Protocol[S, A]):
    """A game whose policy can learn from actions."""

    def options_of(self, state: S, seat: int, action: A) -> npt.NDArray[np.int64]:
        """i64[S]: of every slot the option that comes nearest to `action`; -1 where none does."""
        ...

    def compact(self, state: S) -> S:
        """The same state without room for what may come, for those who keep many."""
        ...
