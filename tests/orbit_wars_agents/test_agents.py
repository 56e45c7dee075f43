from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from td_loop.games.orbit_wars.agents import AGENTS, BALANCED, Style, planned, starter, weakened
from td_loop.games.orbit_wars.launches import accepted, legal_launches
from td_loop.games.orbit_wars.observe import observation
from td_loop.games.orbit_wars.planner import MAX_LAUNCHES
from td_loop.games.orbit_wars.selfplay import play
from td_loop.games.orbit_wars.state import Action, Position, copy_state
from tests.orbit_wars_agents.positions import GAMES, positions

EVERY = 13  # turns between two positions looked at


def some_positions() -> list[tuple[Position, int]]:
    """(position, seat), over all games."""
    return [(p, seat) for game in GAMES for p in positions(*game)[::EVERY] for seat in range(game[1])]


def as_raw(action: Action) -> list[list[float]]:
    """The action as an agent of the official environment would return it."""
    return [[int(p), angle, int(ships)] for p, angle, ships in action.tolist()]


@pytest.mark.parametrize("name", AGENTS)
def test_every_launch_of_an_agent_is_taken_by_the_engine(name: str) -> None:
    rng = np.random.default_rng(3)
    launched = 0
    for position, seat in some_positions():
        action = AGENTS[name](position, seat, rng)
        assert action.shape == (len(action), 3)
        assert action.dtype == np.float64
        assert len(action) <= MAX_LAUNCHES + 1
        taken = legal_launches(position, seat, accepted(as_raw(action)))
        assert [(t.planet, t.angle, t.ships) for t in taken] == [tuple(row) for row in action.tolist()]
        launched += len(action)
    assert (launched == 0) == (name == "idle")


@pytest.mark.parametrize("name", ["rusher", "greedy", "balanced", "settler"])
def test_agents_leave_the_position_alone_and_repeat_themselves(name: str) -> None:
    for position, seat in some_positions()[::5]:
        before = copy_state(position.state)
        first = AGENTS[name](position, seat, np.random.default_rng(8))
        second = AGENTS[name](position, seat, np.random.default_rng(8))
        np.testing.assert_array_equal(first, second)
        for name_of, array in before._asdict().items():
            np.testing.assert_array_equal(getattr(position.state, name_of), array)


def test_angles_of_rule_based_agents_fit_in_four_bytes() -> None:
    agent = planned(weakened(BALANCED, 0.0))  # blunders included
    rng = np.random.default_rng(4)
    for position, seat in some_positions():
        angles = agent(position, seat, rng)[:, 1]
        np.testing.assert_array_equal(angles, angles.astype(np.float32))


def _official() -> Any:
    return pytest.importorskip(
        "kaggle_environments.envs.orbit_wars.orbit_wars", reason="the official engine is not installed"
    )


def test_starter_does_what_the_official_starter_does() -> None:
    official = _official()
    rng = np.random.default_rng(0)
    launched = 0
    for position, seat in some_positions():
        for rich in (False, True):
            if rich:  # more garrisons large enough to launch from
                position.state.p_ships[:] += 30
            expected = official.starter_agent(observation(position, seat))
            assert as_raw(starter(position, seat, rng)) == expected
            launched += len(expected)
            if rich:
                position.state.p_ships[:] -= 30
    assert launched > 100


def test_random_launches_what_the_official_random_agent_launches() -> None:
    official = _official()
    rng = np.random.default_rng(0)
    angles = []
    for position, seat in some_positions():
        ours = as_raw(AGENTS["random"](position, seat, rng))
        expected = official.random_agent(observation(position, seat))
        assert [(m[0], m[2]) for m in ours] == [(m[0], m[2]) for m in expected]
        angles += [m[1] for m in ours]
    assert min(angles) >= 0.0
    assert max(angles) <= 2 * np.pi
    assert np.ptp(angles) > 3.0


@pytest.mark.parametrize("name", ["rusher", "greedy", "balanced"])
def test_rule_based_agents_beat_the_starter(name: str) -> None:
    won = 0.0
    for seed in range(6):
        seat = seed % 2
        line_up = [starter, AGENTS[name]] if seat else [AGENTS[name], starter]
        won += play(line_up, 700 + seed).result[seat]
    assert won >= 5


def test_full_skill_is_the_style_itself_and_less_skill_errs() -> None:
    assert weakened(BALANCED, 1.0) == BALANCED
    worse = weakened(BALANCED, 0.4)
    assert worse.noise > 0
    assert 0 < worse.lapse < 1
    assert 0 < worse.blunder < 1
    assert worse._replace(noise=0.0, lapse=0.0, blunder=0.0) == BALANCED


def test_who_overlooks_everything_launches_nothing() -> None:
    asleep = planned(Style(lapse=1.0))
    rng = np.random.default_rng(1)
    assert all(len(asleep(position, seat, rng)) == 0 for position, seat in some_positions())
