"""How often a canary is rolled back that is just as good, and how soon one that is worse.

    nice -n 19 python benchmarks/canary_simulation.py [--ramps 1000] [--minutes 30] [--seed 0]

Simulated ramps from 5 % to 95 % of the traffic, looked at every 10 s, with the controller's own tests
(`td_loop/deploy/canary/trials.py`) and its default settings. Reference, in the same run: the bare rule of the
requirements, "the canary's mean of the last 5 minutes is below 0.8 times the stable mean". Rewards:

    Bernoulli 5 %      a click or none
    Bernoulli 95 %     a task completed or not: skewed the other way
    Gaussian           mean 1, standard deviation 1
    Student t3         the same mean and scale, with heavy tails on both sides
    Pareto 2.5         mean 1, a heavy tail above
    negative           minus a gamma of shape 4: mean -10, standard deviation 5

"halved" and "20 % worse" subtract that part of the mean's absolute value (Bernoulli: multiply the probability).
"drift": identical policies, whose common mean doubles during the ramp. Exposed is the share of the ramp's requests
that the canary had answered when it was rolled back, or at the end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from td_loop.deploy.canary import trials
from td_loop.deploy.canary.machine import ramp_weight
from td_loop.deploy.canary.sequential import MORE, OTHER, DifferenceSums, ShareSums
from td_loop.deploy.canary.settings import CanarySettings

FloatArray = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, FloatArray], FloatArray]
"""Rewards, one for each of f64[n] factors that its mean is multiplied with."""

SETTINGS = CanarySettings()
LOOK_S, BARE_S = 10.0, 300.0
STRATUM = 3.0
RATES = {"output": 0.0001, "error": 0.0001, "latency": 0.005, "nondeterminism": 0.0, "fallback": 0.002}
"""What identical policies have of each event, a request."""
LIMITS = {"output": 0.001, "error": 0.001, "latency": 0.01, "nondeterminism": 0.005, "fallback": 0.01}


def bernoulli(p: float) -> Draw:
    """1 with probability p, else 0."""
    return lambda rng, f: (rng.random(len(f)) < p * f).astype(float)


def pareto(rng: np.random.Generator, f: FloatArray) -> FloatArray:
    """Mean 1 for a factor of 1: (a - 1) / a times a Pareto variable from 1."""
    return f * 0.6 * (1.0 + rng.pareto(2.5, len(f)))


REWARDS: dict[str, Draw] = {
    "Bernoulli 5 %": bernoulli(0.05),
    "Bernoulli 95 %": bernoulli(0.95),
    "Gaussian": lambda rng, f: f + rng.standard_normal(len(f)),
    "Student t3": lambda rng, f: f + rng.standard_t(3, len(f)) / np.sqrt(3.0),
    "Pareto 2.5": pareto,
    "negative": lambda rng, f: -rng.gamma(4.0, 2.5, len(f)) - 10.0 * (f - 1.0),
}


@dataclass(frozen=True)
class Scenario:
    """What the canary is.

    Attributes:
        name: for the table.
        factor: what the canary's mean is multiplied with; of a negative mean 1 + the loss.
        drift: what the mean of both is multiplied with at the end of the ramp.
    """

    name: str
    factor: float = 1.0
    drift: float = 1.0


SCENARIOS = (
    Scenario("identical"),
    Scenario("drift", drift=2.0),
    Scenario("20 % worse", 0.8),
    Scenario("halved", 0.5),
)


@dataclass
class Result:
    """What became of the ramps, f64[N]: the second of the rollback (infinite if there was none).

    Attributes:
        reward: by the reward's test.
        bare: by the bare rule.
        any: by any trigger.
        exposed: share of requests that the canary had answered.
    """

    reward: FloatArray
    bare: FloatArray
    any: FloatArray
    exposed: FloatArray


def sums(rng: np.random.Generator, draw: Draw, n: npt.NDArray[np.int64], factor: float) -> list[FloatArray]:
    """Number, sum and sum of squares of n[k] rewards each."""
    of = np.repeat(np.arange(len(n)), n)
    x = draw(rng, np.full(len(of), factor))
    return [n.astype(float), *(np.bincount(of, y, len(n)) for y in (x, x * x))]


def simulate(
    draw: Draw, scenario: Scenario, rate: float, ramps: int, ramp_s: float, rng: np.random.Generator
) -> Result:
    """Ramps with `rate` requests a second, each of which earns one reward at once and begins an episode.

    The other triggers are only asked about a canary that is just as good.
    """
    equal = scenario.factor == 1.0
    never = np.full(ramps, np.inf)
    result = Result(never, never.copy(), never.copy(), np.ones(ramps))
    rewards, shares = DifferenceSums.zero((ramps,)), {x: ShareSums.zero(MORE, (ramps,)) for x in RATES}
    ratio, marks = ShareSums.zero(OTHER, (ramps,)), []
    open_c, open_s = np.zeros((3, ramps)), np.zeros((3, ramps))
    past: list[tuple[FloatArray, FloatArray]] = []
    stages = replace(SETTINGS.stages, ramp_s=ramp_s)
    answered, looks = np.zeros(ramps), int(ramp_s / LOOK_S)
    for k in range(looks):
        at, weight = (k + 1) * LOOK_S, ramp_weight(stages, k * LOOK_S) / 100.0
        if k * LOOK_S % SETTINGS.watch.window_s == 0:
            marks.append((rewards, dict(shares), ratio))
        n = rng.poisson(rate * LOOK_S, ramps)
        n_c = rng.binomial(n, weight)
        common = 1.0 + (scenario.drift - 1.0) * k / looks
        canary = sums(rng, draw, n_c, common * scenario.factor)
        stable = sums(rng, draw, n - n_c, common)
        # As in the controller: a stratum is closed when both sides have some rewards.
        open_c, open_s = open_c + canary, open_s + stable
        full = np.minimum(open_c[0], open_s[0]) >= STRATUM
        rewards = rewards.add(tuple(open_c * full), tuple(open_s * full))
        open_c, open_s = open_c * ~full, open_s * ~full
        for name, p in RATES.items() if equal else ():
            events = [(rng.binomial(x, p).astype(float), x.astype(float)) for x in (n_c, n - n_c)]
            shares[name] = shares[name].add_events(MORE, *events)
        if equal:
            ratio = ratio.add_draws(OTHER, np.full(ramps, weight), *(x.astype(float) for x in (n_c, n - n_c)))
        answered += n_c
        proven, others = np.zeros(ramps, bool), np.zeros(ramps, bool)
        for start, (r0, s0, x0) in enumerate(marks):
            proven |= trials.reward(rewards.since(r0), start, SETTINGS).proven
            if equal:
                for name, limit in LIMITS.items():
                    others |= trials.rate(shares[name].since(s0[name]), limit, start, SETTINGS).proven
                others |= trials.ratio(ratio.since(x0), start, SETTINGS).proven
        past = [*past[-int(BARE_S / LOOK_S) + 1 :], (np.array(canary), np.array(stable))]
        c, s = sum(x for x, _ in past), sum(x for _, x in past)
        with np.errstate(invalid="ignore", divide="ignore"):
            bare = c[1] / c[0] < 0.8 * (s[1] / s[0])
        new = np.isinf(result.any) & (proven | others)
        result.exposed[new] = answered[new]
        for found, times in ((proven, result.reward), (bare, result.bare), (proven | others, result.any)):
            times[found & np.isinf(times)] = at
    unseen = np.isinf(result.any)
    result.exposed[unseen] = answered[unseen]
    result.exposed /= rate * ramp_s
    return result


def middle(times: FloatArray) -> str:
    """Median of those that were rolled back, in minutes, and the 90th percentile."""
    found = times[np.isfinite(times)]
    if not len(found):
        return "-"
    return f"{np.median(found) / 60:.1f} / {np.percentile(found, 90) / 60:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ramps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30.0, help="of a ramp")
    parser.add_argument("--rates", type=float, nargs="*", default=[1.0, 10.0], help="requests/s")
    parser.add_argument("--kinds", nargs="*", default=list(REWARDS), help="of rewards")
    args = parser.parse_args()
    began = time.perf_counter()
    print(
        f"{args.ramps} ramps of {args.minutes:g} minutes; rolled back by ..., after (median / 90th percentile)\n"
    )
    print("| rewards | /s | canary | reward test | minutes | any trigger | bare rule | minutes | exposed |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in args.kinds:
        for rate in args.rates:
            for scenario in SCENARIOS:
                if scenario.drift != 1.0 and kind == "Bernoulli 95 %":
                    continue  # there is no probability of 1.9
                factor = scenario.factor if kind != "negative" else 2.0 - scenario.factor
                here = Scenario(scenario.name, factor, scenario.drift)
                rng = np.random.default_rng(args.seed)
                r = simulate(REWARDS[kind], here, rate, args.ramps, 60.0 * args.minutes, rng)
                ours, others, bare = (f"{np.isfinite(x).mean():.1%}" for x in (r.reward, r.any, r.bare))
                cells = (kind, f"{rate:g}", scenario.name, ours, middle(r.reward), others, bare, middle(r.bare))
                print("|", " | ".join([*cells, f"{r.exposed.mean():.0%}"]), "|", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
