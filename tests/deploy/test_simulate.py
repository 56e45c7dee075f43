"""Clients that play whole games through a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from td_loop.deploy.canary.window import Window
from td_loop.deploy.simulate import Simulation, simulate
from td_loop.errors import UsageError
from tests.deploy.serving import Server, started, with_record
from tests.deploy.toy_policy import write_good
from tests.deploy.toy_served import GAME


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("simulated")
    stable, canary = (with_record(write_good(folder / f"{k}.onnx", k)).path for k in range(2))
    options = ("--stable", stable, "--canary", canary, "--canary-percent", 50, "--deadline-ms", 5000)
    with started(folder / "deploy", *options) as found:
        yield found


@pytest.mark.parametrize("packed", [False, True])
def test_games_are_episodes_of_one_policy_and_their_outcomes_are_rewards(server: Server, packed: bool) -> None:
    before = Window(lambda: server.url).observe()
    played = simulate(GAME, Simulation(server.url, 20, opponent="idle", packed=packed, name=f"packed {packed}"))
    now = Window(lambda: server.url).observe()
    assert (played.games, played.failures, played.moved) == (20, {}, 0)
    assert not played.fallbacks
    stable, canary = now.stable.minus(before.stable), now.canary.minus(before.canary)
    assert stable.requests + canary.requests == sum(played.decisions.values())
    assert stable.episodes + canary.episodes == 20
    assert (stable.rewards, canary.rewards) == tuple(played.rewards[s][0] for s in ("stable", "canary"))
    assert stable.positive + canary.positive == pytest.approx(sum(total for _, total in played.rewards.values()))


def test_the_outcome_can_be_the_reward_of_every_decision(server: Server) -> None:
    before = Window(lambda: server.url).observe()
    played = simulate(GAME, Simulation(server.url, 3, clients=1, every=True, name="every", seed=100))
    now = Window(lambda: server.url).observe()
    rewards = now.stable.rewards + now.canary.rewards - before.stable.rewards - before.canary.rewards
    assert rewards == sum(played.decisions.values()) > 3


def test_a_server_that_is_not_there_is_a_failure_of_each_game(tmp_path: Path) -> None:
    played = simulate(GAME, Simulation("http://127.0.0.1:9", 3, clients=2))
    assert (played.games, sum(played.failures.values()), played.rewards) == (3, 3, {})


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(UsageError, match="not one of idle, random, rusher"):
        simulate(GAME, Simulation("http://127.0.0.1:9", 1, opponent="nobody"))
    with pytest.raises(UsageError, match="episodes must be 1 or more"):
        Simulation("http://127.0.0.1:9", 0)
