"""Play what is scheduled and not stored yet, in worker processes, and store each game as it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from td_loop.arena.contestants import Contestant
from td_loop.arena.game import Fixture, Host, PlayedGame, Recipe, playable
from td_loop.arena.outside import Limits
from td_loop.arena.rounds import UNIT, Round, played, round_of
from td_loop.arena.schedule import Plan, schedule
from td_loop.arena.sprt import Sprt, SprtState, Verdict
from td_loop.arena.sprt import run as run_sprt
from td_loop.arena.store import Store
from td_loop.errors import Interrupted, TdLoopError, UsageError
from td_loop.kernels import sources_hash
from td_loop.machine import physical_cores
from td_loop.pool import Pool
from td_loop.progress import progress

MOST_LOST = 3
"""Times that a game may be lost with its worker, before that is no accident any more."""
GAME_LIMIT_S = 6 * 3600.0
"""Seconds after which the worker of a game counts as stuck: no game of seconds a move takes as long."""


@dataclass(frozen=True)
class Tournament:
    """What to play, and where the games are kept.

    Attributes:
        contestants: each once (see `contestants.line_up`).
        store: the file of the games.
        game: the game's name, as for `get_game`.
        seats: 2 or 4.
        rounds: see `schedule.Plan`; with `sprt`, the most that it may take.
        seed: of maps, seats and luck.
        focus: label of the one that plays each other one; None: all play all.
        limits: of outside agents.
        workers: processes; None: one for each physical core.
        sprt: stop as soon as this test of the first contestant against the second is settled.

    Raises:
        UsageError: numbers out of range, no such focus, or a test of more than two.
    """

    contestants: tuple[Contestant, ...]
    store: Path
    game: str = "orbit_wars"
    seats: int = 2
    rounds: int = 100
    seed: int = 0
    focus: str | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int | None = None
    sprt: Sprt | None = None

    def __post_init__(self) -> None:
        _ = self.plan
        if self.sprt is not None and (len(self.contestants) != 2 or self.focus is not None):
            raise UsageError("--sprt tests the first contestant against the second: give two, and no --focus")

    @property
    def plan(self) -> Plan:
        """Its schedule."""
        ids = {c.label: c.identity for c in self.contestants}
        if self.focus is not None and self.focus not in ids:
            raise UsageError(f"--focus {self.focus}: none of {', '.join(ids)}")
        focus = None if self.focus is None else ids[self.focus]
        return Plan(tuple(ids.values()), self.seats, self.rounds, self.seed, focus)

    @property
    def setting(self) -> dict[str, Any]:
        """What all games of its store have in common."""
        return {
            "game": self.game,
            "seats": self.seats,
            "seed": self.seed,
            "limits": asdict(self.limits),
            "code": sources_hash(),
        }


@dataclass(frozen=True)
class Results:
    """What a tournament came to.

    Attributes:
        rounds: those that were played whole, in the order of the schedule; with a test, those that it took.
        played: games that were played now.
        known: games that were in the store already.
        sprt: how the test ended, if there is one.
    """

    rounds: tuple[Round, ...]
    played: int
    known: int
    sprt: SprtState | None = None


def run(tournament: Tournament) -> Results:
    """Play it, or go on with it: what is in the store is not played again.

    Raises:
        TdLoopError: a game failed time and again, or workers cannot be started.
        DataError: the store is that of another tournament.
        RunInUse: another process plays it.
        StorageError: the disk is full, read-only or failing.
        Interrupted: a signal; every game that had ended is stored.
    """
    with Store(tournament.store, tournament.setting) as store:
        known = len(store.games)
        try:
            _play(tournament, store)
        except Interrupted as e:
            done = len(store.games) - known
            raise Interrupted(
                e.signum, f"{e}: {done} games played, all in {store.path}; the same command goes on from there"
            ) from e
        rounds = played(schedule(tournament.plan), store.games)
        state = None
        if tournament.sprt is not None:
            state = run_sprt(tournament.sprt, [score(r, *tournament.contestants) for r in rounds])
            rounds = rounds[: state.rounds]
        return Results(tuple(rounds), len(store.games) - known, known, state)


def _play(tournament: Tournament, store: Store) -> None:
    fixtures = list(schedule(tournament.plan))
    missing = [f for f in chain.from_iterable(fixtures) if f not in store.games]
    done = sum(map(len, fixtures)) - len(missing)
    watch = _Watch(tournament, fixtures, store)
    if not missing or watch.settled():
        return
    contestants = {c.identity: c for c in tournament.contestants}
    # Here, so that no worker does: they would all compile the same at once.
    Host(playable(tournament.game), contestants, tournament.limits).warm_up()
    recipe = Recipe(tournament.game, tournament.contestants, tournament.limits)
    workers = min(tournament.workers or physical_cores(), len(missing))
    left, lost = iter(missing), dict[Fixture, int]()
    again: list[Fixture] = []

    def take() -> Fixture | None:
        return again.pop() if again else next(left, None)

    pool: Pool[Fixture, PlayedGame]
    with Pool(recipe, workers) as pool, progress("games", len(missing) + done, done) as advance:
        for outcome in pool.run(take, lambda _: GAME_LIMIT_S):
            if outcome.result is None:
                _count_lost(outcome.task, outcome.lost or "", lost, again)
                continue
            store.add(outcome.result)
            advance(1)
            if watch.settled():
                return


def _count_lost(fixture: Fixture, why: str, lost: dict[Fixture, int], again: list[Fixture]) -> None:
    """Put a game back that was lost with its worker.

    Raises:
        TdLoopError: it was so once too often.
    """
    lost[fixture] = lost.get(fixture, 0) + 1
    if lost[fixture] >= MOST_LOST:
        raise TdLoopError(
            f"game {fixture.number + 1} on map {fixture.map_seed} ({' - '.join(fixture.seats)}) was lost "
            f"{lost[fixture]} times; the last time:\n{why}"
        )
    sys.stderr.write(f"a game was lost and is played again: {why}\n")
    again.append(fixture)


class _Watch:
    """Looks whether the test is settled by the rounds that are whole, in the order of the schedule.

    Not in the order in which they end: short games end first, and are not like the others.
    """

    def __init__(self, tournament: Tournament, fixtures: Sequence[Sequence[Fixture]], store: Store) -> None:
        self._tournament, self._fixtures, self._store = tournament, fixtures, store
        self._scores: list[float] = []

    def settled(self) -> bool:
        test, games = self._tournament.sprt, self._store.games
        if test is None:
            return False
        before = len(self._scores)
        for fixtures in self._fixtures[before:]:
            if any(f not in games for f in fixtures):
                break
            r = round_of([games[f] for f in fixtures])
            self._scores.append(score(r, *self._tournament.contestants))
        if len(self._scores) == before:
            return False
        return run_sprt(test, self._scores).verdict is not Verdict.UNDECIDED


def score(r: Round, a: Contestant, b: Contestant) -> float:
    """What a scored against b in a round, 0..1: 1/2 is even. Alone against three, the mean of both ways round."""
    lone_a, lone_b = r.alone(a.identity), r.alone(b.identity)
    difference = r.units(a.identity, lone_a) - r.units(b.identity, lone_b)
    return 0.5 + 0.5 * difference / (UNIT * len(lone_a))
