"""Labelled telemetry: healthy training of several styles, and the same with one fault in it, from a seed.

The styles follow what real runs of stable-baselines3 (PPO, DQN and SAC on CartPole, Acrobot and Pendulum) and of
`td-loop fit` report: learning phases, noise with heavy tails and memory, single outliers, losses that range over
six orders of magnitude, rewards that are repeated until an episode ends, and values that are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from td_loop.guard.record import Record

Floats = npt.NDArray[np.float64]
Columns = dict[str, Floats]
"""Metrics by name, each of shape [T]."""


@dataclass(frozen=True)
class Trace:
    """One run's telemetry.

    Attributes:
        kind: the fault's name, "healthy", or "late dip", which is no fault.
        style: whose telemetry it looks like.
        columns: metrics by name, [T] each.
        missing: where a metric was not reported, bool [T] each; absent for those that always are.
        onset: first step of the fault; None without one.
        onset_metric: what the fault is in.
    """

    kind: str
    style: str
    columns: Columns
    missing: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    onset: int | None = None
    onset_metric: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def records(self) -> Iterator[Record]:
        """Its lines, step by step."""
        lists = {name: column.tolist() for name, column in self.columns.items()}
        gone = {name: where.tolist() for name, where in self.missing.items()}
        for step in range(len(self)):
            yield Record(
                step, {n: xs[step] for n, xs in lists.items() if n not in gone or not gone[n][step]}, attempt=0
            )


# --- noise -------------------------------------------------------------------------------------------------------


def wander(rng: np.random.Generator, n: int, memory: float) -> Floats:
    """Noise of unit variance that remembers for about `memory` steps."""
    keep = math.exp(-1.0 / memory)
    x = float(rng.standard_normal())
    out = []
    for e in (rng.standard_normal(n) * math.sqrt(1.0 - keep * keep)).tolist():
        x = keep * x + e
        out.append(x)
    return np.array(out)


def heavy(rng: np.random.Generator, n: int) -> Floats:
    """Noise of unit variance with heavy tails: Student's t with 5 degrees of freedom."""
    return rng.standard_t(5, n) * math.sqrt(3 / 5)


def outliers(rng: np.random.Generator, n: int, chance: float, most: float) -> Floats:
    """Factors: 1, but for a rare step on which it is 2 to `most`."""
    return np.where(rng.random(n) < chance, np.exp(rng.uniform(math.log(2.0), math.log(most), n)), 1.0)


def positive(rng: np.random.Generator, trend: Floats, sigma: float, chance: float = 0.002) -> Floats:
    """A positive metric around `trend`, with multiplicative noise of log-deviation `sigma`."""
    n = len(trend)
    noise = 0.6 * wander(rng, n, float(rng.uniform(5, 150))) + 0.8 * heavy(rng, n)
    return trend * np.exp(sigma * noise) * outliers(rng, n, chance, 8.0)


def learning(rng: np.random.Generator, n: int) -> Floats:
    """How much has been learnt, 0 to 1: an S-curve somewhere in the first half."""
    t = np.arange(n) / n
    return 1.0 / (1.0 + np.exp(-(t - rng.uniform(0.05, 0.45)) / rng.uniform(0.03, 0.1)))


def geometric(rng: np.random.Generator, low: float, high: float) -> float:
    """A number between two, even on a logarithmic scale."""
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


# --- healthy styles ----------------------------------------------------------------------------------------------


def _policy(rng: np.random.Generator, learnt: Floats) -> Columns:
    """What every PPO reports but its reward."""
    n = len(learnt)
    t = np.arange(n) / n
    decay = 1.0 - t * rng.choice([0.0, 0.95])
    most = math.log(rng.integers(2, 19))
    least = most * rng.uniform(0.15, 0.6)
    hump = np.exp(rng.uniform(0.0, 1.5) * 4 * learnt * (1 - learnt) - rng.uniform(0.0, 2.0) * learnt)
    entropy = most - (most - least) * learnt + most * (0.03 * wander(rng, n, 60.0) + 0.01 * heavy(rng, n))
    return {
        "kl": np.minimum(positive(rng, geometric(rng, 0.002, 0.01) * decay**0.5, rng.uniform(0.3, 0.5)), 0.3),
        "entropy": np.maximum(entropy, 0.03),
        "value_loss": positive(rng, geometric(rng, 0.3, 4.0) * hump, rng.uniform(0.2, 0.5)),
        "grad_norm": positive(rng, np.full(n, geometric(rng, 0.1, 2.0)), rng.uniform(0.15, 0.4)),
        "lr": 3e-4 * decay,
    }


