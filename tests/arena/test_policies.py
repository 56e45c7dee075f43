"""A policy is a contestant: known by its file's content, played through a runner, refused for another game."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from td_loop.arena.contestants import Kind, parse
from td_loop.arena.game import Fixture, Host
from td_loop.arena.outside import Limits
from td_loop.errors import DataError, UsageError
from td_loop.games.base import Budget
from td_loop.games.orbit_wars.game import GAME as ORBIT_WARS
from tests.deploy.toy_policy import write_good
from tests.deploy.toy_served import GAME
from tests.toy_game import GAME as WITHOUT_POLICIES

BUDGET = Budget(evals=3)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.onnx"
    write_good(path)
    return path


def test_it_is_known_by_its_content(policy: Path, tmp_path: Path) -> None:
    found = parse(str(policy), GAME, BUDGET, {})
    assert (found.label, found.kind, found.source, found.budget) == ("toy", Kind.POLICY, str(policy), None)
    moved = policy.rename(tmp_path / "moved.onnx")
    assert parse(f"fast={moved}", GAME, BUDGET, {}).identity == found.identity
    write_good(moved, seed=1)
    assert parse(str(moved), GAME, BUDGET, {}).identity != found.identity


def test_it_plays_what_it_finds_most_likely(policy: Path) -> None:
    found = [parse(spec, GAME, BUDGET, {}) for spec in (str(policy), "idle")]
    host = Host(GAME, {c.identity: c for c in found}, Limits())
    host.warm_up()
    played = [host.play(Fixture(3, tuple(c.identity for c in found), k, 2)) for k in (0, 0)]
    assert played[0].shares == (1.0, 0.0)  # it settles, the other does nothing
    assert (played[0].turns, played[0].moves) == (played[1].turns, played[1].moves)
    state = GAME.initial(3, 2)
    decide = host.decider(found[0])
    one, other = (decide(state, 0, np.random.default_rng(seed)) for seed in (0, 1))
    np.testing.assert_array_equal(one, other)  # it draws nothing


def test_a_budget_another_game_and_a_game_without_policies_are_refused(policy: Path) -> None:
    with pytest.raises(UsageError, match="only weights have a budget"):
        parse(f"{policy}@400e", GAME, BUDGET, {})
    with pytest.raises(DataError, match="not for 'orbit_wars'"):
        parse(str(policy), ORBIT_WARS, BUDGET, {})
    with pytest.raises(UsageError, match="has no policies"):
        parse(str(policy), WITHOUT_POLICIES, BUDGET, {})
    with pytest.raises(DataError, match="no such file"):
        parse(str(policy.with_name("gone.onnx")), GAME, BUDGET, {})
