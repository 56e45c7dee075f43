"""The tests behind the rules: is a limit broken, and how much evidence is there beyond what is needed?

Arrays of any shape, one release an entry: the controller has one, `benchmarks/canary_simulation.py` thousands.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.deploy.canary.sequential import DifferenceSums, FloatArray, ShareSums, spent
from td_loop.deploy.canary.settings import CanarySettings, LimitSettings

REWARD_SHARE = 0.5
"""The part of alpha that the rewards have; the other tests have equal parts of the rest."""
_OTHERS = 6
"""Five rates and the sample ratio."""


class Tested(NamedTuple):
    """What a test says of what was gathered since it began.

    Attributes:
        broken: bool[...] whether the limit is, at this moment.
        limit: f64[...] what it is.
        log_e: f64[...] log of the e-value against "the canary is no worse".
        needed: log of the e-value that proves it.
    """

    broken: npt.NDArray[np.bool_]
    limit: FloatArray
    log_e: FloatArray
    needed: float

    @property
    def proven(self) -> npt.NDArray[np.bool_]:
        """bool[...] the limit is broken, and not by chance."""
        return np.asarray(self.broken & (self.log_e >= self.needed))


def reward_limit(stable: FloatArray, limits: LimitSettings) -> FloatArray:
    """f64[...] the mean below which a canary is degraded, beside a stable mean of any sign."""
    return np.asarray(stable - limits.drop * np.maximum(np.abs(stable), limits.reward_unit))


def reward(rewards: DifferenceSums, start: int, settings: CanarySettings) -> Tested:
    """Is the canary's mean reward degraded? Not before both subsets have a minimum of rewards."""
    canary, stable = rewards.means
    limit = reward_limit(stable, settings.limits)
    enough = np.minimum(rewards.canary, rewards.stable) >= settings.watch.rewards
    log_e = rewards.log_e(settings.limits.reward_cluster)
    return Tested(np.asarray(enough & (canary < limit)), limit, log_e, _needed(REWARD_SHARE, start, settings))


def rate(shares: ShareSums, limit: float, start: int, settings: CanarySettings) -> Tested:
    """Are the canary's events more often than the limit allows?"""
    needed = _needed((1 - REWARD_SHARE) / _OTHERS, start, settings)
    return Tested(np.asarray(shares.rates[0] > limit), np.asarray(limit), shares.log_mean_e(), needed)


def ratio(shares: ShareSums, start: int, settings: CanarySettings) -> Tested:
    """Does the canary get another share of the episodes than its weight? There is no limit to that but proof."""
    needed = _needed((1 - REWARD_SHARE) / _OTHERS, start, settings)
    always = np.ones(np.shape(shares.canary), bool)
    return Tested(always, np.asarray(np.nan), shares.log_mean_e(), needed)


def _needed(share: float, start: int, settings: CanarySettings) -> float:
    return math.log(1.0 / spent(settings.limits.alpha * share, start))
