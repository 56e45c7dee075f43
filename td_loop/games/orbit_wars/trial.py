"""One game of a submission, watched: what it took, what it did wrong. Run in a process of its own.

    python -m td_loop.games.orbit_wars.trial '{"main": "DIR/main.py", "seed": 7}'

plays through the official environment if it is installed, through ours otherwise, and prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.environment import Environment
from td_loop.games.orbit_wars.observe import state_from_observation

RULE = "the rule plays: "
LATE_COMPILE = "compiled late: "


@dataclass(frozen=True)
class Setting:
    """A game to play.

    Attributes:
        main: `main.py` of the submission.
        seed: of the map.
        n_players: 2 or 4; the others are `starter`.
        seat: of the submission.
        episode_steps: official configuration; 500 is a whole game.
        act_timeout: official configuration, seconds.
        official: through the official environment; None: if it is installed.
        cache: folder of compiled kernels of its child; None: the usual.
        broken_observations: call the agent with malformed observations too, before the game.
    """

    main: str
    seed: int = 0
    n_players: int = 2
    seat: int = 0
    episode_steps: int = 500
    act_timeout: float = 1.0
    official: bool | None = None
    cache: str | None = None
    broken_observations: bool = False


@dataclass(frozen=True)
class Report:
    """What a game showed.

    Attributes:
        official: it was played through the official environment.
        seconds: of every move.
        faults: what must not happen: statuses but ACTIVE and DONE, late compilations, bad answers.
        fallbacks: how often the rule played in the search's place, by reason.
        overage: seconds of overage left.
        won: it got the reward 1.
        turns: moves asked for.
    """

    official: bool
    seconds: list[float]
    faults: list[str]
    fallbacks: dict[str, int]
    overage: float
    won: bool
    turns: int = field(default=0)


def play(setting: Setting) -> Report:
    """Play one game in this process."""
    if setting.cache is not None:  # of this process it is too late to move the kernels
        os.environ["TD_LOOP_CACHE"] = setting.cache
    faults = _abuse(setting.main) if setting.broken_observations else []
    official = find_spec("kaggle_environments") is not None if setting.official is None else setting.official
    config = {
        "seed": setting.seed,
        "episodeSteps": setting.episode_steps,
        "actTimeout": setting.act_timeout,
        "runTimeout": 1e6,
    }
    report = (_play_official if official else _play_ours)(setting, config)
    return Report(**{**asdict(report), "faults": faults + report.faults})


def _play_official(setting: Setting, config: dict[str, Any]) -> Report:
    from kaggle_environments import make  # type: ignore[import-untyped,import-not-found,unused-ignore]

    agents: list[Any] = ["starter"] * setting.n_players
    agents[setting.seat] = setting.main
    env = make("orbit_wars", configuration=config)
    env.run(agents)
    ours = [step[setting.seat] for step in env.steps]
    logs = [log[setting.seat] for log in env.logs[1:] if len(log) > setting.seat]
    return _report(
        True,
        [float(log["duration"]) for log in logs],
        [s.status for s in ours],
        "\n".join(log["stderr"] for log in logs),
        float(ours[-1].observation.remainingOverageTime),
        ours[-1].reward,
    )


def _play_ours(setting: Setting, config: dict[str, Any]) -> Report:
    agent, said, seconds = load_agent(setting.main), io.StringIO(), list[float]()

    def watched(obs: Any, configuration: Any) -> Any:
        began = time.perf_counter()
        with contextlib.redirect_stderr(said):
            answer = agent(obs, configuration)
        seconds.append(time.perf_counter() - began)
        return answer

    agents: list[Callable[..., Any]] = [_starter] * setting.n_players
    agents[setting.seat] = watched
    ours = [frame.seats[setting.seat] for frame in Environment(config).run(agents)]
    return _report(False, seconds, [s.status for s in ours], said.getvalue(), ours[-1].overage, ours[-1].reward)


def _starter(obs: dict[str, Any]) -> list[Any]:
    pos = state_from_observation(obs)
    return [[int(p), angle, int(n)] for p, angle, n in AGENTS["starter"](pos, obs["player"], _NO_LUCK).tolist()]


_NO_LUCK = np.random.default_rng(0)  # `starter` draws nothing


def _report(
    official: bool, seconds: list[float], statuses: list[str], said: str, overage: float, reward: int | None
) -> Report:
    lines = said.splitlines()
    bad = Counter(s for s in statuses if s not in ("ACTIVE", "DONE"))
    faults = [f"status {status} in {n} frames" for status, n in bad.items()]
    faults += [line for line in lines if line.startswith((LATE_COMPILE, "no move: ", "Traceback"))]
    fallbacks = Counter(line.removeprefix(RULE) for line in lines if line.startswith(RULE))
    return Report(official, seconds, faults, dict(fallbacks), overage, reward == 1, len(seconds))


def load_agent(main: str) -> Callable[..., Any]:
    """The agent of a `main.py`, found as the official loader does: no `__file__`, the last callable."""
    folder = str(Path(main).parent)
    names: dict[str, Any] = {}
    sys.path.append(folder)
    try:
        exec(compile(Path(main).read_text(), main, "exec"), names)
    finally:
        sys.path.remove(folder)
    agent: Callable[..., Any] = [v for v in names.values() if callable(v)][-1]
    return agent


# A planet that is not there, an owner that cannot be, words for numbers, and less and less of anything.
_ROW = [0, 0, 20.0, 20.0, 2.0, 30, 3]
_GOOD = {
    "step": 3, "player": 0, "angular_velocity": 0.03, "planets": [_ROW, [1, -1, 80.0, 80.0, 2.0, 5, 3]],
    "initial_planets": [], "fleets": [], "next_fleet_id": 0, "comets": [], "comet_planet_ids": [],
    "remainingOverageTime": 60,
}  # fmt: skip
_WRONG: tuple[Any, ...] = (None, "x", -7, 1e300, float("nan"), [[]], [None], {})
BROKEN: list[Any] = [
    None, {}, [], "observation", 7,
    *({k: v for k, v in _GOOD.items() if k != gone} for gone in _GOOD),
    *({**_GOOD, key: wrong} for key in _GOOD for wrong in _WRONG),
    {**_GOOD, "planets": [[*_ROW[:5], "many", 3]]}, {**_GOOD, "planets": [_ROW[:4]]},
    {**_GOOD, "planets": [[0, 9, *_ROW[2:]]]}, {**_GOOD, "fleets": [[0, 0, 1.0]]},
    {**_GOOD, "comets": [{"planet_ids": [1]}]}, {**_GOOD, "player": 3}, {**_GOOD, "loop": {1, 2}},
]  # fmt: skip
"""Observations that no environment should send."""
_BROKEN_CONFIGS: list[Any] = [
    None, "configuration", {}, {"actTimeout": 0.0}, {"actTimeout": "x", "episodeSteps": None, "shipSpeed": -1},
]  # fmt: skip


def _abuse(main: str) -> list[str]:
    """What an agent did wrong with broken observations and configurations."""
    agent, faults = load_agent(main), []
    with contextlib.redirect_stderr(io.StringIO()):
        for obs, config in [
            *((obs, {"actTimeout": 0.1}) for obs in BROKEN),
            *((_GOOD, c) for c in _BROKEN_CONFIGS),
        ]:
            try:
                answer = agent(obs, config)
            except Exception as e:
                faults.append(f"{type(e).__name__} ({e}) on the broken observation {obs!r:.200}")
                continue
            if not isinstance(answer, list) or any(len(move) != 3 for move in answer):
                faults.append(f"answer {answer!r:.200} to the broken observation {obs!r:.200}")
    return faults


def main(argument: str) -> None:
    """Play what a JSON object describes (see `Setting`); print the report as one line of JSON."""
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the official package prints
    print(json.dumps(asdict(play(Setting(**json.loads(argument))))), file=own, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
