"""Games and rounds made by hand, without playing any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from td_loop.arena.contestants import Contestant, Kind
from td_loop.arena.game import Fixture, PlayedGame
from td_loop.arena.rounds import Round, round_of
from td_loop.arena.schedule import Plan, schedule


def contestant(name: str) -> Contestant:
    return Contestant(name, Kind.BUILT_IN, name, name)


def game(fixture: Fixture, shares: Sequence[float]) -> PlayedGame:
    p = len(fixture.seats)
    return PlayedGame(fixture, tuple(shares), 10, (), (5,) * p, (0.1,) * p, (0.05,) * p)


def duel(first: float, second: float, a: str = "a", b: str = "b", map_seed: int = 1) -> Round:
    """A round of two seats: what `a` won of each of its games."""
    games = [Fixture(map_seed, seats, k, 2) for k, seats in enumerate([(a, b), (b, a)])]
    return round_of([game(games[0], (first, 1 - first)), game(games[1], (1 - second, second))])


def simulated(plan: Plan, elo: dict[str, float], seed: int = 0) -> list[Round]:
    """A whole tournament in which strengths alone decide, by Luce's model."""
    rng = np.random.default_rng(seed)
    rounds = []
    for fixtures in schedule(plan):
        games = []
        for fixture in fixtures:
            odds = np.array([10 ** (elo[who] / 400) for who in fixture.seats])
            winner = rng.choice(len(odds), p=odds / odds.sum())
            games.append(game(fixture, [float(seat == winner) for seat in range(len(odds))]))
        rounds.append(round_of(games))
    return rounds
