"""The official environment around our engine: agents, statuses, rewards, replays in the official format.

What follows was read from `kaggle_environments` 1.33.2 (`core.py`, `agent.py`, `utils.py`) and is compared with
it turn by turn in the tests.

- An agent that raises, or returns an exception, gets status ERROR and plays no move from then on; its reward is
  null until the game ends. Whoever is out of time gets TIMEOUT in the same way. The game goes on; when it ends,
  every status becomes DONE and everybody is paid by ships. If no seat is ACTIVE any more the game stops as it is,
  with null rewards.
- Anything but a list is no move (see `launches`); status INVALID does not occur with this package version.
- Where the official interpreter itself raises on a move, the exception leaves `step` and `run`, and the
  environment stays as it was before the turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from td_loop.errors import TdLoopError, UsageError
from td_loop.games.orbit_wars import engine, observe
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.launches import accepted, legal_launches, to_action
from td_loop.games.orbit_wars.session import relabelled
from td_loop.games.orbit_wars.state import (
    COMET_SPEED,
    DONE,
    EPISODE_STEPS,
    SHIP_SPEED,
    Position,
)
from td_loop.kaggle import Agent, Record, call_agent

SPEC_VERSION = "1.0.9"
MODULE_VERSION = "1.33.2"
CONFIGURATION: Mapping[str, Any] = {
    "seed": None,
    "episodeSteps": EPISODE_STEPS,
    "actTimeout": 1,
    "runTimeout": 1200,
    "agentTimeout": 2,
    "shipSpeed": SHIP_SPEED,
    "cometSpeed": COMET_SPEED,
}
"""The official defaults."""
_FAILED = ("ERROR", "INVALID", "TIMEOUT")


class OutOfTime(TdLoopError):
    """Given to `step` in place of an action: the seat is out of time."""


class EnvironmentDone(TdLoopError):
    """`step` was called on a finished game; call `reset` first."""


@dataclass
class Seat:
    """A seat's side of one frame. Field names are those of the official JSON."""

    action: list[Any] | None = field(default_factory=list)  # chosen on the frame before; None where it failed
    reward: int | None = 0
    status: str = "ACTIVE"
    overage: float = observe.OVERAGE_SECONDS  # seconds


@dataclass
class Frame:
    """One turn: the position, the seats, and what to show for angles and planet ids of its fleets."""

    position: Position
    seats: list[Seat]
    labels: dict[int, tuple[Any, Any]]

    def to_json(self) -> list[Record]:
        """One record a seat, as in `steps` of an official replay: only seat 0 has `step`."""
        out = []
        for i, seat in enumerate(self.seats):
            obs = observe.observation(self.position, i, labels=self.labels, overage=seat.overage)
            if i > 0:
                del obs["step"]
            out.append(
                Record(
                    action=seat.action,
                    reward=seat.reward,
                    info=Record(),
                    observation=Record(obs),
                    status=seat.status,
                )
            )
        return out


