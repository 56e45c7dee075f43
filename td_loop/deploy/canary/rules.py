"""What the evidence says: go on, hold, or roll back. Pure, and slow to say either of the last two for no reason.

A rollback needs two things: the limit is broken (for rewards the rule of the requirements: the canary's mean is
below 0.8 times the stable mean), and there is anytime-valid evidence that the stable policy really does better.
The limit alone rolls back canaries that are equal (in half of all ramps and more, at a few rewards a second);
the evidence alone would roll back one that is a thousandth worse, given time.

For means of any sign "0.8 times" reads: below the stable mean by more than 0.2 times its absolute value. That is
the same for a positive mean; of -10 it makes -12, where 0.8 times -10 would ask for an improvement. A mean near
zero has next to no share of itself: `reward_unit` sets what counts there.

A limit that is broken without evidence is a reason to hold, as is everything that keeps the rules from seeing: no
traffic, no rewards, no counters, counters that are old, not numbers or fell. No data is neither good nor bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from td_loop import text
from td_loop.deploy.canary import trials
from td_loop.deploy.canary.evidence import Evidence, Mark, Rate, Setting, Sums, rates
from td_loop.deploy.canary.observation import Observation
from td_loop.deploy.canary.settings import CanarySettings
from td_loop.deploy.names import SUBSETS

FEW = 5
"""Events that are a reason to wait; fewer break a limit by chance, and are no proof either."""
SUSPICIOUS = 1.64
"""Standard errors behind, at this moment, that are a reason to wait (5 % of equal canaries at any one moment)."""


class Outcome(StrEnum):
    """What is to be done."""

    FINE = "fine"
    HOLD = "hold"
    ROLL_BACK = "roll_back"


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        trigger: its name.
        sentence: what it is, with figures.
        figures: JSON data.
    """

    trigger: str
    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return {"trigger": self.trigger, "sentence": self.sentence, "figures": dict(self.figures)}


@dataclass(frozen=True)
class Verdict:
    """What an observation comes to.

    Attributes:
        outcome: what is to be done.
        findings: why; none if all is fine.
        lacking: what the stage still needs before it may end; "" if nothing.
        fresh: whether the canary got requests since its weight was set.
        warnings: what a person should know, and nothing is done about.
    """

    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    lacking: str = ""
    fresh: bool = False
    warnings: tuple[Finding, ...] = ()

    @property
    def reason(self) -> str:
        """All findings in a line."""
        return "; ".join(f.sentence for f in self.findings)


def hold(trigger: str, sentence: str) -> Verdict:
    """Nothing may be concluded, and this is why."""
    return Verdict(Outcome.HOLD, (Finding(trigger, sentence),))


def judge(
    evidence: Evidence, now: Observation, settings: CanarySettings, under: Setting, artefact: str
) -> Verdict:
    """What is to be done after an observation that `evidence` has taken.

    Args:
        evidence: after `take(now)`, or before it if `now` has a fault of its own.
        now: the observation.
        settings: of the release.
        under: what holds in this stage.
        artefact: sha256 of the canary that is being released.
    """
    bad: list[Finding] = []
    odd: list[Finding] = []
    for finding, proven in _comparisons(evidence, settings, under):
        (bad if proven else odd).append(finding)
    drifting = _drift(evidence, now, settings, under)
    watch = settings.watch
    if fault := now.fault():
        odd.insert(0, Finding("no numbers", fault))
    elif evidence.reset:
        odd.insert(0, Finding("reset", f"{evidence.reset}; counting goes on from here"))
    if now.age > watch.stale_s:
        odd.insert(0, Finding("stale", f"the counters are {text.duration(now.age)} old"))
    if now.canary.sha256 and now.canary.sha256 != artefact:
        odd.insert(
            0, Finding("artefact", f"the canary that answers is {now.canary.sha256[:12]}, not {artefact[:12]}")
        )
    odd += _silence(evidence, now, settings, under)
    odd += drifting if settings.limits.on_drift == "hold" else []
    warnings = tuple(drifting)
    lacking, fresh = _lacking(evidence, settings, under), evidence.step > 0
    if bad:
        return Verdict(Outcome.ROLL_BACK, tuple(bad + odd), lacking, fresh, warnings)
    return Verdict(Outcome.HOLD if odd else Outcome.FINE, tuple(odd), lacking, fresh, warnings)


