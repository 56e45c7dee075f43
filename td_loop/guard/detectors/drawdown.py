"""Reward drawdown: what training had reached is lost again.

    average   mean of the last `window` rewards, the largest and the smallest of them left out
    peak      highest average within the last `peak_window` rewards
    start     median of the first `window` rewards: what training began with
    scale     max(|peak|, peak - start)
    sick      peak - average > drop * scale   and   peak - average > noise * sigma * sqrt(blocks since the peak)

For positive rewards `scale` is the peak, and the first condition is the plain one: 30 % below the peak. A share
of |peak| alone fails elsewhere: -150 reached from -1300 would trip at -195, and a game whose rewards average zero
on any breath. Where rewards are negative or of both signs, `drop` is therefore the share that is lost of what
training has gained, and never less than that share of |peak|.

The second condition keeps noise from tripping. `sigma` is the robust spread (median / MAD) of the differences
between averages of consecutive blocks of `window` rewards, so a trend does not widen it; a random walk with such
steps would fall further less than once in 10,000 times. A collapse takes few blocks and passes; a dip that is
shorter than window and patience together is averaged away.

Many loggers repeat the last reward until an episode ends. Repetitions say nothing of noise, so nothing is judged
before the reward has changed `window` times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from td_loop.guard.detectors import robust, streak
from td_loop.guard.detectors.settings import Settings, number, whole
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import Record

BLOCKS = 5
"""Blocks before anything is judged: four differences between them are the least that has a spread."""

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
    patience: int = whole(10, 1)
    """Consecutive steps."""
    noise: float = number(4.0, 0.0)
    """Standard deviations of a random walk that a fall has to exceed; 0 is the document's bare rule."""

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

        recent: the last `window` rewards;  averages, peaks: average at the end, and highest average, of each full
        block in the window;  high: highest average in the present block, which has `n` rewards;  first: `start`;
        sigma: of the blocks' differences;  changes: of the reward, ever;  streak: of bad steps.
        """
        return {
            "recent": [],
            "averages": [],
            "peaks": [],
            "high": None,
            "n": 0,
            "first": None,
            "sigma": 0.0,
            "changes": 0,
            "streak": streak.start(),
        }

    def step(self, state: State, record: Record) -> tuple[State, Finding]:
        """Compare the average, with this reward in it, with the peak."""
        value = robust.finite(record.values.get("reward"))
        if value is None:
            return state, _NO_DATA
        recent = state["recent"]
        changes = state["changes"] + (not recent or value != recent[-1])
        recent = [*recent[-self.window + 1 :], value]
        n = state["n"] + 1
        if len(recent) < self.window:
            return {**state, "recent": recent, "n": n, "changes": changes}, _WARMING_UP
        average = (sum(recent) - max(recent) - min(recent)) / (self.window - 2)
        high = average if state["high"] is None else max(state["high"], average)
        state = {**state, "recent": recent, "n": n, "high": high, "changes": changes}
        finding = self._judge(state, record.step, average)
        if n >= self.window:
            self._end_block(state, average)
        return state, finding

    def _judge(self, state: State, step: int, average: float) -> Finding:
        peaks, high = state["peaks"], state["high"]
        if len(peaks) < BLOCKS or state["changes"] < self.window:
            return _WARMING_UP
        peak, age = high, 0
        if (best := max(peaks)) > high:
            peak, age = best, len(peaks) - peaks.index(best)
        scale = max(abs(peak), peak - state["first"])
        if scale == 0.0:
            return Finding("drawdown", Health.NO_DATA, why="zero throughout: there is no scale")
        limit = peak - max(self.drop * scale, self.noise * state["sigma"] * math.sqrt(max(age, 1)))
        state["streak"] = streak.advance(state["streak"], step, average < limit)
        count = state["streak"][2]
        if not count:
            return Finding("drawdown", Health.HEALTHY, False, average, limit)
        why = (
            f"average reward {average:.4g}, {(peak - average) / scale:.0%} below its peak {peak:.4g} "
            f"(of {scale:.4g}), step {count} in a row, patience is {self.patience}"
        )
        return Finding("drawdown", Health.SICK, count >= self.patience, average, limit, why)

    def _end_block(self, state: State, average: float) -> None:
        keep = self.peak_window // self.window
        if state["first"] is None:
            state["first"] = robust.median(sorted(state["recent"]))
        state["averages"] = averages = [*state["averages"], average][-keep:]
        state["peaks"] = [*state["peaks"], state["high"]][-keep:]
        state["high"], state["n"] = None, 0
        if len(averages) >= BLOCKS:
            steps = sorted(b - a for a, b in pairwise(averages))
            state["sigma"] = robust.spread(steps, robust.median(steps))
