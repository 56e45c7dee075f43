"""Whole rounds: all games on one map. Only they count, for half of one favours who had the better seats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from td_loop.arena.game import Fixture, PlayedGame

UNIT = 12
"""Shares in whole numbers: one game is worth 12, which 2, 3 and 4 winners can share."""


@dataclass(frozen=True)
class Round:
    """The games on one map, in the order of their numbers.

    Attributes:
        games: G of them.
        table: the contestants that play in it, sorted.
    """

    games: tuple[PlayedGame, ...]
    table: tuple[str, ...]

    def alone(self, who: str) -> list[int]:
        """Which games `who` plays in one seat only, while others have more (one against three)."""
        return [g for g, game in enumerate(self.games) if game.fixture.seats.count(who) == 1]

    def units(self, who: str, games: Iterable[int] | None = None) -> int:
        """What `who` won in its seats of `games` (all), in UNITs."""
        chosen = range(len(self.games)) if games is None else games
        return sum(
            units
            for g in chosen
            for seat, units in zip(self.games[g].fixture.seats, in_units(self.games[g]), strict=True)
            if seat == who
        )


def in_units(game: PlayedGame) -> list[int]:
    """P whole numbers that sum to UNIT."""
    return [round(share * UNIT) for share in game.shares]


def round_of(games: Sequence[PlayedGame]) -> Round:
    """The round that `games` are."""
    return Round(tuple(games), tuple(sorted({who for game in games for who in game.fixture.seats})))


def played(fixtures: Iterable[Sequence[Fixture]], games: Mapping[Fixture, PlayedGame]) -> list[Round]:
    """Those of the scheduled rounds that were played whole, in the schedule's order."""
    return [round_of([games[f] for f in of_map]) for of_map in fixtures if all(f in games for f in of_map)]


def whole_rounds(games: Iterable[PlayedGame]) -> list[Round]:
    """The rounds of which every game is there, in the order in which their first game comes."""
    by_map: dict[tuple[int, tuple[str, ...], int], dict[int, PlayedGame]] = defaultdict(dict)
    for game in games:
        f = game.fixture
        by_map[f.map_seed, tuple(sorted(set(f.seats))), f.of][f.number] = game
    return [round_of([found[k] for k in range(of)]) for (_, _, of), found in by_map.items() if len(found) == of]
