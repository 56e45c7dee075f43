"""Reward drawdown: what training had reached is lost again.

    average   mean of the last `window` rewards, the largest and the smallest of them left out
    peak      highest average within the last `peak_window` rewards
    start     median of the first `window` rewards: what training began with
    scale     max(|peak|, peak - start)
    sick      peak - average > drop * scale   and   peak - average > noise * sigma

For positive rewards `scale` is the peak, and the first condition is the plain one: 30 % below the peak. A share
of |peak| alone fails elsewhere: -150 reached from -1300 would trip at -195, and a game whose rewards average zero
on any breath. Where rewards are negative or of both signs, `drop` is therefore the share that is lost of what
training has gained, and never less than that share of |peak|.

The second condition keeps noise from tripping, which is all there is where rewards average zero; see `noise_of`.
Patience is as long as the window: with the defaults, a dip of half a window does not trip, however deep.

Many loggers repeat the last reward until an episode ends. Repetitions say nothing of noise, so nothing is judged
before the reward has changed `window` times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from td_loop.guard.detectors import robust, streak
from td_loop.guard.detectors.settings import Settings, number, whole
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import Record

BLOCKS = 5
"""Blocks before anything is judged: four differences between them are the least that has a spread."""

NOISE_BLOCKS = 50
"""Blocks that noise is told from: early rewards, which are often the noisiest, must not count for ever."""

FEW = 10.0
"""A spread from n blocks is taken 1 + FEW / n times: from few of them it may come out far too small."""

State = dict[str, Any]

_NO_DATA = Finding("drawdown", Health.NO_DATA)
_WARMING_UP = Finding("drawdown", Health.NO_DATA, why="warming up")


@dataclass(frozen=True)
class RewardDrawdown(Settings):
    """Trips when the moving average of `reward` stays below its recent peak (see above) for `patience` steps.

    A record without a finite reward is no data: it neither counts, resets, nor enters the average.

    Raises:
        UsageError: also where `peak_window` is shorter than BLOCKS windows.
    """

    TABLE: ClassVar[str] = "detectors.drawdown"

    drop: float = number(0.3, 0.0, 1.0, above=True)
    """Share of `scale` that may be lost."""
    window: int = whole(20, 3)
    """Rewards in the moving average, which is also the length of a block."""
    peak_window: int = whole(500, 15)
    """Rewards in which the peak is looked for, to the block."""
    patience: int = whole(20, 1)
    """Consecutive steps."""
    noise: float = number(4.5, 0.0)
    """Standard deviations of noise that a fall has to exceed; 0 leaves the first condition alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.peak_window < BLOCKS * self.window:
            must = f"must be from {BLOCKS * self.window}, {BLOCKS} times window: what is shorter has no spread"
            self._refuse("peak_window", must)

    @property
    def name(self) -> str:
        """In the log, in guard.toml and in findings."""
        return "drawdown"

    def start(self) -> State:
        """No reward so far. Keys:

        recent: the last `window` rewards;  averages: at the ends of up to NOISE_BLOCKS blocks;  peaks: highest
        average in each block of the peak's window;  high: the same in the present block, which has `n` rewards;
        first: `start`, None before it is known;  changes: of the reward, ever;  streak: of bad steps.
        """
        return {
            "recent": [],
            "averages": [],
            "peaks": [],
            "high": None,
            "n": 0,
            "first": None,
            "changes": 0,
            "streak": streak.start(),
        }

    def step(self, state: State, record: Record) -> tuple[State, Finding]:
        """Compare the average, with this reward in it, with the peak."""
        value = robust.finite(record.values.get("reward"))
        if value is None:
            return state, _NO_DATA
        recent, window = state["recent"], self.window
        state = state.copy()
        state["n"] = n = state["n"] + 1
        state["changes"] += not recent or value != recent[-1]
        state["recent"] = recent = [*recent[-window + 1 :], value]
        if len(recent) < window:
            return state, _WARMING_UP
        average = (sum(recent) - max(recent) - min(recent)) / (window - 2)
        state["high"] = average if state["high"] is None else max(state["high"], average)
        finding = self._judge(state, record.step, average)
        if n >= window:
            self._end_block(state, average)
        return state, finding

    def _judge(self, state: State, step: int, average: float) -> Finding:
        if len(state["peaks"]) < BLOCKS or state["changes"] < self.window:
            return _WARMING_UP
        peak = max(state["high"], *state["peaks"])
        scale = max(abs(peak), peak - state["first"])
        if scale == 0.0:
            return Finding("drawdown", Health.NO_DATA, why="zero throughout: there is no scale")
        limit = peak - self.drop * scale
        if average < limit and self.noise:
            limit = min(limit, peak - self.noise * noise_of(state["averages"]))
        state["streak"] = streak.advance(state["streak"], step, average < limit)
        count = state["streak"][2]
        if not count:
            return Finding("drawdown", Health.HEALTHY, False, average, limit)
        why = (
            f"average reward {average:.4g} is {(peak - average) / scale:.0%} of {scale:.4g} below its peak "
            f"{peak:.4g}, limit {self.drop:.0%}, step {count} in a row, patience is {self.patience}"
        )
        return Finding("drawdown", Health.SICK, count >= self.patience, average, limit, why)

    def _end_block(self, state: State, average: float) -> None:
        if state["first"] is None:
            state["first"] = robust.median(sorted(state["recent"]))
        state["averages"] = [*state["averages"][-NOISE_BLOCKS + 1 :], average]
        state["peaks"] = [*state["peaks"], state["high"]][-(self.peak_window // self.window) :]
        state["high"], state["n"] = None, 0


def noise_of(averages: Sequence[float]) -> float:
    """Standard deviation of the difference between two averages of a run that only learns, both robust.

    The larger of two: of the differences between consecutive blocks, which is blind to slow wandering; and of
    the residuals of the best rising fit, times the root of two, which is blind where few blocks rise by chance.
    Neither counts learning as noise, nor a fall that has just begun.

    Args:
        averages: of at least two consecutive blocks.
    """
    steps = sorted(b - a for a, b in pairwise(averages))
    residuals = sorted(abs(a - b) for a, b in zip(averages, rising_fit(averages), strict=True))
    between = robust.spread(steps, robust.median(steps))
    around = math.sqrt(2.0) * robust.SIGMA * robust.median(residuals)
    return (1.0 + FEW / len(averages)) * max(between, around)


def rising_fit(values: Sequence[float]) -> list[float]:
    """The rising sequence with the least squared distance from `values`, by pooling adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, n = value, 1
        while pools and pools[-1][0] * n >= total * pools[-1][1]:
            before, m = pools.pop()
            total, n = total + before, n + m
        pools.append((total, n))
    return [total / n for total, n in pools for _ in range(n)]
