"""Ratings on the Elo scale, with intervals. `N` contestants, `R` rounds, `B` resamples.

Strengths follow Luce's choice model: of those at the table, each wins in proportion to exp(strength); with two
seats that is Bradley-Terry, hence Elo. Every winner counts as having beaten each other seat (weighted by its share
of the win), which keeps the model's ratios (Azari Soufiani, Parkes and Xia, "Computing parametric ranking models
via rank-breaking", 2014: position-1 breaking is consistent). The fit is choix's; it looks at all games at once, so
the order in which they were played does not matter, as it would in systems that update after each game.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.arena.rounds import UNIT, Round, in_units
from td_loop.errors import UsageError
from td_loop.rng import Stream, stream

FloatArray = npt.NDArray[np.float64]

RESAMPLES = 1000
CONFIDENCE = 0.95
ELO = 400.0 / np.log(10.0)

_MAX_ITER, _TOLERANCE = 10_000, 1e-6
_VIRTUAL = 1.0
"""Drawn games that everybody has had with all others together before the first: without, who never lost would be
infinitely strong."""


@dataclass(frozen=True)
class Ratings:
    """Strengths in Elo, whose mean is 0.

    Attributes:
        elo: f64[N].
        samples: f64[B, N] the same from resampled rounds.
    """

    elo: FloatArray
    samples: FloatArray

    @property
    def low(self) -> FloatArray:
        """f64[N] lower end of each interval."""
        return np.minimum(self.elo, np.quantile(self.samples, (1 - CONFIDENCE) / 2, axis=0))

    @property
    def high(self) -> FloatArray:
        """f64[N] upper end."""
        return np.maximum(self.elo, np.quantile(self.samples, (1 + CONFIDENCE) / 2, axis=0))


def rate(rounds: Sequence[Round], who: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0) -> Ratings:
    """Rate `who` by `rounds`; those of other contestants do not count.

    Resampled are whole rounds (games on one map are not independent of each other), those of each table among
    themselves, so that everybody keeps his number of rounds.

    Raises:
        UsageError: choix is not installed.
    """
    n = len(who)
    by_table: dict[tuple[str, ...], list[FloatArray]] = defaultdict(list)
    for r in rounds:
        if set(r.table) <= set(who):
            by_table[r.table].append(_beaten(r, who))
    wins = [np.stack(found) for found in by_table.values()]
    rng = stream(seed, Stream.ARENA, len(who))
    virtual = _VIRTUAL / max(1, n - 1)
    everyone = 1.0 - np.eye(n)
    elo = _fit(sum((w.sum(0) for w in wins), np.zeros((n, n))) + 0.5 * virtual * everyone, None)
    samples = np.empty((resamples, n))
    for b in range(resamples):
        # Virtual games end anyhow here: else an unbeaten contestant would have no interval at all.
        split = np.triu(rng.random((n, n)), 1)
        drawn = virtual * (split + np.tril(everyone - split.T, -1))
        total = sum((np.tensordot(_times(len(w), rng), w, 1) for w in wins), drawn)
        samples[b] = _fit(total, elo)
    return Ratings(elo, samples)


def _beaten(r: Round, who: Sequence[str]) -> FloatArray:
    """f64[N, N] how often each (row) beat each other (column) in a round."""
    at = {c: i for i, c in enumerate(who)}
    out = np.zeros((len(who), len(who)))
    for game in r.games:
        seats = [at[c] for c in game.fixture.seats]
        for i, units in zip(seats, in_units(game), strict=True):
            for j in seats:
                if i != j:
                    out[i, j] += units / UNIT
    return out


def _times(n: int, rng: np.random.Generator) -> FloatArray:
    """f64[n] how often each of n rounds is in a resample of n."""
    return np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)


def _fit(wins: FloatArray, start: FloatArray | None) -> FloatArray:
    choix = _choix()
    initial = None if start is None else start / ELO
    fitted = choix.ilsr_pairwise_dense(wins, initial_params=initial, max_iter=_MAX_ITER, tol=_TOLERANCE)
    return np.asarray((fitted - fitted.mean()) * ELO)


def _choix() -> Any:
    try:
        import choix
    except ImportError as e:
        raise UsageError("ratings need the package choix: pip install 'td-loop[arena]'") from e
    return choix
