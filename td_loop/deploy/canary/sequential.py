"""Evidence that may be looked at after every observation: e-values, and what they come to.

An e-value is a number whose mean is at most 1 while the null hypothesis is true, at every moment at once. So the
chance that it *ever* reaches 1 / alpha is at most alpha (Ville 1939), however often one looks and whenever one
stops. A p-value that is computed anew at each look has no such limit: looked at long enough, it falls below any
alpha. Everything here works on f64[...] of any shape, one test an entry; the controller has one, the simulation
thousands.

Two null hypotheses are tested:

* `DifferenceSums`: the canary's mean reward is not below the stable one's. Rewards have any distribution with a
  variance, so this is asymptotic: a one-sided normal mixture over the score, with the variance estimated.
  Sources: Robbins, "Statistical methods related to the law of the iterated logarithm" (1970); Howard, Ramdas,
  McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences" (Annals of Statistics
  2021), for the one-sided mixture; Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit
  theory and asymptotic confidence sequences" (2021; Annals of Statistics 2024), for what an estimated variance
  does to it.
* `ShareSums`: of things that happened, each is the canary's with a known probability. It is exact. With pi the
  canary's share of the requests of a period, k of K errors are the canary's as often as drawing without
  replacement says; with odds theta times as high, E[theta^k] <= (1 - pi + theta pi)^K (Hoeffding 1963: drawing
  without replacement is the less variable). The ratio of both sides is an e-value for every theta; their mean
  over a grid is one, too. It answers "more errors than its share?" and, with the router's weight for pi, "as
  many episodes as its weight says?" (the sequential sample-ratio test of Lindon and Malek, "Anytime-valid
  inference for multinomial count data", 2022, whose Dirichlet mixture asks for constant weights; a grid of odds
  does not).

Both add up over periods ("strata") within each of which subsets are compared with one another alone. A mean reward
that drifts over the day while the canary's share grows would else look like a difference (Simpson's paradox).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

REWARDS_TO_SEE = 100.0
"""Effective canary rewards (n_c n_s / (n_c + n_s)) at which the mixture is to be sharpest. It holds at all
others."""
_RHO = REWARDS_TO_SEE / 11.0
"""Howard et al. 2021, section 3.5: about n / (2 log(1/alpha) + log(1 + 2 log(1/alpha))), here for alpha near
0.01."""

MORE = np.array([1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0])
"""Odds ratios that stand for "more than its share"."""
OTHER = np.array([0.25, 0.5, 0.67, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0])
"""Odds ratios that stand for "another share"."""


def spent(alpha: float, start: int) -> float:
    """The part of `alpha` that the test that began as number `start` (from 0) may use.

    Evidence that began long ago is slow to see what began to go wrong a minute ago. So a new test begins every few
    minutes beside the older ones; 1 / (k (k + 1)) sums to 1 over k = 1, 2, ..., so all of them together keep to
    alpha, however many there will be. (Shin, Ramdas, Rinaldo, "E-detectors", 2022, sum over starts as well.)
    """
    return alpha / ((start + 1) * (start + 2))


@dataclass(frozen=True)
class DifferenceSums:
    """What the comparison of two means needs of all strata so far. Of stretches in between: `since`.

    A stratum with n_c and n_s rewards weighs w = n_c n_s / (n_c + n_s), as in Mantel and Haenszel's estimator:
    what it has to say is limited by the smaller side. For equal variances the score, sum of w (mean_c -
    mean_s), is then Brownian motion with the information sum of w for its clock, whatever the shares (Jennison
    and Turnbull, "Group sequential methods", 2000, section 11.3).

    Attributes:
        canary, canary_sum, canary_squares: rewards of the canary: number, sum, sum of squares.
        stable, stable_sum, stable_squares: the same of the stable policy.
        weight: sum of w.
        canary_weighted, stable_weighted: sums of w times the stratum's mean.
        canary_spread, stable_spread: sums of w^2 / n: what the score's variance is, times that of a reward.
    """

    canary: FloatArray
    canary_sum: FloatArray
    canary_squares: FloatArray
    stable: FloatArray
    stable_sum: FloatArray
    stable_squares: FloatArray
    weight: FloatArray
    canary_weighted: FloatArray
    stable_weighted: FloatArray
    canary_spread: FloatArray
    stable_spread: FloatArray

    @classmethod
    def zero(cls, shape: tuple[int, ...] = ()) -> Self:
        """Nothing observed."""
        return cls(*(np.zeros(shape) for _ in fields(cls)))

    def add(self, canary: Sequence[FloatArray], stable: Sequence[FloatArray]) -> Self:
        """One more stratum.

        Args:
            canary, stable: number, sum and sum of squares of its rewards, f64[...] each.
        """
        (n, x, xx), (m, y, yy) = (tuple(map(np.asarray, side)) for side in (canary, stable))
        w = n * m / np.maximum(n + m, 1.0)
        mean_n, mean_m = x / np.maximum(n, 1.0), y / np.maximum(m, 1.0)
        added = (
            *(n, x, xx, m, y, yy),
            *(w, w * mean_n, w * mean_m),
            *(w**2 / np.maximum(n, 1.0), w**2 / np.maximum(m, 1.0)),
        )
        return type(self)(*(np.asarray(a + b) for a, b in zip(self._parts(), added, strict=True)))

    def since(self, mark: Self) -> Self:
        """What came after `mark`, an earlier value of the sums."""
        return type(self)(*(np.asarray(a - b) for a, b in zip(self._parts(), mark._parts(), strict=True)))

    def _parts(self) -> tuple[FloatArray, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))

    @property
    def means(self) -> tuple[FloatArray, FloatArray]:
        """f64[...] each: mean of canary and stable, strata weighted alike for both. NaN before the first."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.canary_weighted / self.weight, self.stable_weighted / self.weight

    def variance(self) -> FloatArray:
        """f64[...] of one reward, over both subsets: what it is under the null hypothesis of equal policies.

        The canary's own would not do: a few rewards that happen to be alike have none.
        """
        n = np.maximum(self.canary + self.stable, 1.0)
        mean = (self.canary_sum + self.stable_sum) / n
        return np.asarray(np.maximum((self.canary_squares + self.stable_squares) / n - mean**2, 0.0))

    def score(self, cluster: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """f64[...] each: how far the canary is behind, and the variance of that, in units of a reward's.

        Each subset has the variance of all rewards, or its own where that is larger.

        Args:
            cluster: how many rewards come as one, such as those of all decisions of a game that was won; Kish's
                design effect for a correlation of 1.
        """
        both = self.variance()
        own_c = (
            self.canary_squares / np.maximum(self.canary, 1.0)
            - (self.canary_sum / np.maximum(self.canary, 1.0)) ** 2
        )
        own_s = (
            self.stable_squares / np.maximum(self.stable, 1.0)
            - (self.stable_sum / np.maximum(self.stable, 1.0)) ** 2
        )
        unit = np.where(both > 0, both, 1.0) * cluster
        spread = cluster * (
            np.maximum(own_c, both) * self.canary_spread + np.maximum(own_s, both) * self.stable_spread
        )
        behind = self.stable_weighted - self.canary_weighted
        return np.asarray(behind / np.sqrt(unit)), np.asarray(spread / unit)

    def log_e(self, cluster: float = 1.0) -> FloatArray:
        """f64[...] log of the e-value against "the canary's mean is not below the stable one's"."""
        s, v = self.score(cluster)
        z2 = np.where(s > 0, s**2 / (v + _RHO), 0.0)
        # 2 exp(z^2 / 2) P(N < z) >= 2 exp(z^2 / 2) - 1, so this is at most the half-normal mixture itself.
        return np.asarray(0.5 * np.log(_RHO / (v + _RHO)) + z2 / 2 + np.log(2.0 - np.exp(-z2 / 2)))

    def z(self, cluster: float = 1.0) -> FloatArray:
        """f64[...] standard errors by which the canary is behind at this moment: a hint, no evidence."""
        s, v = self.score(cluster)
        return np.asarray(s / np.sqrt(np.maximum(v, 1e-300)))

    def most(self, alpha: float, cluster: float = 1.0) -> FloatArray:
        """f64[...] upper end of a confidence sequence for mean(canary) - mean(stable); infinite without data.

        It is below zero exactly when `log_e` has reached log(1 / alpha).
        """
        _, v = self.score(cluster)
        canary, stable = self.means
        unit = np.sqrt(np.where(self.variance() > 0, self.variance(), 1.0) * cluster)
        reach = np.sqrt(2.0 * (v + _RHO) * np.log(0.5 + np.sqrt((v + _RHO) / _RHO) / (2.0 * alpha)))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.weight > 0, canary - stable + unit * reach / self.weight, np.inf)


