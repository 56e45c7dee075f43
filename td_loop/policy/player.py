"""A policy as a player: inputs, network, choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from td_loop.games.base import Player
from td_loop.games.served import Served
from td_loop.policy.runner import Runner


def policy_player(game: Served[Any, Any], run: Runner) -> Player[Any, Any]:
    """Chooses what the policy finds most likely. It draws nothing from its random stream."""

    def decide(state: Any, seat: int, rng: np.random.Generator) -> Any:
        inputs = game.policy_inputs(state, seat)
        return game.choose(state, seat, inputs, run(inputs)[0])

    return decide
