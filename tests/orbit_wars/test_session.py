"""session: outside agents see in the arena what the official-like environment shows, object for object."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.environment import CONFIGURATION, Environment
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.session import OrbitSession


def odd_moves(obs: dict[str, Any]) -> Any:
    """Legal launches whose ids and angles are not of the usual types, and some that are not legal."""
    if obs["step"] % 7 == 3:
        return "hello"
    moves: list[Any] = []
    for p in obs["planets"]:
        if p[1] == obs["player"] and p[5] >= 6:
            moves.append([float(p[0]), 1 + p[0] % 3, 2.5])  # float id, whole angle, ships to be cut
            moves.append([p[0], 0.3 * p[0], p[5] - 2])
            moves.append([p[0], 0.1, 10_000])
            moves.append([p[0], 0.1])
    return moves


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


@pytest.mark.parametrize("n_players", [2, 4])
def test_observations_are_those_of_the_environment(n_players: int) -> None:
    seed, turns, ours = 11, 70, n_players - 1  # the last seat is a player of our own
    env = Environment({"seed": seed}, n_players=n_players)
    session = OrbitSession(GAME.initial(seed, n_players))
    rng = np.random.default_rng(0)
    shown = 0
    for _ in range(turns):
        for seat in range(n_players):
            obs = session.observation(seat, 60)
            assert same(obs, env.observation(seat))
        shown = max(shown, len(obs["fleets"]))
        raw = [odd_moves(env.observation(seat)) for seat in range(ours)]
        own = AGENTS["greedy"](session.state, ours, rng)
        illegal = np.array([[0, 0.5, 1e6], [1e3, 0.5, 3]])
        own = np.concatenate([illegal[:1], own])
        session.step([*(session.read(seat, answer) for seat, answer in enumerate(raw)), own])
        env.step([*raw, [[int(p), angle, ships] for p, angle, ships in own.tolist()]])
        if env.done:
            break
    assert shown > 3


def test_an_answer_that_ends_an_official_episode_raises() -> None:
    session = OrbitSession(GAME.initial(1, 2))
    with pytest.raises(ValueError):
        session.read(0, [[0, 0.5, "abc"]])
    with pytest.raises(TypeError):
        session.read(0, [3])
    assert len(session.read(0, None)) == 0


def test_the_configuration_is_the_official_one() -> None:
    assert Environment().configuration == dict(CONFIGURATION)
    assert CONFIGURATION["actTimeout"] == 1
    assert math.isclose(CONFIGURATION["shipSpeed"], 6.0)