def ppo(rng: np.random.Generator, n: int) -> Columns:
    """PPO with discrete actions and positive rewards."""
    learnt = learning(rng, n)
    low = rng.uniform(1.0, 25.0)
    high = low + rng.uniform(30.0, 480.0)
    level = low + (high - low) * learnt
    noise = (0.08 * level + 0.01 * high) * (0.5 * wander(rng, n, 10.0) + 0.8 * heavy(rng, n))
    return {**_policy(rng, learnt), "reward": level + noise}


def ppo_costs(rng: np.random.Generator, n: int) -> Columns:
    """PPO whose rewards are negative throughout: costs, as in Pendulum."""
    learnt = learning(rng, n)
    low, high = -rng.uniform(800.0, 1600.0), -rng.uniform(100.0, 250.0)
    level = low + (high - low) * learnt
    noise = 0.12 * np.abs(level) * (0.6 * wander(rng, n, 15.0) + 0.8 * heavy(rng, n))
    return {**_policy(rng, learnt), "reward": np.minimum(level + noise, -1.0)}


def self_play(rng: np.random.Generator, n: int) -> Columns:
    """A zero-sum game against itself: rewards wander around zero and mean nothing."""
    noise = rng.uniform(0.02, 0.1) * wander(rng, n, geometric(rng, 5, 120)) + rng.uniform(0.03, 0.2) * heavy(
        rng, n
    )
    return {**_policy(rng, learning(rng, n)), "reward": np.clip(noise, -1.0, 1.0)}


def solved(rng: np.random.Generator, n: int) -> Columns:
    """CartPole after it is solved: hardly any loss, a reward at its cap, and now and then a short failure."""
    learnt = np.ones(n)
    loss = np.exp(rng.normal(math.log(1e-6), 1.5, n))
    fail = rng.random(n) < 0.004
    fail |= np.roll(fail, 1) & (rng.random(n) < 0.5)
    loss[fail] = np.exp(rng.uniform(math.log(0.05), math.log(5.0), int(fail.sum())))
    reward = np.where(fail, 500.0 - rng.exponential(20.0, n), 500.0)
    norm = positive(rng, np.full(n, 0.15), 0.9)
    return {**_policy(rng, learnt), "value_loss": loss, "reward": reward, "grad_norm": np.minimum(norm, 0.5)}


def sac(rng: np.random.Generator, n: int) -> Columns:
    """SAC: no KL, a critic's loss that grows with the returns, a reward that stays until an episode ends."""
    learnt = learning(rng, n)
    episode = int(rng.integers(20, 100))
    kept = int(rng.integers(5, 30))
    low = -rng.uniform(800.0, 1600.0)
    level = low * (1.0 - rng.uniform(0.6, 0.9) * learnt)
    returns = (level * (1.0 + 0.15 * heavy(rng, n)))[::episode]
    means = np.array([returns[max(0, k + 1 - kept) : k + 1].mean() for k in range(len(returns))])
    ends = np.arange(n) // episode
    most = rng.uniform(1.0, 3.0)
    return {
        "entropy": most - 0.6 * most * learnt + 0.05 * wander(rng, n, 50.0) + 0.02 * heavy(rng, n),
        "value_loss": positive(rng, geometric(rng, 0.05, 1.0) * np.exp(rng.uniform(1, 2.5) * learnt), 0.35),
        "grad_norm": positive(rng, geometric(rng, 1.0, 20.0) * np.exp(rng.uniform(0.0, 2.0) * learnt), 0.3),
        "lr": np.full(n, 1e-3),
        "reward": means[ends],
    }


def fit(rng: np.random.Generator, n: int) -> Columns:
    """`td-loop fit`: supervised, with a warm-up and a cosine, tiny KL between steps, no reward."""
    t = np.arange(n) / n
    lr = np.minimum(t / 0.03, 0.5 * (1.0 + np.cos(math.pi * t)))
    fall = np.exp(-t / rng.uniform(0.02, 0.2))
    end = rng.uniform(0.3, 0.9)
    return {
        "kl": positive(rng, 1e-7 + geometric(rng, 1e-5, 1e-3) * lr * (0.2 + fall), 0.4),
        "entropy": 0.5 + 0.2 * fall + 0.01 * wander(rng, n, 20.0) + 0.01 * heavy(rng, n),
        "value_loss": positive(rng, end + (1.4 - end) * fall, rng.uniform(0.03, 0.15), 0.001),
        "grad_norm": positive(rng, geometric(rng, 0.02, 1.0) * (0.3 + fall), 0.3),
        "lr": 0.03 * lr,
    }