def _comparisons(evidence: Evidence, settings: CanarySettings, under: Setting) -> Iterator[tuple[Finding, bool]]:
    """Findings of all comparisons, that of the deepest cause first, and whether each is proven."""
    windows = [(mark, evidence.sums.since(mark.sums)) for mark in evidence.marks]
    for rate in rates(settings):
        yield from _rate(rate, windows, settings)
    yield from _entropy(windows, evidence.last, settings, under)
    yield from _ratio(windows, settings, under)
    yield from _reward(windows, settings)


def _rate(
    rate: Rate, windows: list[tuple[Mark, Sums]], settings: CanarySettings
) -> Iterator[tuple[Finding, bool]]:
    found = []
    for mark, sums in windows:
        if (shares := sums.rates.get(rate.name)) is not None:
            tested = trials.rate(shares, rate.limit, mark.start, settings)
            if tested.broken:
                found.append((tested, mark, shares))
    proven = any(tested.proven for tested, _, _ in found)
    if not proven:
        enough = settings.watch.requests
        found = [f for f in found if f[2].canary_trials >= enough and f[2].canary >= FEW][-1:]
    if not found:
        return
    tested, mark, shares = max(found, key=lambda f: f[0].log_e - f[0].needed)
    canary, stable = (float(r) for r in shares.rates)
    sentence = (
        f"{canary:.2%} {rate.what} by the canary ({float(shares.canary):.0f} of "
        f"{float(shares.canary_trials):.0f}), {stable:.2%} by the stable policy; the limit is {rate.limit:.2%}"
    )
    figures = {
        "canary": canary,
        "stable": stable,
        "limit": rate.limit,
        "canary_events": float(shares.canary),
        "canary_trials": float(shares.canary_trials),
        "stable_events": float(shares.stable),
        "stable_trials": float(shares.stable_trials),
        **_e_figures(tested, mark),
    }
    yield Finding(rate.name, sentence if proven else f"{sentence}: not proven to be the canary's", figures), proven


def _entropy(
    windows: list[tuple[Mark, Sums]], last: Observation | None, settings: CanarySettings, under: Setting
) -> Iterator[tuple[Finding, bool]]:
    """Collapse is a fall towards zero: the limit is so far from what chance does that no test is needed.

    All episodes of a canary whose traffic has just begun are at their beginnings, where there may be little to
    choose, and those of the stable policy are not: nothing is said before they had time (`settle_s`).

    What counts is the entropy of what was chosen over many states. Where it is not told, that of single decisions
    stands in for it: a policy may be sure of each and still choose differently in each.
    """
    if last is not None and _just_begun(last, under):
        return
    for mark, sums in reversed(windows):
        canary, n, stable, m = (float(x) for x in sums.entropy)
        if min(n, m) < settings.watch.requests:
            continue
        canary, stable = canary / n, stable / m
        chosen = None if last is None else (last.canary.choice_entropy, last.stable.choice_entropy)
        if chosen is not None and chosen[0] is not None and chosen[1] is not None:
            canary, stable = chosen[0], chosen[1]
        limit = settings.limits.entropy * stable
        if canary < limit:
            figures = {
                "canary": canary,
                "stable": stable,
                "limit": limit,
                "canary_decisions": n,
                "stable_decisions": m,
                "since": mark.time,
            }
            sentence = (
                f"the canary's action entropy is {canary:.3g} nats, the stable policy's {stable:.3g} "
                f"(limit {limit:.3g}): it nearly always does the same"
            )
            yield Finding("entropy", sentence, figures), True
        return


def _ratio(
    windows: list[tuple[Mark, Sums]], settings: CanarySettings, under: Setting
) -> Iterator[tuple[Finding, bool]]:
    found = [(trials.ratio(sums.ratio, mark.start, settings), mark, sums.ratio) for mark, sums in windows]
    if found := [f for f in found if f[0].proven]:
        tested, mark, ratio = max(found, key=lambda f: f[0].log_e - f[0].needed)
        episodes = float(ratio.canary + ratio.stable)
        sentence = (
            f"{float(ratio.canary):.0f} of {episodes:.0f} episodes went to the canary, which is not what its "
            f"weights gave (now {under.weight:g} %): the subsets cannot be compared"
        )
        figures = {
            "canary_episodes": float(ratio.canary),
            "stable_episodes": float(ratio.stable),
            "weight": under.weight,
            **_e_figures(tested, mark),
        }
        yield Finding("sample ratio", sentence, figures), True


