"""Who meets whom, on which maps, in which seats: a pure function of contestants, numbers and a seed.

The unit of everything that follows is the *round*: the games on one map, with the seats rotated, so that nobody
gains by the map. No two rounds of the same contestants have the same map, and no game is played twice.

| seats | contestants | a round |
|---|---|---|
| 2 | each two | a b, b a |
| 4 | 2 or 3 | each two: a alone against three b in every seat, then b alone against three a: 8 games |
| 4 | 4 or more | four of them, drawn so that all play about equally often, in 4 rotations |
| 4 | with a focus | the focus alone against three of each other one, in every seat: 4 games |
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from td_loop.arena.game import Fixture
from td_loop.errors import UsageError
from td_loop.rng import Stream, stream

SEATS = (2, 4)
_PRIME = 2**31 - 1
"""Maps are numbered 1.._PRIME; steps of any length go through all of them before one comes twice."""


@dataclass(frozen=True)
class Plan:
    """What is to be played.

    Attributes:
        who: identities of the contestants.
        seats: 2 or 4.
        rounds: maps for each meeting of two contestants (4 seats, 4 contestants or more: for each of them).
        seed: what maps and seats are drawn from.
        focus: identity of the contestant that plays against each other one, while those do not meet; or None.

    Raises:
        UsageError: too few contestants, or numbers out of range.
    """

    who: tuple[str, ...]
    seats: int = 2
    rounds: int = 100
    seed: int = 0
    focus: str | None = None

    def __post_init__(self) -> None:
        if self.seats not in SEATS:
            raise UsageError(f"a tournament has 2 or 4 seats, not {self.seats}")
        if len(self.who) < 2:
            raise UsageError("a tournament needs 2 different contestants or more")
        if self.rounds < 1 or self.seed < 0:
            raise UsageError("the number of rounds must be 1 or more, the seed 0 or more")


def schedule(plan: Plan) -> Iterator[list[Fixture]]:
    """The rounds, such that after any number of them all have played about equally often."""
    met: Counter[tuple[str, ...]] = Counter()
    for r in range(plan.rounds):
        for table in _tables(plan, r):
            key = tuple(sorted(table))
            yield _round(plan, table, map_seed(plan, key, met[key]))
            met[key] += 1


def _tables(plan: Plan, r: int) -> list[tuple[str, ...]]:
    """The contestants of each round of the `r`-th cycle: 2, or 4 in the order that they sit down in."""
    if plan.focus is not None:
        pairs = [(plan.focus, other) for other in plan.who if other != plan.focus]
        return [_in_order(*pair) for pair in pairs] if plan.seats == 2 else list(pairs)
    if plan.seats == 2 or len(plan.who) < plan.seats:
        return [_in_order(*pair) for pair in combinations(plan.who, 2)]
    rng = stream(plan.seed, Stream.ARENA, r)
    order = [plan.who[i] for i in rng.permutation(len(plan.who))]
    # The last table is filled up with those of the first one: with 6, two play twice, and each time other two.
    order += order[: -len(order) % plan.seats]
    return [tuple(order[i : i + plan.seats]) for i in range(0, len(order), plan.seats)]


def _in_order(a: str, b: str) -> tuple[str, ...]:
    """The same for a, b and b, a: whoever names them the other way round means the same games."""
    return tuple(sorted((a, b)))


def _round(plan: Plan, table: Sequence[str], seed: int) -> list[Fixture]:
    if plan.seats == 2 or len(table) == plan.seats:
        line_ups = [rotated(table, k) for k in range(plan.seats)]
    else:
        a, b = table
        line_ups = [rotated((a, b, b, b), k) for k in range(4)]
        if plan.focus is None:
            line_ups += [rotated((b, a, a, a), k) for k in range(4)]
    return [Fixture(seed, seats, k, len(line_ups)) for k, seats in enumerate(line_ups)]


def rotated(table: Sequence[str], k: int) -> tuple[str, ...]:
    """Everybody `k` seats further."""
    return tuple(table[(seat - k) % len(table)] for seat in range(len(table)))


def map_seed(plan: Plan, key: tuple[str, ...], meeting: int) -> int:
    """The map of the `meeting`-th time that the contestants `key` meet: never the same for two meetings."""
    digest = hashlib.sha256(f"{plan.seed} {plan.seats} {' '.join(key)}".encode()).digest()
    first, step = int.from_bytes(digest[:8]), int.from_bytes(digest[8:16])
    return 1 + (first + meeting * (1 + step % (_PRIME - 1))) % _PRIME