STYLES: Mapping[str, Callable[[np.random.Generator, int], Columns]] = {
    "ppo": ppo,
    "ppo_costs": ppo_costs,
    "self_play": self_play,
    "solved": solved,
    "sac": sac,
    "fit": fit,
}


def gaps(rng: np.random.Generator, columns: Columns, most: float) -> dict[str, npt.NDArray[np.bool_]]:
    """Every metric misses its own share of steps, up to `most`."""
    return {name: rng.random(len(x)) < rng.uniform(0.0, most) for name, x in columns.items()}


def healthy(seed: int, index: int, n: int = 4000) -> Trace:
    """The `index`-th healthy trace: styles in turn, half of the traces with up to half of the values missing."""
    rng = np.random.default_rng([seed, 0, index])
    style = list(STYLES)[index % len(STYLES)]
    columns = STYLES[style](rng, n)
    return Trace("healthy", style, columns, gaps(rng, columns, 0.5) if rng.random() < 0.5 else {})


# --- faults ------------------------------------------------------------------------------------------------------


def _ramp(n: int, onset: int, steps: int) -> Floats:
    """0 before the onset, 1 from `steps` later on."""
    return np.clip((np.arange(n) - onset) / steps, 0.0, 1.0)


def _held(x: Floats, onset: int, steps: int) -> Floats:
    """What `x` would be from the onset on if it stayed as in the `steps` before."""
    return np.resize(x[onset - steps : onset], len(x) - onset)


def _kl_spike(rng: np.random.Generator, c: Columns, onset: int) -> str:
    end = onset + int(rng.integers(10, 50))
    c["kl"][onset:end] = geometric(rng, 0.08, 1.5) * np.exp(rng.normal(0.0, 0.15, end - onset))
    return "kl"


def _slow_drift(rng: np.random.Generator, c: Columns, onset: int) -> str:
    """Times 4 to 7; 15 to 40 for value loss and gradient norm, which grow with the returns in healthy training.

    All below the fixed limits. A metric that lies near zero has nowhere visible to drift to.
    """
    size = {"kl": 0.002, "value_loss": 1.0, "grad_norm": 0.1}
    here = {m: float(np.median(c[m][onset - 100 : onset])) for m in size if m in c}
    metric = str(rng.choice([m for m, x in here.items() if x > size[m]] or ["grad_norm"]))
    c[metric][onset:] = _held(c[metric], onset, 200)  # else a healthy decline may take the drift back
    ramp = _ramp(len(c[metric]), onset, int(rng.integers(300, 900)))
    low, high = (4.0, 7.0) if metric == "kl" else (15.0, 40.0)
    c[metric] *= np.exp(ramp * math.log(geometric(rng, low, high)))
    if metric != "grad_norm":
        limit = {"kl": 0.05, "value_loss": 50.0}[metric]
        c[metric][onset:] = np.minimum(c[metric][onset:], 0.95 * limit)
    return metric


def _entropy_collapse(rng: np.random.Generator, c: Columns, onset: int) -> str:
    fall = np.exp(-np.maximum(np.arange(len(c["entropy"])) - onset, 0) / geometric(rng, 3, 60))
    c["entropy"] = c["entropy"] * fall + geometric(rng, 1e-5, 5e-3) * (1 - fall)
    return "entropy"


def _value_explosion(rng: np.random.Generator, c: Columns, onset: int) -> str:
    grown = np.maximum(np.arange(len(c["value_loss"])) - onset, 0) * math.log(rng.uniform(1.05, 2.0))
    c["value_loss"] *= np.exp(np.minimum(grown, 25.0))
    if rng.random() < 0.5:  # from hardly any loss no factor leads anywhere soon; a jump does
        c["value_loss"][onset:] += rng.uniform(60.0, 1000.0)
    c["value_loss"][onset:] = np.maximum(c["value_loss"][onset:], 0.01 * np.exp(np.minimum(grown[onset:], 25.0)))
    return "value_loss"


