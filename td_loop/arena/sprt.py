"""A sequential test of two hypotheses about Elo, on rounds: it stops as soon as one of them is settled.

The generalised sequential probability-ratio test (GSPRT) that fishtest uses for chess engines. A pair of games on
one map with seats swapped has one of five scores (0, 1/4, 1/2, 3/4, 1: "pentanomial"); treating it as one
observation takes the map out of the noise. The log likelihood ratio is that of the two multinomials nearest to
what was observed whose means are the scores that the hypotheses say.

Sources: Michel Van den Bergh, "A practical introduction to the GSPRT" and "Comments on normalized Elo"
(https://www.cantate.be/Fishtest/GSPRT_approximation.pdf, .../normalized_elo_practical.pdf); fishtest's
`LLRcalc.py`. A. Wald, "Sequential tests of statistical hypotheses" (1945), for the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from td_loop.errors import SPRT_REJECTED, SPRT_UNDECIDED, UsageError

FloatArray = npt.NDArray[np.float64]

PENTANOMIAL = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Scores of a pair of games."""
LEAST_COUNT = 1e-3
"""Stands in for a score that was not seen yet, as in fishtest: nothing is impossible after a few rounds."""
_BISECTIONS = 60


class Verdict(StrEnum):
    """How a test stands."""

    ACCEPTED = "H1"
    REJECTED = "H0"
    UNDECIDED = "undecided"

    @property
    def exit_code(self) -> int:
        """Of `td-loop tournament --sprt`."""
        return {Verdict.ACCEPTED: 0, Verdict.REJECTED: SPRT_REJECTED, Verdict.UNDECIDED: SPRT_UNDECIDED}[self]


@dataclass(frozen=True)
class Sprt:
    """H0: the first contestant is `elo0` stronger than the second; H1: it is `elo1`.

    Attributes:
        elo0: logistic Elo.
        elo1: logistic Elo, above elo0.
        alpha: how often H1 may be accepted though the strength is elo0.
        beta: how often H0 may be accepted though it is elo1.

    Raises:
        UsageError: out of range.
    """

    elo0: float
    elo1: float
    alpha: float = 0.05
    beta: float = 0.05

    def __post_init__(self) -> None:
        if not -1000 <= self.elo0 < self.elo1 <= 1000:
            raise UsageError(f"--sprt {self.elo0:g} {self.elo1:g}: give two Elo numbers, the smaller one first")
        if not (0 < self.alpha < 0.5 and 0 < self.beta < 0.5):
            raise UsageError("--alpha and --beta must be above 0 and below 0.5")

    @property
    def bounds(self) -> tuple[float, float]:
        """Log likelihood ratios at which H0 and H1 are accepted (Wald)."""
        return math.log(self.beta / (1 - self.alpha)), math.log((1 - self.beta) / self.alpha)

    def verdict(self, llr: float) -> Verdict:
        """What that log likelihood ratio says."""
        low, high = self.bounds
        return Verdict.ACCEPTED if llr >= high else Verdict.REJECTED if llr <= low else Verdict.UNDECIDED

    def llr(self, scores: FloatArray, counts: FloatArray) -> FloatArray:
        """log P(observed | H1) - log P(observed | H0), for any number of tests at once.

        Args:
            scores: f64[K], rising, from 0 to 1.
            counts: f64[..., K] how often each was seen.
        """
        counts = np.maximum(counts, LEAST_COUNT)
        n = counts.sum(-1, keepdims=True)
        p = counts / n
        s0, s1 = (expected_score(elo) for elo in (self.elo0, self.elo1))
        log0, log1 = (np.log1p(_tilt(scores, p, s) * (scores - s)) for s in (s0, s1))
        return np.asarray((counts * (log0 - log1)).sum(-1))


def expected_score(elo: float) -> float:
    """What a contestant that is `elo` stronger wins of a game, on average."""
    return float(1.0 / (1.0 + 10.0 ** (-elo / 400.0)))


def _tilt(scores: FloatArray, p: FloatArray, mean: float) -> FloatArray:
    """f64[..., 1] t such that p / (1 + t (scores - mean)) has that mean: the nearest multinomial to p that has.

    t is the root of sum(p (scores - mean) / (1 + t (scores - mean))), which falls from +inf to -inf in between.
    """
    d = scores - mean
    low = np.full((*p.shape[:-1], 1), -1.0 / d.max())
    high = np.full_like(low, -1.0 / d.min())
    for _ in range(_BISECTIONS):
        t = 0.5 * (low + high)
        above = (p * d / (1.0 + t * d)).sum(-1, keepdims=True) > 0
        low, high = np.where(above, t, low), np.where(above, high, t)
    return 0.5 * (low + high)


@dataclass(frozen=True)
class SprtState:
    """Where a test stands.

    Attributes:
        verdict: how it ended; or UNDECIDED.
        llr: log likelihood ratio.
        rounds: how many it has taken.
        scores: the scores of a round that it knows.
        counts: how often each was seen.
    """

    verdict: Verdict
    llr: float
    rounds: int
    scores: tuple[float, ...]
    counts: tuple[int, ...]


def run(test: Sprt, observed: Sequence[float]) -> SprtState:
    """Take rounds in their order until the test stops; what comes after is not looked at.

    Args:
        observed: score of the first contestant in each round, 0..1.
    """
    scores = sorted({*PENTANOMIAL, *observed})
    counts, llr, taken = np.zeros(len(scores)), 0.0, 0
    for x in observed:
        counts[scores.index(x)] += 1
        taken += 1
        llr = float(test.llr(np.array(scores), counts))
        if test.verdict(llr) is not Verdict.UNDECIDED:
            break
    return SprtState(test.verdict(llr), llr, taken, tuple(scores), tuple(int(c) for c in counts))