class Environment:
    """One game at a time: `reset`, then `step` until `done`, or `run` with agents.

    Args:
        configuration: official keys: `seed` (int; None draws one), `episodeSteps` (>= 1), `actTimeout` (seconds),
            `shipSpeed`, `cometSpeed`, `runTimeout` (seconds). The seed is not shown to agents; it is kept in
            `info`.
        n_players: 2 or 4.
        clock: seconds, for the time limits of `run`.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any] | None = None,
        *,
        n_players: int = 2,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.configuration: dict[str, Any] = {**CONFIGURATION, **(configuration or {})}
        _check(self.configuration)
        seed = self.configuration["seed"]
        self.configuration["seed"] = None  # agents must not see it
        self.info: dict[str, Any] = {"seed": random.randrange(2**31) if seed is None else seed}
        self.frames: list[Frame] = []
        self._clock = clock
        self.reset(n_players)

    def reset(self, n_players: int | None = None) -> Frame:
        """Start the same map anew, with as many players as before unless told otherwise."""
        if n_players is None:
            n_players = len(self.frames[0].seats)
        pos = new_game(
            self.info["seed"],
            n_players,
            episode_steps=self.configuration["episodeSteps"],
            ship_speed=self.configuration["shipSpeed"],
            comet_speed=self.configuration["cometSpeed"],
        )
        self.frames = [Frame(pos, [Seat() for _ in range(n_players)], {})]
        return self.frames[0]

    @property
    def position(self) -> Position:
        """Where the game stands."""
        return self.frames[-1].position

    @property
    def done(self) -> bool:
        """No seat is ACTIVE."""
        return all(s.status != "ACTIVE" for s in self.frames[-1].seats)

    def observation(self, seat: int) -> dict[str, Any]:
        """What the agent of `seat` sees now."""
        last = self.frames[-1]
        return observe.observation(last.position, seat, labels=last.labels, overage=last.seats[seat].overage)

    def step(self, actions: Sequence[Any], durations: Sequence[float | None] | None = None) -> Frame:
        """Play one turn.

        Args:
            actions: one a seat: a list of moves (anything else is no move), or an exception for a seat that failed
                (`OutOfTime`: it was too slow).
            durations: seconds that each seat took, to be charged to its extra time; None: not charged.

        Raises:
            EnvironmentDone: the game is over.
            UsageError: not one action a seat.
            Exception: what the official interpreter raises on a malformed move; nothing has changed then.
        """
        last = self.frames[-1]
        if self.done:
            raise EnvironmentDone("the game is over; call reset() to play again")
        if len(actions) != len(last.seats):
            raise UsageError(f"{len(last.seats)} actions are needed, one a seat, not {len(actions)}")
        seats = [_receive(seat, raw) for seat, raw in zip(last.seats, actions, strict=True)]
        launches = [legal_launches(last.position, i, s.action or []) for i, s in enumerate(seats)]
        pos = engine.step(last.position, [to_action(made) for made in launches])

        labels = relabelled(last.labels, last.position, launches, pos)

        if pos.state.head[DONE]:
            for seat, reward in zip(seats, engine.rewards(pos), strict=True):
                seat.status, seat.reward = "DONE", reward
        for seat, seconds in zip(seats, durations or [None] * len(seats), strict=True):
            if seconds is not None:
                seat.overage -= max(0, seconds - self.configuration["actTimeout"])
            if seat.status in _FAILED:
                seat.reward = None
        self.frames.append(Frame(pos, seats, labels))
        return self.frames[-1]

    def run(self, agents: Sequence[Agent]) -> list[Frame]:
        """Play a whole game, or to its end one that was begun with `step`.

        Raises:
            OutOfTime: `runTimeout` was exceeded.
            Exception: see `step`.
        """
        if len(self.frames) == 1 or self.done:
            self.reset(len(agents))
        start = self._clock()
        while not self.done:
            if self._clock() - start >= self.configuration["runTimeout"]:
                raise OutOfTime(f"the game took longer than runTimeout = {self.configuration['runTimeout']} s")
            answers = [self._ask(i, agent) for i, agent in enumerate(agents)]
            self.step([action for action, _ in answers], [seconds for _, seconds in answers])
        return self.frames

    def _ask(self, i: int, agent: Agent) -> tuple[Any, float | None]:
        """The answer of a seat's agent, and the seconds that it took; seats that failed are not asked."""
        seat = self.frames[-1].seats[i]
        if seat.status != "ACTIVE":
            return None, None
        obs, config = self.observation(i), dict(self.configuration)
        start = self._clock()
        try:
            action = call_agent(agent, obs, config)
        except Exception as e:
            action = e
        seconds = self._clock() - start
        if seconds - self.configuration["actTimeout"] > seat.overage:
            action = OutOfTime(f"seat {i} took {seconds:.3f} s")
        return action, round(seconds, 6)

    @property
    def steps(self) -> list[list[Record]]:
        """All frames in the official format; built anew at each call."""
        return [frame.to_json() for frame in self.frames]

    def to_json(self) -> dict[str, Any]:
        """The episode as an official replay.

        It leaves out what no reader of replays needs: `specification` and `description`, which tell of the game
        and not of the episode, and `id`, which is drawn at random.
        """
        last = self.frames[-1].seats
        return {
            "name": "orbit_wars",
            "title": "Orbit Wars",
            "version": SPEC_VERSION,
            "module_version": MODULE_VERSION,
            "schema_version": 1,
            "configuration": dict(self.configuration),
            "info": dict(self.info),
            "steps": self.steps,
            "rewards": [s.reward for s in last],
            "statuses": [s.status for s in last],
        }


def _receive(seat: Seat, raw: Any) -> Seat:
    """The seat in the frame to come, with what it answered."""
    after = Seat(None, seat.reward, seat.status, seat.overage)
    if isinstance(raw, OutOfTime):
        after.status = "TIMEOUT"
    elif isinstance(raw, BaseException):
        after.status = "ERROR"
    else:
        after.action = accepted(raw)
    return after


def _check(config: Mapping[str, Any]) -> None:
    seed, steps = config["seed"], config["episodeSteps"]
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise UsageError(f"configuration: seed must be an integer or null, not {seed!r}")
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise UsageError(f"configuration: episodeSteps must be an integer of at least 1, not {steps!r}")
    for key in ("shipSpeed", "cometSpeed", "actTimeout", "runTimeout"):
        if not isinstance(config[key], int | float) or isinstance(config[key], bool):
            raise UsageError(f"configuration: {key} must be a number, not {config[key]!r}")