def _nan(rng: np.random.Generator, c: Columns, onset: int) -> str:
    metric = str(rng.choice(list(c)))
    end = onset + int(rng.choice([1, 20, 10_000]))
    c[metric][onset:end] = rng.choice([math.nan, math.inf, -math.inf])
    return metric


def _size(c: Columns, onset: int) -> float:
    """What a reward that is lost is a share of, as `detectors/drawdown.py` has it."""
    now, start = float(np.mean(c["reward"][onset - 50 : onset])), float(np.mean(c["reward"][:50]))
    return max(abs(now), now - start)


def _drawdown(rng: np.random.Generator, c: Columns, onset: int) -> str:
    """Learning ends, and the reward falls from where it was: while it rises, a loss is only a slower rise."""
    c["reward"][onset:] = _held(c["reward"], onset, 100)
    if abs(c["reward"]).max() <= 1.0:  # self-play: one side begins to lose
        c["reward"] = np.clip(c["reward"] - rng.uniform(0.7, 0.95) * _ramp(len(c["reward"]), onset, 20), -1.0, 1.0)
        return "reward"
    lost = rng.uniform(0.5, 0.95) * _size(c, onset)
    c["reward"] = c["reward"] - lost * _ramp(len(c["reward"]), onset, int(rng.integers(5, 150)))
    return "reward"


def _late_dip(rng: np.random.Generator, c: Columns, onset: int) -> str:
    """Shallow and long, or deep and short; it recovers, and the KL rises a little meanwhile. No fault."""
    depth, length = (rng.uniform(0.1, 0.2), 150) if rng.random() < 0.5 else (rng.uniform(0.3, 0.5), 14)
    steps = int(rng.integers(length // 2, length))
    shape = np.zeros(len(c["reward"]))
    shape[onset : onset + steps] = np.sin(np.linspace(0.0, math.pi, steps))
    c["reward"] = c["reward"] - depth * _size(c, onset) * shape
    c["kl"] = c["kl"] * (1.0 + shape)
    return "reward"


FAULTS: Mapping[str, tuple[Callable[[np.random.Generator, Columns, int], str], tuple[str, ...], int]] = {
    "KL spike": (_kl_spike, ("ppo", "ppo_costs", "self_play", "solved", "fit"), 60),
    "slow drift": (_slow_drift, ("ppo", "ppo_costs", "self_play", "sac"), 1300),
    "entropy collapse": (_entropy_collapse, ("ppo", "ppo_costs", "self_play", "sac", "fit"), 700),
    "value explosion": (_value_explosion, ("ppo", "ppo_costs", "self_play", "solved", "sac", "fit"), 300),
    "NaN": (_nan, ("ppo", "ppo_costs", "self_play", "solved", "sac", "fit"), 10),
    "drawdown": (_drawdown, ("ppo", "ppo_costs", "self_play"), 400),
    "missing values, KL spike": (_kl_spike, ("ppo", "ppo_costs", "self_play", "solved", "fit"), 60),
    "missing values, drawdown": (_drawdown, ("ppo", "ppo_costs", "self_play"), 400),
}
"""By kind: what makes the fault, the styles that can have it, and steps after the onset in which to find it."""


def faulty(seed: int, kind: str, index: int, n: int = 3600) -> Trace:
    """The `index`-th trace with a fault, which begins after 1000 to 2200 steps."""
    make, styles, _ = FAULTS[kind]
    rng = np.random.default_rng([seed, 1, list(FAULTS).index(kind), index])
    columns = STYLES[styles[index % len(styles)]](rng, n)
    onset = int(rng.integers(1000, 2200))
    metric = make(rng, columns, onset)
    missing = gaps(rng, columns, 0.5) if kind.startswith("missing") else {}
    return Trace(kind, styles[index % len(styles)], columns, missing, onset, metric)


def late_dip(seed: int, index: int, n: int = 3600) -> Trace:
    """The `index`-th trace with a dip that recovers, after 70 % of training. It must not trip."""
    rng = np.random.default_rng([seed, 2, index])
    style = ("ppo", "ppo_costs")[index % 2]
    columns = STYLES[style](rng, n)
    onset = int(rng.integers(int(0.7 * n), int(0.9 * n)))
    return Trace("late dip", style, columns, {}, onset, _late_dip(rng, columns, onset))
