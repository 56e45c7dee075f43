"""What the rounds say: ratings, scores, who beat whom and how surely. Numbers only; `tables` shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from td_loop.arena import significance
from td_loop.arena.contestants import Contestant
from td_loop.arena.ratings import rate
from td_loop.arena.rounds import UNIT, Round, in_units


@dataclass(frozen=True)
class Row:
    """One contestant.

    Attributes:
        label: what it is called.
        identity: what stored games know it by.
        rating: Elo; the mean over all contestants is 0.
        low: lower end of the 95 % interval.
        high: upper end.
        games: seats that it played in (three in a game of one against three).
        wins: seats that won alone.
        draws: seats that shared a win.
        losses: seats that won nothing.
        share: of a game that a seat of it won, on average.
        faults: games that it lost by itself, by kind (`timeout`, `crash`, `invalid`).
        seconds_per_move: mean; None: it never moved.
        slowest_s: the slowest move; None: it never moved.
    """

    label: str
    identity: str
    rating: float
    low: float
    high: float
    games: int
    wins: int
    draws: int
    losses: int
    share: float
    faults: dict[str, int]
    seconds_per_move: float | None
    slowest_s: float | None


@dataclass(frozen=True)
class Pair:
    """Two contestants that met.

    Attributes:
        a: label.
        b: label.
        rounds: maps on which they met.
        score_a: what a won against b, 0..1. 2 seats: a's part of the games between them. Alone against three: of
            a game, what a's seat won (where both did so: see `score_b`). Tables of four: a's part of what those
            two won.
        score_b: the same for b; None where only a sat alone.
        even: what score_a would be between equals.
        rounds_won: by a; then even ones; then by b.
        p_value: two-sided, exact; see `significance`.
    """

    a: str
    b: str
    rounds: int
    score_a: float
    score_b: float | None
    even: float
    rounds_won: tuple[int, int, int]
    p_value: float


@dataclass(frozen=True)
class Standings:
    """All of it."""

    seats: int
    rounds: int
    games: int
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def standings(rounds: Sequence[Round], who: Sequence[Contestant], seats: int, *, seed: int = 0) -> Standings:
    """Judge the rounds played between `who`, strongest first.

    Raises:
        UsageError: choix is not installed.
    """
    ids = [c.identity for c in who]
    ratings = rate(rounds, ids, seed=seed)
    rows = [
        _row(c, rounds, float(ratings.elo[i]), float(ratings.low[i]), float(ratings.high[i]))
        for i, c in enumerate(who)
    ]
    order = sorted(range(len(who)), key=lambda i: (-rows[i].rating, i))
    ranked = [who[i] for i in order]
    return Standings(
        seats,
        rounds=len(rounds),
        games=sum(len(r.games) for r in rounds),
        rows=tuple(rows[i] for i in order),
        pairs=tuple(p for a, b in combinations(ranked, 2) if (p := pair(rounds, a, b)) is not None),
    )


def _row(c: Contestant, rounds: Iterable[Round], rating: float, low: float, high: float) -> Row:
    won: Counter[int] = Counter()
    faults: Counter[str] = Counter()
    moves, seconds, slowest = 0, 0.0, 0.0
    for r in rounds:
        for game in r.games:
            units = in_units(game)
            for seat, identity in enumerate(game.fixture.seats):
                if identity == c.identity:
                    won[units[seat]] += 1
                    moves += game.moves[seat]
                    seconds += game.seconds[seat]
                    slowest = max(slowest, game.slowest[seat])
            faults.update(f.fault for f in game.faults if game.fixture.seats[f.seat] == c.identity)
    n = won.total()
    return Row(
        label=c.label,
        identity=c.identity,
        rating=rating,
        low=low,
        high=high,
        games=n,
        wins=won[UNIT],
        draws=n - won[UNIT] - won[0],
        losses=won[0],
        share=sum(units * k for units, k in won.items()) / (UNIT * n) if n else 0.0,
        faults=dict(faults),
        seconds_per_move=seconds / moves if moves else None,
        slowest_s=slowest if moves else None,
    )


def pair(rounds: Sequence[Round], a: Contestant, b: Contestant) -> Pair | None:
    """What a and b did to each other; None if they did not meet.

    Where one of them sat alone against three of the other, and never the other way round, it is the `a` of the
    result.
    """
    met = [r for r in rounds if a.identity in r.table and b.identity in r.table]
    if not met:
        return None
    one_sided = all(not r.alone(a.identity) or not r.alone(b.identity) for r in met)
    if one_sided and not met[0].alone(a.identity):
        a, b = b, a
    i, j = a.identity, b.identity
    units_a = [r.units(i, r.alone(i)) for r in met]
    units_b = [r.units(j, r.alone(j)) for r in met]
    seats = len(met[0].games[0].fixture.seats)
    games = sum(len(r.alone(i)) for r in met)
    score_b: float | None = None
    if one_sided:
        even, score_a = 1.0 / seats, sum(units_a) / (UNIT * games)
        against = [UNIT] * len(met)  # what one of four equals wins in four games
        p = significance.alone(met, i)
    else:
        against, p = units_b, significance.exchange(met, i, j)
        if len(met[0].table) == 2 and seats > 2:
            even = 1.0 / seats
            score_a, score_b = sum(units_a) / (UNIT * games), sum(units_b) / (UNIT * games)
        else:
            both = sum(units_a) + sum(units_b)
            even, score_a = 0.5, sum(units_a) / both if both else 0.5
            score_b = 1.0 - score_a
    won = Counter((x > y) - (x < y) for x, y in zip(units_a, against, strict=True))
    return Pair(
        a=a.label,
        b=b.label,
        rounds=len(met),
        score_a=score_a,
        score_b=score_b,
        even=even,
        rounds_won=(won[1], won[0], won[-1]),
        p_value=p,
    )
