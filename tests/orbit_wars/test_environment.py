"""Agents, statuses, rewards, clocks. test_parity and test_launches compare them with the official environment."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from td_loop.errors import UsageError
from td_loop.games.orbit_wars.environment import Environment, EnvironmentDone, OutOfTime
from td_loop.kaggle import call_agent


def idle(obs: Any) -> Any:
    return []


def broken(obs: Any) -> Any:
    raise RuntimeError("boom")


class Clock:
    """A clock that agents can turn forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_crash_is_an_error_from_that_turn_on_and_hidden_at_the_end() -> None:
    env = Environment({"seed": 1, "episodeSteps": 10})
    env.run([broken, idle])
    statuses = [[s.status for s in f.seats] for f in env.frames]
    assert statuses[0] == ["ACTIVE", "ACTIVE"]
    assert statuses[1:-1] == [["ERROR", "ACTIVE"]] * 8
    assert statuses[-1] == ["DONE", "DONE"]
    assert [f.seats[0].reward for f in env.frames] == [0] + [None] * 8 + [1]
    assert env.frames[1].seats[0].action is None
    assert env.frames[2].seats[0].action == []


def test_the_game_stops_when_all_seats_have_failed() -> None:
    env = Environment({"seed": 1})
    env.run([broken, broken])
    assert len(env.frames) == 2
    assert [(s.status, s.reward) for s in env.frames[-1].seats] == [("ERROR", None)] * 2
    with pytest.raises(EnvironmentDone, match="reset"):
        env.step([[], []])


def test_slow_answers_use_up_the_extra_time_and_then_time_out() -> None:
    clock = Clock()
    env = Environment({"seed": 1, "episodeSteps": 10}, clock=clock)

    def slow(obs: Any) -> Any:
        clock.now += 31.0
        return []

    env.run([slow, idle])
    assert [f.seats[0].overage for f in env.frames[:4]] == [60, 30.0, 0.0, -30.0]
    assert [f.seats[0].status for f in env.frames[:5]] == ["ACTIVE"] * 3 + ["TIMEOUT"] * 2
    assert env.frames[0].to_json()[0]["observation"]["remainingOverageTime"] == 60
    assert env.frames[2].to_json()[0]["observation"]["remainingOverageTime"] == 0.0
    assert env.frames[-1].seats[1].overage == 60


def test_a_game_that_takes_longer_than_the_run_timeout_is_an_error() -> None:
    clock = Clock()
    env = Environment({"seed": 1, "runTimeout": 5, "actTimeout": 100}, clock=clock)

    def slow(obs: Any) -> Any:
        clock.now += 2.0
        return []

    with pytest.raises(OutOfTime, match="runTimeout = 5"):
        env.run([slow, slow])


def test_agents_get_as_many_arguments_as_they_take() -> None:
    class Callable:
        def __call__(self, obs: Any, config: Any) -> Any:
            return (obs.step, config.x)

        def two(self, obs: Any) -> Any:
            return obs.step

    obs, config = {"step": 3}, {"x": 1}
    assert call_agent(lambda: "none", obs, config) == "none"
    assert call_agent(lambda o: o["step"], obs, config) == 3
    assert call_agent(lambda o, c: (o.step, c["x"]), obs, config) == (3, 1)
    assert call_agent(Callable(), obs, config) == (3, 1)
    assert call_agent(functools.partial(lambda a, o, c: (a, o.step), 7), obs, config) == (7, 3)
    with pytest.raises(TypeError):  # a bound method counts its `self`, and gets one argument too many
        call_agent(Callable().two, obs, config)


def test_agents_see_neither_the_seed_nor_each_other_s_changes() -> None:
    seen = []

    def vandal(obs: Any, config: Any) -> Any:
        seen.append((config["seed"], len(obs.planets), obs["step"], obs.get("player")))
        obs["planets"].clear()
        return []

    env = Environment({"seed": 9, "episodeSteps": 5})
    env.run([vandal, vandal])
    planets = len(env.frames[0].to_json()[0]["observation"]["planets"])
    assert seen == [(None, planets, t, seat) for t in range(4) for seat in range(2)]
    assert env.info == {"seed": 9}


def test_a_record_refuses_unknown_attributes() -> None:
    env = Environment({"seed": 9})
    record = env.steps[0][0]
    assert record.observation.step == 0
    record.reward = 5
    assert record["reward"] == 5
    with pytest.raises(AttributeError, match="nothing"):
        _ = record.nothing
    assert "step" not in env.steps[0][1]["observation"]


def test_the_replay_has_the_official_keys() -> None:
    env = Environment({"seed": 9, "episodeSteps": 4}, n_players=4)
    env.run([idle] * 4)
    replay = env.to_json()
    assert len(replay["steps"]) == 4
    assert replay["rewards"] == [1, 1, 1, 1]
    assert replay["statuses"] == ["DONE"] * 4
    assert replay["info"] == {"seed": 9}
    assert replay["configuration"]["seed"] is None
    assert replay["version"] == "1.0.9"


def test_run_goes_on_with_a_game_that_was_begun_and_restarts_a_finished_one() -> None:
    env = Environment({"seed": 9, "episodeSteps": 6})
    env.step([[], []])
    env.step([[], []])
    begun = env.frames[2]
    assert env.run([idle, idle])[2] is begun
    assert len(env.frames) == 6
    assert env.run([idle, idle])[2] is not begun
    assert len(env.frames) == 6
    assert len(env.run([idle] * 4)[0].seats) == 4


def test_without_a_seed_one_is_drawn_and_kept() -> None:
    env = Environment()
    first = env.frames[0].to_json()
    assert 0 <= env.info["seed"] < 2**31
    assert env.reset().to_json() == first


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"seed": 1.5}, "seed"),
        ({"seed": True}, "seed"),
        ({"episodeSteps": 0}, "episodeSteps"),
        ({"episodeSteps": 10.0}, "episodeSteps"),
        ({"shipSpeed": "fast"}, "shipSpeed"),
        ({"cometSpeed": None}, "cometSpeed"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Environment(config)


def test_one_action_a_seat_is_needed() -> None:
    with pytest.raises(UsageError, match="2 actions"):
        Environment({"seed": 1}).step([[]])
