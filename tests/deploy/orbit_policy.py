"""A policy for Orbit Wars whose weights were written by hand: it plays sensibly, and nothing has to be trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from td_loop.games import get_game
from td_loop.games.orbit_wars.tokens import CONTRACT, PAIR
from td_loop.games.served import Tensor
from td_loop.policy.artefact import Artefact
from td_loop.policy.export import export
from td_loop.policy.network import NumpyNetwork
from td_loop.policy.shape import NetworkSize, shapes

SIZE = NetworkSize(width=4, heads=1, hidden=1, pointer=1)
_TURNS = 40


def strong_weights() -> dict[str, Tensor]:
    """Each planet sends just enough to what is near and can be taken: it beats `starter`, in some 90 turns."""
    values = {"worth": 0.5, "all_suffice": 3.0, "soon": 6.0, "own_then": -8.0, "enemy_then": 1.0}
    return _weights(values, -3.0, send=[3, 1, 0, 0], closed=[-2, -3, -5, -5])


def wasteful_weights() -> dict[str, Tensor]:
    """Each planet sends half of its ships far away, over and over: it loses to `starter`."""
    return _weights({"eta": 4.0, "own_then": -2.0}, 0.0, send=[0, 3, 0, 0], closed=[-5, -2, -5, -5])


def collapsed_weights() -> dict[str, Tensor]:
    """Each planet stays, whatever happens."""
    weights = strong_weights()
    weights["stay.bias"][:] = 50.0
    return weights


def _weights(values: dict[str, float], bias: float, send: list[float], closed: list[float]) -> dict[str, Tensor]:
    """The logit of a size is `send` times what a pair's columns come to, if that is above 0, plus `closed`."""
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes(CONTRACT, SIZE).items()}
    for column, value in values.items():
        weights["pairs.w"][PAIR.index(column), 0] = value
    weights["pairs.b"][:] = bias
    weights["send.w"][0], weights["send.b"][:] = send, closed
    return weights


def write_policy(path: Path, weights: dict[str, Tensor]) -> Artefact:
    """An artefact, with the decisions of first turns of games that the strong policy plays as its reference."""
    game, run = get_game("orbit_wars"), NumpyNetwork(strong_weights(), CONTRACT)
    decisions = []
    for seed, seats in ((1, 2), (2, 4), (3, 2)):
        state = game.initial(seed, seats)
        for _ in range(_TURNS):
            alive = game.alive(state)
            actions = []
            for seat in range(seats):
                if not alive[seat]:
                    actions.append(None)
                    continue
                decisions.append(game.policy_inputs(state, seat))
                actions.append(game.choose(state, seat, decisions[-1], run(decisions[-1])[0]))
            state = game.step(state, actions)
            if game.outcome(state) is not None:
                break
    return export(path, weights, CONTRACT, decisions, {"data": "0" * 64}, {"by": "hand"})
