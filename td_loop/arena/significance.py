"""How often chance alone would do as much: exact randomization tests on rounds.

Were two contestants equally strong, exchanging their names in a round would be as likely a result as the one that
was seen. So every round has a handful of results that are equally likely; their sums over all rounds have a known
distribution, which is computed, not sampled. Rounds are independent of each other: each has a map of its own.
(Edgington and Onghena, "Randomization Tests", ch. 3 and 5.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import numpy.typing as npt

from td_loop.arena.rounds import Round, in_units


def p_value(seen: Sequence[int], equally_likely: Sequence[Sequence[int]]) -> float:
    """Two-sided p-value of the sum of `seen`.

    Args:
        seen: a whole number for each of R rounds.
        equally_likely: R sets of numbers, each with as many entries as there are exchanges of names, which would
            have been as likely without a difference in strength; `seen` is one of them.

    Returns:
        Twice the smaller of P(sum >= seen) and P(sum <= seen), at most 1; 1 for no rounds.
    """
    kinds = Counter(tuple(sorted(values)) for values in equally_likely)
    step = math.gcd(*(v - values[0] for values in kinds for v in values)) if kinds else 1
    step = step or 1
    lowest = sum(values[0] * count for values, count in kinds.items())
    sums: npt.NDArray[np.float64] = np.ones(1)
    for values, count in kinds.items():
        one = np.bincount([(v - values[0]) // step for v in values]) / len(values)
        sums = np.convolve(sums, _power(one, count))
    at = (sum(seen) - lowest) // step
    return float(min(1.0, 2.0 * min(sums[at:].sum(), sums[: at + 1].sum())))


def _power(one: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.float64]:
    """The distribution of the sum of `n` draws from `one`, by squaring."""
    out: npt.NDArray[np.float64] = np.ones(1)
    while n:
        if n & 1:
            out = np.convolve(out, one)
        one, n = np.convolve(one, one) if n > 1 else one, n >> 1
    return out


def exchange(rounds: Sequence[Round], a: str, b: str) -> float:
    """p-value of a against b, in rounds in which exchanging the two names gives the round the other way round.

    That holds where they have each other's seats in turn (2 seats; alone against three, both ways), and where who
    sits where was drawn (tables of four).
    """
    differences = [_difference(r, a, b) for r in rounds]
    return p_value(differences, [(d, -d) for d in differences])


def _difference(r: Round, a: str, b: str) -> int:
    lone_a, lone_b = r.alone(a), r.alone(b)
    return r.units(a, lone_a) - r.units(b, lone_b)


def alone(rounds: Sequence[Round], who: str) -> float:
    """p-value of `who`, who sat alone against three of another in each seat of every map.

    Were all four equally strong, the four games of a map would be four games of the same, and each seat of `who`
    as likely to be that of another game: there are 24 ways to give it a seat in each game.
    """
    seen, ways = [], []
    for r in rounds:
        games = [r.games[g] for g in r.alone(who)]
        units = [in_units(game) for game in games]
        at = [game.fixture.seats.index(who) for game in games]
        seen.append(sum(u[seat] for u, seat in zip(units, at, strict=True)))
        ways.append([sum(u[seat] for u, seat in zip(units, way, strict=True)) for way in permutations(at)])
    return p_value(seen, ways)
