"""The policy that comes with the project: for today's tokens, legal with any number of seats, and no beginner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.state import Position
from td_loop.policy.artefact import read_artefact
from td_loop.policy.network import NumpyRunner
from td_loop.policy.player import policy_player

POLICY = Path(__file__).parents[2] / "models" / "policy_v1.onnx"
ARTEFACT = read_artefact(POLICY, GAME.contract)
DECIDE = policy_player(GAME, NumpyRunner(ARTEFACT))


def outcome(seed: int, n_players: int, seats: tuple[int, ...], opponent: str) -> np.ndarray:
    """Result of a game in which the policy sits in `seats`; every launch of its is legal."""
    state, rng = GAME.initial(seed, n_players), np.random.default_rng(seed)
    while (result := GAME.outcome(state)) is None:
        actions = [(DECIDE if s in seats else AGENTS[opponent])(state, s, rng) for s in range(n_players)]
        assert all(GAME.is_legal(state, s, actions[s]) for s in seats)
        state = GAME.step(state, actions)
    return result


@pytest.mark.parametrize("seat", [0, 1])
def test_it_beats_the_official_starter(seat: int) -> None:
    """5 games a seat on fixed maps; it won all of 300 in the arena."""
    assert [outcome(seed, 2, (seat,), "starter")[seat] for seed in range(5)] == [1.0] * 5


def test_it_plays_with_four_seats() -> None:
    assert outcome(1, 4, (2,), "starter")[2] == 1.0
    assert outcome(2, 4, (0, 1, 2, 3), "starter").sum() == pytest.approx(1.0)


def test_its_file_is_small_and_says_how_it_was_made() -> None:
    assert POLICY.stat().st_size < 1_000_000
    training = ARTEFACT.meta.training
    assert training["command"].startswith("td-loop policy fit --out models/policy_v1.onnx")
    assert training["rounds"][-1]["agreement"] > 0.7
    assert {"weights", "data"} <= set(ARTEFACT.meta.parents)


def test_its_reference_cases_repeat() -> None:
    run = NumpyRunner(ARTEFACT)
    for case in ARTEFACT.meta.cases:
        np.testing.assert_allclose(run(case.inputs), case.logits, rtol=1e-4, atol=1e-4)


def test_its_decisions_on_recorded_games_are_legal(real_replays_store: list[Position]) -> None:
    launches = 0
    for position in real_replays_store:
        for seat in np.flatnonzero(GAME.alive(position)).tolist():
            action = DECIDE(position, seat, np.random.default_rng(0))
            assert GAME.is_legal(position, seat, action)
            launches += len(action)
    assert launches > 50