def _reward(windows: list[tuple[Mark, Sums]], settings: CanarySettings) -> Iterator[tuple[Finding, bool]]:
    found = [(trials.reward(sums.rewards, mark.start, settings), mark, sums.rewards) for mark, sums in windows]
    found = [f for f in found if f[0].broken]
    cluster = settings.limits.reward_cluster
    proven = any(tested.proven for tested, _, _ in found)
    if not proven:
        found = [f for f in found[-1:] if f[2].z(cluster) >= SUSPICIOUS]
    if not found:
        return
    tested, mark, rewards = max(found, key=lambda f: f[0].log_e - f[0].needed)
    canary, stable = (float(m) for m in rewards.means)
    most = float(rewards.most(math.exp(-tested.needed), cluster))
    figures = {
        "canary": canary,
        "stable": stable,
        "limit": float(tested.limit),
        "difference_at_most": most,
        "canary_rewards": float(rewards.canary),
        "stable_rewards": float(rewards.stable),
        "deviation": float(np.sqrt(rewards.variance())),
        **_e_figures(tested, mark),
    }
    sentence = (
        f"the canary's mean reward is {canary:.4g} ({float(rewards.canary):.0f} rewards), the stable policy's "
        f"{stable:.4g}; the limit is {float(tested.limit):.4g}"
    )
    sentence += f", and the difference is at most {most:.4g}" if proven else ": not proven yet"
    yield Finding("reward", sentence, figures), proven


def _e_figures(tested: trials.Tested, mark: Mark) -> dict[str, float]:
    """Evidence in logarithms (an e-value may have thousands of digits), and since when it was gathered."""
    return {"log_e": float(tested.log_e), "log_e_needed": tested.needed, "since": mark.time}


def _silence(evidence: Evidence, now: Observation, settings: CanarySettings, under: Setting) -> Iterator[Finding]:
    watch = settings.watch
    for what, patience in (("requests", watch.quiet_s), ("rewards", watch.reward_quiet_s)):
        if what == "rewards" and not under.live:
            continue
        for who in SUBSETS:
            begun = evidence.seen.get(f"{who} {what}", now.time)
            if what == "rewards":
                begun = max(begun, under.rewards_from)
            if now.time + now.age - begun >= patience:
                name = "canary" if who == "canary" else "stable policy"
                silence = text.duration(now.time + now.age - begun)
                yield Finding(f"no {what}", f"no {what} of the {name} for {silence}")


def _lacking(evidence: Evidence, settings: CanarySettings, under: Setting) -> str:
    needs = [("canary requests", settings.watch.requests)]
    if under.live:
        needs += [("canary rewards", settings.watch.rewards), ("stable rewards", settings.watch.rewards)]
    short = [(name, evidence.stage.get(name, 0.0), least) for name, least in needs]
    return ", ".join(f"{n:.0f} of {least} {name}" for name, n, least in short if n < least)


def _drift(evidence: Evidence, now: Observation, settings: CanarySettings, under: Setting) -> list[Finding]:
    """Of few requests, or of episodes that have all just begun, the distribution is always another one."""
    if evidence.stage.get("canary requests", 0.0) < settings.watch.requests or _just_begun(now, under):
        return []
    limit = settings.limits.drift
    far = {name: x for name, x in now.canary.drift.items() if math.isfinite(x) and x > limit}
    if not far:
        return []
    worst = max(far, key=lambda name: far[name])
    figures = {"limit": limit, "canary": far, "stable": {name: now.stable.drift.get(name) for name in far}}
    return [
        Finding(
            "drift",
            f"{len(far)} of the canary's features are distributed unlike its reference "
            f"(worst: {worst}, PSI {far[worst]:.2f}, limit {limit:g})",
            figures,
        )
    ]


def _just_begun(now: Observation, under: Setting) -> bool:
    """Whether the canary has had traffic for less time than an episode may take."""
    return under.live and now.time < under.rewards_from
