"""One game: who sat where on which map, how it ended. `P` is the number of seats."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from td_loop.arena.contestants import Contestant, Kind
from td_loop.arena.outside import Fault, Limits, OutsideAgent, SeatLost
from td_loop.errors import UsageError
from td_loop.games import get_game
from td_loop.games.base import FloatArray, Playable, Session
from td_loop.policy.player import policy_player
from td_loop.policy.runtimes import fastest_runtime, open_runner
from td_loop.rng import Stream, stream
from td_loop.value.io import load_weights

Decide = Callable[[Any, int, np.random.Generator], Any]


@dataclass(frozen=True)
class Fixture:
    """A game to be played.

    Attributes:
        map_seed: of the game's first state.
        seats: P identities of contestants, in seat order.
        number: place of the game among those on this map.
        of: how many games there are on this map: together they are one round.
    """

    map_seed: int
    seats: tuple[str, ...]
    number: int
    of: int


@dataclass(frozen=True)
class SeatFault:
    """A seat that lost its game by itself: which, when, why."""

    seat: int
    turn: int
    fault: str
    text: str


@dataclass(frozen=True)
class PlayedGame:
    """A game that was played.

    Attributes:
        fixture: what was to be played.
        shares: P numbers, winners share 1 equally.
        turns: how many were played.
        faults: seats that lost by themselves.
        moves: P numbers of decisions.
        seconds: P sums of the seconds that they took.
        slowest: P seconds of the slowest.
    """

    fixture: Fixture
    shares: tuple[float, ...]
    turns: int
    faults: tuple[SeatFault, ...] = ()
    moves: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    slowest: tuple[float, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For the store."""
        return asdict(self)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> PlayedGame:
        """What `as_json` gave."""
        fixture = {**content["fixture"], "seats": tuple(content["fixture"]["seats"])}
        faults = tuple(SeatFault(**fault) for fault in content["faults"])
        columns = {name: tuple(content[name]) for name in ("shares", "moves", "seconds", "slowest")}
        return PlayedGame(fixture=Fixture(**fixture), turns=content["turns"], faults=faults, **columns)


@dataclass
class _Clock:
    """What the decisions of one seat took."""

    moves: int = 0
    seconds: float = 0.0
    slowest: float = 0.0

    def add(self, seconds: float) -> None:
        self.moves, self.seconds = self.moves + 1, self.seconds + seconds
        self.slowest = max(self.slowest, seconds)


