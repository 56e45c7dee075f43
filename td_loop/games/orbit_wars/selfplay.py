"""Games of our own agents through our own engine, repeatable from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from td_loop.games.orbit_wars.agents import Agent
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import outcome, step
from td_loop.games.orbit_wars.state import DONE, EPISODE_STEPS, F64, N_PLANETS, Action, Position
from td_loop.rng import Stream, stream


@dataclass(frozen=True)
class Game:
    """A game that was played to its end.

    Attributes:
        seed: the episode seed.
        n_players: P.
        actions: per turn and seat, the launches that were made.
        outcome: f64[4], winners share 1.
        last: the final position.
    """

    seed: int
    n_players: int
    actions: list[list[Action]]
    outcome: F64
    last: Position


def play(agents: Sequence[Agent], seed: int, *, episode_steps: int = EPISODE_STEPS) -> Game:
    """Play one game: seat i is `agents[i]`, with a random stream of its own that `seed` alone decides."""
    position = new_game(seed, len(agents), episode_steps=episode_steps)
    rngs = [stream(seed, Stream.SELF_PLAY, seat) for seat in range(len(agents))]
    actions: list[list[Action]] = []
    while not position.state.head[DONE]:
        turn = [
            legal(position, seat, agent(position, seat, rng))
            for seat, (agent, rng) in enumerate(zip(agents, rngs, strict=True))
        ]
        actions.append(turn)
        position = step(position, turn)
    result = outcome(position)
    assert result is not None
    return Game(seed, len(agents), actions, result, position)


def legal(position: Position, seat: int, action: Action) -> Action:
    """The launches of `action` that the engine will take, ships as whole numbers."""
    s = position.state
    left = s.p_ships[: s.head[N_PLANETS]].copy()
    kept = np.zeros(len(action), np.bool_)
    ships = np.trunc(action[:, 2])
    for i, planet in enumerate(action[:, 0]):
        p = int(planet)
        if 0 <= p < len(left) and p == planet and s.p_owner[p] == seat and 1 <= ships[i] <= left[p]:
            left[p] -= int(ships[i])
            kept[i] = True
    return np.column_stack([action[:, 0], action[:, 1], ships])[kept]
