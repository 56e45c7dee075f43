"""The detectors: one file each, pure, with the defaults that `benchmarks/bench_detectors.py` chose."""

from td_loop.guard.detectors.drawdown import RewardDrawdown
from td_loop.guard.detectors.drift import Drift
from td_loop.guard.detectors.entropy import EntropyCollapse
from td_loop.guard.detectors.jump import Jump
from td_loop.guard.detectors.kl import KlSpike
from td_loop.guard.detectors.non_finite import NonFinite
from td_loop.guard.detectors.stalled import Stalled, stalled
from td_loop.guard.detectors.value_loss import ValueLossExplosion

__all__ = [
    "Drift",
    "EntropyCollapse",
    "Jump",
    "KlSpike",
    "NonFinite",
    "RewardDrawdown",
    "Stalled",
    "ValueLossExplosion",
    "stalled",
]
