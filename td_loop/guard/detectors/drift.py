"""Slow drift: a metric creeps away from where it was, by steps too small for any of them to stand out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from td_loop.guard.detectors import robust
from td_loop.guard.detectors.change import Change
from td_loop.guard.detectors.settings import number, whole
from td_loop.guard.health import Finding, Health
from td_loop.guard.record import Record

State = dict[str, Any]


@dataclass(frozen=True)
class Drift(Change):
    """A CUSUM of robust z-scores of block medians against the older half of a window of blocks.

        level  median of `block` consecutive finite values
        z      (level - median of the older half) / sigma of the older half, cut to +-`clip`
        sum    max(0, sum + z - allowance);  sick above limit / 2, trips above limit

    The older half lags by half a window to a whole one, so a drift does not drag its own reference along, as it
    would with the values just before. Medians of blocks are deaf to single outliers, and `clip` to a bad block.

    Value loss and gradient norm have a larger floor, because they grow with the returns while a policy learns: the
    norm of a healthy SAC's critic twentyfold within some thousand steps. Entropy is not looked at by default,
    because it falls slowly in every healthy training; nor is the reward, whose slow losses `drawdown` judges by
    size.

    Raises:
        UsageError: also where `warmup` is larger than `blocks`: it would warm up for ever.
    """

    TABLE: ClassVar[str] = "detectors.drift"
    DEFAULTS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "kl": {"unit": 0.002, "allowance": 2.5},
        "value_loss": {"unit": 1.0, "floor": 0.5},
        "grad_norm": {"unit": 0.1, "floor": 0.5},
    }

    block: int = whole(8, 1)
    """Values in a block."""
    blocks: int = whole(128, 8)
    """Blocks in the window."""
    warmup: int = whole(64, 8)
    """Blocks before anything is judged."""
    allowance: float = number(3.0, 0.0)
    """Standard deviations that are forgiven at each block."""
    clip: float = number(6.0, 0.0, above=True)
    """Largest z-score that a block can have."""
    limit: float = number(24.0, 0.0, above=True)
    """Sum that trips."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup > self.blocks:
            self._refuse("warmup", f"must be at most blocks, {self.blocks}")
        if self.clip <= self.allowance:
            self._refuse("clip", f"must be above allowance, {self.allowance:g}: no sum would ever grow")

    def start(self) -> State:
        """Keys: block, the values of the present one;  levels, of the full ones;  sums, one for each bad way."""
        return {"block": [], "levels": [], "sums": [0.0 for _ in self.signs]}

    def step(self, state: State, record: Record) -> tuple[State, Finding]:
        """Add the value to its block, and judge the block when it is full."""
        value = self.scaled(record.values.get(self.metric))
        if value is None:
            return state, self.no_data
        block, levels, sums = [*state["block"], value], state["levels"], state["sums"]
        if len(block) >= self.block:
            level = robust.median(sorted(block))
            if len(levels) >= self.warmup:
                sums = self._sums(level, levels, sums)
            block, levels = [], [*levels[-self.blocks + 1 :], level]
        return {"block": block, "levels": levels, "sums": sums}, self._finding(levels, max(sums))

    def _sums(self, level: float, levels: list[float], sums: list[float]) -> list[float]:
        older = sorted(levels[: len(levels) // 2])
        centre = robust.median(older)
        sigma = self.sigma(older, centre)
        if sigma <= 0.0:
            return sums
        z = min(max((level - centre) / sigma, -self.clip), self.clip)
        return [max(0.0, total + sign * z - self.allowance) for total, sign in zip(sums, self.signs, strict=True)]

    def _finding(self, levels: list[float], total: float) -> Finding:
        if len(levels) < self.warmup:
            return self.warming_up
        if total <= 0.5 * self.limit:
            return Finding(self.name, Health.HEALTHY, False, total, self.limit)
        why = (
            f"{self.metric} has drifted {self.bad if self.bad != 'both' else 'away'} from where it was "
            f"{len(levels) * self.block} values ago: sum of excess z-scores {total:.1f}, limit {self.limit:g}"
        )
        return Finding(self.name, Health.SICK, total > self.limit, total, self.limit, why)
