"""Any action does what the official environment does with it."""

from __future__ import annotations

import contextlib
import decimal
import io
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.environment import Environment

SEED = 11
HOME = int(np.flatnonzero(new_game(SEED, 2).state.p_owner == 0)[0])
RIVAL = int(np.flatnonzero(new_game(SEED, 2).state.p_owner == 1)[0])
CONFIG = {"seed": SEED, "episodeSteps": 30, "actTimeout": 1000}


class ListOfMoves(list[Any]):
    """A list all the same."""


SURVIVED: list[Any] = [
    None,
    "hello",
    b"hello",
    7,
    math.nan,
    True,
    {},
    {"a": [1, 2, 3]},
    (),
    ((HOME, 0.0, 1),),
    np.array([[HOME, 0.0, 1.0]]),
    ListOfMoves([[HOME, 0.0, 1]]),
    [],
    [[]],
    [[HOME, 0.0]],
    [[HOME, 0.0, 1, 1]],
    ["ab", "123", {}, {"a": 1}, (HOME, 1.0, 2)],
    [[HOME, 0.0, 0], [HOME, 0.0, -1], [HOME, 0.0, 11], [HOME, 0.0, 10**40], [HOME, 0.0, 1e300]],
    [[HOME, 0.0, 10], [HOME, 0.0, 1]],
    [[HOME, 0.0, 6], [HOME, 0.0, 6], [HOME, 0.0, 4]],
    [[HOME, 0.0, 1.9], [HOME, 1.0, "2"], [HOME, 2.0, " 1_0 "], [HOME, 3.0, b"1"], [HOME, 4.0, True]],
    [[HOME, 0.0, np.int64(2)], [HOME, np.float32(0.5), np.float64(1.5)], [np.float64(HOME), 1.0, 1]],
    [[float(HOME), 0, 1.0], [decimal.Decimal(HOME), decimal.Decimal("0.25"), decimal.Decimal("1.5")]],
    [[complex(HOME), True, 1]],
    [[HOME, math.nan, 3]],
    [[HOME, 10**15, 1], [HOME, -1e18, 1]],
    [[RIVAL, 0.0, 1], [RIVAL, "north", 1], [RIVAL, math.inf, 1], [HOME, "north", 99]],
    [[-1, 0.0, 1], [10**9, 0.0, 1], [HOME + 0.5, 0.0, 1], [str(HOME), 0.0, 1], [None, 0.0, 1], [math.nan, 0.0, 1]],
    [[[HOME], 0.0, 1], [[HOME, 0.0, 1], [HOME, 0.0, 1]]],
    [{"items": [], "b": 2}, {"a": 1, "b": 2, "items": 3}],
]

RAISED: list[Any] = [
    [5],
    [None],
    [True, [HOME, 0.0, 1]],
    [[HOME, 0.0, "two"]],
    [[HOME, 0.0, "1.5"]],
    [[HOME, 0.0, ""]],
    [[RIVAL, 0.0, None]],
    [[RIVAL, 0.0, [1]]],
    [[HOME, 0.0, math.nan]],
    [[HOME, 0.0, math.inf]],
    [[HOME, 0.0, 1j]],
    [[HOME, 0.0, "1" * 5000]],
    [[HOME, "north", 1]],
    [[HOME, None, 1]],
    [[HOME, math.inf, 1]],
    [[HOME, -math.inf, 1]],
    [[HOME, 10**400, 1]],
    [[HOME, 1j, 1]],
    [[HOME, [0.0], 1]],
    [[HOME, 0.0, 1], "abc"],
    [{"a": 1, "b": 2, "c": 3}],
    [{1: 2}],
    [{"self": 1}],
    [np.array([1.0])[0]],
    (x for x in ()),
]


def shown(x: Any) -> str:
    """The name of a case: the same in every process."""
    return repr(x).partition(" at 0x")[0]


def _both(official: ModuleType) -> tuple[Any, Environment]:
    with contextlib.redirect_stdout(io.StringIO()):
        from kaggle_environments import make

        theirs = make("orbit_wars", configuration=dict(CONFIG))
    return theirs, Environment(CONFIG)


@pytest.mark.parametrize("action", SURVIVED, ids=shown)
def test_actions_that_the_official_engine_survives(official: ModuleType, action: Any) -> None:
    theirs, ours = _both(official)
    for turn in range(4):
        actions: list[Any] = [action if turn != 2 else [], [[RIVAL, 0.5, 1]]]
        theirs.step(list(actions))
        ours.step(actions)
        assert repr(ours.frames[-1].to_json()) == repr(theirs.steps[-1])


@pytest.mark.parametrize("action", RAISED, ids=shown)
def test_actions_that_make_the_official_engine_raise(official: ModuleType, action: Any) -> None:
    """The same exception leaves `step`; nothing has changed, and the game can go on with other actions."""
    theirs, ours = _both(official)
    good: list[Any] = [[[HOME, 1.0, 3]], []]
    theirs.step(list(good))
    ours.step(good)
    with pytest.raises(Exception) as expected:
        theirs.step([action, []])
    with pytest.raises(expected.type) as raised:
        ours.step([action, []])
    assert raised.type is expected.type
    assert len(ours.frames) == len(theirs.steps) == 2
    theirs.step([[], []])
    ours.step([[], []])
    assert repr(ours.frames[-1].to_json()) == repr(theirs.steps[-1])


@pytest.mark.parametrize("turn", [0, 3])
def test_such_an_exception_ends_run_as_well(official: ModuleType, turn: int) -> None:
    def agent(obs: Any) -> Any:
        return [[HOME, "north", 1]] if obs.step == turn and obs.player == 0 else []

    theirs, ours = _both(official)
    with pytest.raises(TypeError):
        theirs.run([agent, agent])
    with pytest.raises(TypeError):
        ours.run([agent, agent])
    assert repr(ours.steps) == repr(theirs.steps)
    assert len(ours.frames) == turn + 1
    assert not ours.done


def test_an_action_is_copied() -> None:
    env = Environment(CONFIG)
    move = [HOME, 0.5, 3]
    frame = env.step([[move], []])
    move[2] = 99
    assert frame.seats[0].action == [[HOME, 0.5, 3]]