@dataclass(frozen=True)
class ShareSums:
    """Counts of all strata so far, and the evidence that events fall to the canary in another share than its own.

    Attributes:
        log_e: f64[..., G] log of the e-value against each odds ratio of a grid.
        canary, canary_trials: events and trials of the canary.
        stable, stable_trials: the same of the stable policy.
    """

    log_e: FloatArray
    canary: FloatArray
    canary_trials: FloatArray
    stable: FloatArray
    stable_trials: FloatArray

    @classmethod
    def zero(cls, grid: FloatArray, shape: tuple[int, ...] = ()) -> Self:
        """Nothing observed."""
        return cls(np.zeros((*shape, len(grid))), *(np.zeros(shape) for _ in range(4)))

    def add_events(self, grid: FloatArray, canary: Sequence[FloatArray], stable: Sequence[FloatArray]) -> Self:
        """One more stratum of events among trials: of fallbacks among requests, say.

        Args:
            canary, stable: events and trials, f64[...] each.
        """
        (k, n), (j, m) = (tuple(map(np.asarray, side)) for side in (canary, stable))
        # The counters are not read in one instant: an event may be seen a moment before its trial.
        n, m = np.maximum(n, k), np.maximum(m, j)
        share = n / np.maximum(n + m, 1.0)
        return self._added(grid, share, (k, n), (j, m))

    def add_draws(self, grid: FloatArray, share: FloatArray, canary: FloatArray, stable: FloatArray) -> Self:
        """One more stratum of draws, each of which is the canary's with probability `share`, f64[...] all."""
        return self._added(grid, np.asarray(share), (np.asarray(canary),) * 2, (np.asarray(stable),) * 2)

    def _added(
        self,
        grid: FloatArray,
        share: FloatArray,
        canary: tuple[FloatArray, FloatArray],
        stable: tuple[FloatArray, FloatArray],
    ) -> Self:
        (k, n), (j, m) = canary, stable
        gain = k[..., None] * np.log(grid) - (k + j)[..., None] * np.log1p(share[..., None] * (grid - 1.0))
        return type(self)(
            self.log_e + gain,
            *(np.asarray(a) for a in (self.canary + k, self.canary_trials + n)),
            *(np.asarray(a) for a in (self.stable + j, self.stable_trials + m)),
        )

    def since(self, mark: Self) -> Self:
        """What came after `mark`, an earlier value of the sums."""
        return type(self)(*(np.asarray(getattr(self, f.name) - getattr(mark, f.name)) for f in fields(self)))

    def log_mean_e(self) -> FloatArray:
        """f64[...] log of the e-value against "the canary has its share", the mean over the grid."""
        top = self.log_e.max(-1)
        return np.asarray(top + np.log(np.exp(self.log_e - top[..., None]).mean(-1)))

    @property
    def rates(self) -> tuple[FloatArray, FloatArray]:
        """f64[...] each: events a trial of canary and stable; 0 without trials."""
        return (
            np.asarray(self.canary / np.maximum(self.canary_trials, 1.0)),
            np.asarray(self.stable / np.maximum(self.stable_trials, 1.0)),
        )
