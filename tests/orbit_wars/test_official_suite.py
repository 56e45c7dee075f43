"""The official package's own tests of this game, run against our engine.

`interpreter` and `make` are replaced by adapters: the SimpleNamespace states of those tests become positions, one
turn is played by our engine, and the result is written back. All tests of release 1.33.2 apply, so `CANNOT_APPLY`
is empty; a test of a later release that is neither passed nor listed there fails here.

What the suite imports but does not test through an interpreter (`generate_planets`, `distance`) stays the official
one; `test_board` and `test_exact` compare ours with it.
"""

from __future__ import annotations

import random
import unittest
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from td_loop.games.orbit_wars import engine, observe
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.environment import Environment
from td_loop.games.orbit_wars.launches import accepted, legal_launches, to_action
from td_loop.games.orbit_wars.state import DONE, Board, Position

CANNOT_APPLY: dict[str, str] = {}
"""Name of an official test -> why it says nothing about an engine."""

EXPECTED = 29  # official tests in release 1.33.2

SHARED = (
    "angular_velocity",
    "planets",
    "initial_planets",
    "fleets",
    "next_fleet_id",
    "comets",
    "comet_planet_ids",
)


def _show(state: list[Any], pos: Position) -> None:
    for i, seat in enumerate(state):
        obs = observe.observation(pos, i)
        for key in SHARED:
            setattr(seat.observation, key, obs[key])
        seat.observation.player = i


def _with_comets(pos: Position, full: Board) -> Position:
    """`pos`, which knows the comets that it shows, on the board that knows them all."""
    group = {int(s): g for g, s in enumerate(full.comet_spawn)}
    new = np.array([group[int(s)] for s in pos.board.comet_spawn], np.int64)
    at = np.full(len(full.comet_spawn), -1, np.int64)
    at[new] = pos.state.comet_at
    p_comet = np.array([new[g] if g >= 0 else -1 for g in pos.state.p_comet], np.int64)
    board = pos.board._replace(**{k: v for k, v in full._asdict().items() if k.startswith("comet_")})
    return Position(board, pos.state._replace(comet_at=at, p_comet=p_comet))


def interpreter(state: list[Any], env: Any) -> list[Any]:
    """The official interpreter's contract, kept by our engine."""
    config = vars(env.configuration)
    made = {
        "episode_steps": config["episodeSteps"],
        "ship_speed": config["shipSpeed"],
        "comet_speed": config["cometSpeed"],
    }
    first = state[0].observation
    if not getattr(first, "planets", None):
        env.info = {"seed": random.randrange(2**31)}
        _show(state, new_game(env.info["seed"], len(state), **made))
        return state
    if env.done:
        return state
    pos = observe.state_from_observation(vars(first), config, n_players=len(state))
    if getattr(env, "info", None):
        pos = _with_comets(pos, new_game(env.info["seed"], len(state), **made).board)
    moves = [accepted(seat.action) for seat in state]
    pos = engine.step(pos, [to_action(legal_launches(pos, i, m)) for i, m in enumerate(moves)])
    _show(state, pos)
    if pos.state.head[DONE]:
        for seat, reward in zip(state, engine.rewards(pos), strict=True):
            seat.status, seat.reward = "DONE", reward
    return state


class Made(Environment):
    """What `kaggle_environments.make` gives, by our environment."""

    def toJSON(self) -> dict[str, Any]:  # noqa: N802 - the official name
        return self.to_json()


def make(name: str, configuration: dict[str, Any], debug: bool) -> Made:
    assert name == "orbit_wars"
    return Made(configuration)


@pytest.fixture(scope="module")
def suite(official: ModuleType) -> type[unittest.TestCase]:
    import kaggle_environments
    from kaggle_environments.envs.orbit_wars import test_orbit_wars

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_orbit_wars, "interpreter", interpreter)
        patch.setattr(kaggle_environments, "make", make)
        yield test_orbit_wars.TestOrbitWars


def _names(suite: type[unittest.TestCase]) -> list[str]:
    return [str(n) for n in unittest.TestLoader().getTestCaseNames(suite)]


def test_the_whole_official_suite_passes(suite: type[unittest.TestCase]) -> None:
    result = unittest.TestResult()
    for name in _names(suite):
        if name not in CANNOT_APPLY:
            suite(name).run(result)
    assert result.testsRun == EXPECTED - len(CANNOT_APPLY)
    assert result.wasSuccessful(), "\n".join(text for _, text in result.failures + result.errors)


def test_every_official_test_is_accounted_for(suite: type[unittest.TestCase]) -> None:
    names = _names(suite)
    assert set(CANNOT_APPLY) <= set(names)
    assert len(names) == EXPECTED


def test_the_adapter_really_runs_our_engine(
    suite: type[unittest.TestCase], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "rewards", lambda pos: [0] * pos.board.n_players)
    result = unittest.TestResult()
    suite("test_rewards_set_at_max_steps").run(result)
    assert len(result.failures) == 1