@dataclass
class Host:
    """Plays games in one process: keeps searches and the game between them, and nothing else."""

    game: Playable[Any, Any]
    contestants: Mapping[str, Contestant]
    limits: Limits
    _searches: dict[str, Decide] = field(default_factory=dict)

    def decider(self, c: Contestant) -> Decide:
        """How a contestant of our own chooses; made once."""
        if c.identity not in self._searches:
            self._searches[c.identity] = self._make(c)
        return self._searches[c.identity]

    def _make(self, c: Contestant) -> Decide:
        if c.kind is Kind.BUILT_IN:
            return self.game.players[c.source]
        if c.kind is Kind.POLICY:
            return policy_player(cast(Any, self.game), open_runner(Path(c.source), fastest_runtime()))
        budget = c.budget
        assert budget is not None
        search = self.game.make_search(load_weights(Path(c.source), feature_names=self.game.feature_names))
        return lambda state, seat, rng: search(state, seat, budget, rng).action

    def warm_up(self) -> None:
        """Let every contestant of our own choose once, so that kernels are compiled, or loaded from the disk."""
        self.game.compile()
        for c in self.contestants.values():
            if c.kind is not Kind.OUTSIDE:
                self.decider(c)(self.game.initial(0, 2), 0, np.random.default_rng(0))

    def play(self, fixture: Fixture) -> PlayedGame:
        """Play it to its end; a seat that loses by itself launches no more."""
        p = len(fixture.seats)
        session = self.game.open_session(fixture.map_seed, p)
        rngs = [stream(fixture.map_seed, Stream.ARENA, fixture.number, seat) for seat in range(p)]
        clocks = [_Clock() for _ in range(p)]
        faults: dict[int, SeatFault] = {}
        turn, outcome = 0, self.game.outcome(session.state)
        with ExitStack() as stack:
            seats = [self._seat(self.contestants[who], stack) for who in fixture.seats]
            while outcome is None and p - len(faults) > 1:
                alive = self.game.alive(session.state)
                actions: list[Any] = [None] * p
                for seat in range(p):
                    if not alive[seat] or seat in faults:
                        continue
                    try:
                        actions[seat] = seats[seat](session, seat, rngs[seat], clocks[seat])
                    except SeatLost as e:
                        faults[seat] = SeatFault(seat, turn, str(e.fault), str(e))
                session.step(actions)
                turn, outcome = turn + 1, self.game.outcome(session.state)
        return PlayedGame(
            fixture,
            shares=shares(outcome, set(faults), p),
            turns=turn,
            faults=tuple(faults.values()),
            moves=tuple(c.moves for c in clocks),
            seconds=tuple(round(c.seconds, 6) for c in clocks),
            slowest=tuple(round(c.slowest, 6) for c in clocks),
        )

    def _seat(
        self, c: Contestant, stack: ExitStack
    ) -> Callable[[Session[Any, Any], int, np.random.Generator, _Clock], Any]:
        if c.kind is Kind.OUTSIDE:
            agent = stack.enter_context(OutsideAgent(Path(c.source), self.limits))
            return lambda session, seat, _, clock: self._ask(agent, session, seat, clock)
        decide = self.decider(c)

        def choose(session: Session[Any, Any], seat: int, rng: np.random.Generator, clock: _Clock) -> Any:
            start = time.perf_counter()
            action = decide(session.state, seat, rng)
            clock.add(time.perf_counter() - start)
            return action

        return choose

    def _ask(self, agent: OutsideAgent, session: Session[Any, Any], seat: int, clock: _Clock) -> Any:
        config = {**self.game.configuration, "actTimeout": self.limits.act_timeout_s}
        answer, seconds = agent.ask(session.observation(seat, agent.overage_s), config)
        clock.add(seconds)
        try:
            return session.read(seat, answer)
        except Exception as e:  # whatever the official environment raises on it, and ends the episode with
            raise SeatLost(Fault.INVALID, f"{type(e).__name__}: {e}"[:500]) from e


def shares(outcome: FloatArray | None, lost: set[int], p: int) -> tuple[float, ...]:
    """Who won: P numbers that sum to 1. Seats that lost by themselves get nothing, unless they all did.

    Args:
        outcome: f64[4] of the game; None: it was broken off, as at most one seat was left that had not lost.
        lost: seats that lost by themselves.
        p: P.
    """
    left = [seat for seat in range(p) if seat not in lost] or list(range(p))
    won = [0.0 if outcome is None else float(outcome[seat]) for seat in left]
    total = sum(won)
    shared = [w / total if total > 0 else 1.0 / len(left) for w in won]
    given = dict(zip(left, shared, strict=True))
    return tuple(given.get(seat, 0.0) for seat in range(p))


@dataclass(frozen=True)
class Recipe:
    """What a worker process needs to know once."""

    game: str
    contestants: tuple[Contestant, ...]
    limits: Limits

    def __call__(self) -> Callable[[Fixture], PlayedGame]:
        """Load everything, in the process that will play."""
        host = Host(playable(self.game), {c.identity: c for c in self.contestants}, self.limits)
        host.warm_up()
        return host.play


def playable(name: str) -> Playable[Any, Any]:
    """The game of that name, if the arena can play it.

    Raises:
        UsageError: there is no such game, or it lacks `players`, `configuration` or `open_session`.
    """
    game: Any = get_game(name)
    if missing := [x for x in ("players", "configuration", "open_session") if not hasattr(game, x)]:
        raise UsageError(f"--game {name}: the arena cannot play it, it has no {', '.join(missing)}")
    return game  # type: ignore[no-any-return]
