"""Clients that play whole games through a decision server, against a built-in player, and report the outcome.

They are what tests and a first look at a release have for traffic: each game is an episode, each turn a decision,
and the outcome (1 won, 0 lost, a share where several won) is the reward of the last decision, or of every one.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from td_loop.deploy.client import Answer, Client, ServerError
from td_loop.errors import UsageError
from td_loop.games.base import Player, Session
from td_loop.games.served import Served

BREAK_S = 0.2
"""Seconds that a client waits after a request that failed."""


@dataclass(frozen=True)
class Simulation:
    """What is played.

    Attributes:
        url: of the server, or of a router in front of it.
        episodes: games, in all.
        clients: that play at the same time.
        opponent: name of the built-in player in all other seats.
        n_players: seats.
        seed: of the first game.
        maps: how many different games there are, played over and over; 0: no two are the same.
        packed: ask with binary bodies.
        every: report the outcome for every decision, rather than for the last one.
        pace_s: seconds between two turns of a client.
        most_turns: after so many turns a game ends, unfinished, with its outcome unknown and without a reward.
        name: what episodes are called by, before their number.

    Raises:
        UsageError: a number is out of range.
    """

    url: str
    episodes: int
    clients: int = 4
    opponent: str = "random"
    n_players: int = 2
    seed: int = 0
    maps: int = 0
    packed: bool = False
    every: bool = False
    pace_s: float = 0.0
    most_turns: int = 10_000
    name: str = "game"

    def __post_init__(self) -> None:
        for name, least in (("episodes", 1), ("clients", 1), ("most_turns", 1), ("pace_s", 0), ("maps", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be {least} or more, not {getattr(self, name)}")


@dataclass
class Played:
    """What became of a simulation.

    Attributes:
        games: that were played.
        decisions: by subset.
        fallbacks: by reason.
        rewards: [number, sum] by subset of the decision that was rewarded.
        failures: requests that failed, and why; the game ends there.
        moved: games with decisions of both subsets.
    """

    games: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    rewards: dict[str, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    moved: int = 0


def simulate(
    game: Served[Any, Any],
    simulation: Simulation,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
) -> Played:
    """Play, and say what came of it.

    Args:
        game: what is played.
        simulation: see there.
        stop: ends it early, between two turns.
        say: told of every request that failed, at once.

    Raises:
        UsageError: there is no such opponent.
    """
    if simulation.opponent not in game.players:
        known = ", ".join(sorted(game.players))
        raise UsageError(f"--opponent {simulation.opponent}: not one of {known}")
    played, lock, numbers = Played(), threading.Lock(), itertools.count()
    player, one_at_a_time = game.players[simulation.opponent], threading.Lock()

    def opponent(state: Any, seat: int, rng: np.random.Generator) -> Any:
        with one_at_a_time:  # players keep buffers
            return player(state, seat, rng)

    def work() -> None:
        with Client(simulation.url) as client:
            while not stop() and (k := next(numbers)) < simulation.episodes:
                one = _Game(game, simulation, k, client, stop, opponent)
                one.play()
                with lock:
                    one.add_to(played)
                    if one.failure:
                        say(one.failure)
                if one.failure:
                    time.sleep(BREAK_S)

    with ThreadPoolExecutor(simulation.clients) as pool:
        for done in [pool.submit(work) for _ in range(simulation.clients)]:
            done.result()
    return played


def table(played: Played) -> list[str]:
    """What became of a simulation, for people."""
    lines = [f"{played.games} games, {played.moved} with decisions of both policies"]
    for subset in sorted(played.decisions):
        n, total = played.rewards.get(subset, (0, 0.0))
        mean = f", {n:.0f} rewards of mean {total / n:.3f}" if n else ", no rewards"
        lines.append(f"{subset}: {played.decisions[subset]} decisions{mean}")
    lines += [f"answered by the rule, {reason}: {n}" for reason, n in sorted(played.fallbacks.items())]
    return lines + [f"failed, {n} times: {why}" for why, n in played.failures.most_common()]


class _Game:
    def __init__(
        self,
        game: Served[Any, Any],
        simulation: Simulation,
        k: int,
        client: Client,
        stop: Callable[[], bool],
        opponent: Player[Any, Any],
    ) -> None:
        self._game, self._simulation, self._client, self._stop = game, simulation, client, stop
        self._opponent = opponent
        self._episode = f"{simulation.name}-{simulation.seed + k}"
        which = k % simulation.maps if simulation.maps else k
        self._seat = which % simulation.n_players
        self._session: Session[Any, Any] = game.open_session(simulation.seed + which, simulation.n_players)
        self._rng = np.random.default_rng([simulation.seed, which])
        self._answers: list[Answer] = []
        self.failure = ""
        self._rewarded: list[tuple[str, float]] = []

    def play(self) -> None:
        """To the end of the game, or of the simulation."""
        try:
            outcome = self._turns()
            if outcome is not None:
                for answer in self._answers if self._simulation.every else self._answers[-1:]:
                    self._client.reward(answer.decision, outcome)
                    self._rewarded.append((answer.subset, outcome))
        except ServerError as e:
            self.failure = str(e)

    def _turns(self) -> float | None:
        """The outcome for our seat; None if the game was not played to its end."""
        game, session = self._game, self._session
        for _ in range(self._simulation.most_turns):
            outcome = game.outcome(session.state)
            if outcome is not None:
                return float(outcome[self._seat])
            if self._stop():
                return None
            alive = game.alive(session.state)
            actions: list[Any] = [None] * self._simulation.n_players
            for seat in range(self._simulation.n_players):
                if seat == self._seat and alive[seat]:
                    actions[seat] = session.read(seat, self._ask())
                elif alive[seat]:
                    actions[seat] = self._opponent(session.state, seat, self._rng)
            session.step(actions)
            if self._simulation.pace_s:
                time.sleep(self._simulation.pace_s)
        return None

    def _ask(self) -> list[list[Any]]:
        previous = self._answers[-1].decision if self._answers else ""
        if self._simulation.packed:
            body = self._game.pack(self._session.state, self._seat)
            answer = self._client.decide_packed(self._episode, body, previous)
        else:
            observation = self._session.observation(self._seat, 60.0)
            answer = self._client.decide(self._episode, observation, previous)
        self._answers.append(answer)
        return answer.moves

    def add_to(self, played: Played) -> None:
        """Add this game to what was played."""
        played.games += 1
        played.decisions.update(answer.subset for answer in self._answers)
        played.fallbacks.update(answer.reason for answer in self._answers if answer.fallback)
        played.moved += len({answer.subset for answer in self._answers}) > 1
        if self.failure:
            played.failures[self.failure] += 1
        for subset, reward in self._rewarded:
            figures = played.rewards.setdefault(subset, [0, 0.0])
            figures[0] += 1
            figures[1] += reward
