"""The toy game with a policy's faults to order: the turn of a state says what the policy does about it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.games.served import Inputs, Tensor
from td_loop.policy.artefact import Artefact, write_artefact
from tests.deploy import toy_policy
from tests.deploy.toy_served import CONTRACT, ServedToy
from tests.toy_game import Action, State

STALLS, RAISES, NOT_FINITE, ILLEGAL, DIES = 1001, 1002, 1003, 1004, 1005
STALL_S = 1.0

_kept = threading.Event()


class FaultyToy(ServedToy):
    name = "tests.deploy.served_faulty:GAME"
    contract = replace(CONTRACT, game=name)

    def policy_inputs(self, state: State, seat: int) -> Inputs:
        if state.turn == STALLS:
            _kept.wait(STALL_S)
        if state.turn == RAISES:
            raise MemoryError("to order")
        if state.turn == DIES:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
        inputs = super().policy_inputs(state, seat)
        if state.turn == NOT_FINITE:
            inputs["seats"][:] = np.nan
        return inputs

    def choose(self, state: State, seat: int, inputs: Inputs, logits: Tensor) -> Action:
        if state.turn == ILLEGAL:
            return np.array([[seat, 10_000]])
        return super().choose(state, seat, inputs, logits)


GAME: Any = FaultyToy()


def write_faulty(path: Path, seed: int = 0) -> Artefact:
    """A good artefact for this game."""
    weights = toy_policy.make_weights(seed)
    meta = replace(toy_policy.make_meta(weights), contract=GAME.contract)
    return write_artefact(path, toy_policy.make_network(weights), meta)
