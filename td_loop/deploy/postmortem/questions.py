"""Four questions after a rollback. Pure: evidence in, answers out.

A canary's inputs, its noise, its shapes, the machine: each passes, fails, or cannot be checked, and says with
which figures. What was not observed is no pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from td_loop.deploy.observe.drift import LARGE
from td_loop.deploy.observe.engine import Engine
from td_loop.deploy.postmortem.artefact import Examined
from td_loop.deploy.postmortem.case import Case, p99_s

ENOUGH = 30
"""Requests of the canary from which on its drift says something."""
THROTTLED = 0.01
"""Share of the time in which a control group was throttled, from which on the machine is to blame."""
WAITING = 0.25
"""Share of the time of threads that could run, in which they waited for a core."""
SWITCHES = 10.0
"""Involuntary context switches a request: a small network is through before anybody wants its core."""


class Outcome(StrEnum):
    """Of a question."""

    PASS = "pass"
    FAIL = "fail"
    NOT_CHECKABLE = "not_checkable"


@dataclass(frozen=True)
class Answer:
    """To one question.

    Attributes:
        name: for programs.
        outcome: fail: this was so, and may be why.
        sentence: for people, with the figures that decided.
        figures: the same for programs.
        remedy: what to do; "" if nothing.
    """

    name: str
    outcome: Outcome
    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = ""


def answers(case: Case, examined: Examined, now: Engine) -> tuple[Answer, ...]:
    """All four, in the order of the requirements. `now`: the machine that the postmortem is written on."""
    return (
        data_shift(case, examined),
        exploration_noise(case, examined),
        tensor_shape(case, examined),
        hardware(case, now),
    )


def data_shift(case: Case, examined: Examined) -> Answer:
    """Do live inputs differ from those of training?"""
    name = "data_shift"
    drift = {} if case.canary is None else dict(case.canary.drift)
    usual = {} if case.stable is None else dict(case.stable.drift)
    beyond = [f"{column} = {value:.4g}" for column, value in examined.beyond[:3]]
    figures = {
        "canary": drift,
        "stable": usual,
        "limit": LARGE,
        "not_finite_beyond_training": [list(x) for x in examined.beyond],
    }
    if case.canary is None or case.canary.requests < ENOUGH or not drift:
        n = 0.0 if case.canary is None else case.canary.requests
        sentence = f"{n:.0f} requests of the canary, and drift of {len(drift)} features: too little to tell"
        return Answer(name, Outcome.NOT_CHECKABLE, sentence, figures, "let the canary have more traffic")
    shifted = sorted((f for f, x in drift.items() if x >= LARGE), key=lambda f: -drift[f])
    worst = max(drift, key=lambda f: drift[f])
    if not shifted:
        sentence = f"no feature of {len(drift)} has shifted; the most: {worst}, PSI {drift[worst]:.3f}"
        return Answer(name, Outcome.PASS, sentence, figures)
    both = [f for f in shifted if usual.get(f, 0.0) >= LARGE]
    sentence = f"{len(shifted)} of {len(drift)} features have shifted, {worst} the most (PSI {drift[worst]:.2f})"
    if both:
        sentence += f"; {len(both)} of them in the stable policy's traffic as well"
        remedy = "the live world is not that of the training data: gather data from it before training again"
    else:
        sentence += "; none of them in the stable policy's traffic"
        remedy = "see whether the canary leads games elsewhere, or the router gives it other clients"
    if beyond:
        sentence += f"; outside the training data the output is not finite ({', '.join(beyond)})"
    return Answer(name, Outcome.FAIL, sentence, figures, remedy)


def exploration_noise(case: Case, examined: Examined) -> Answer:
    """Do the canary's actions carry noise of training that was not turned off?"""
    name = "exploration_noise"
    replayed, differing = (case.canary.replayed, case.canary.differing) if case.canary else (0.0, 0.0)
    others = (case.stable.replayed, case.stable.differing) if case.stable else (0.0, 0.0)
    checks = [c for n in ("exploration noise", "determinism") if (c := (examined.checks or {}).get(n))]
    figures = {
        "replayed": replayed,
        "differing": differing,
        "stable_replayed": others[0],
        "stable_differing": others[1],
        **{c.name: c.figure for c in checks},
    }
    live = f"{differing:.0f} of {replayed:.0f} replayed states were answered differently"
    bad = [f"{c.name}: {c.figure}" for c in checks if not c.passed]
    if bad or differing > 0:
        sentence = "; ".join([*bad, live])
        remedy = "export the policy without its noise: no random operator, dropout off, the most likely option"
        if not bad and others[1] > 0:
            sentence += f", and {others[1]:.0f} of {others[0]:.0f} by the stable policy"
            remedy = "both policies differ, so look at what the server makes of a request before the network"
        return Answer(name, Outcome.FAIL, sentence, figures, remedy)
    if not checks and replayed == 0:
        sentence = f"no state was asked for twice, and the artefact cannot be examined: {examined.fault}"
        return Answer(name, Outcome.NOT_CHECKABLE, sentence, figures, "put the artefact back where it was")
    graph = "; ".join(c.figure for c in checks) if checks else f"the artefact cannot be examined: {examined.fault}"
    return Answer(name, Outcome.PASS, f"{graph}; {live}", figures)


def tensor_shape(case: Case, examined: Examined) -> Answer:
    """Do padding or sequence lengths change what the network sees, or is its output of another shape?"""
    name = "tensor_shape"
    fallbacks = {} if case.canary is None else dict(case.canary.fallbacks)
    invalid = sum(fallbacks.get(reason, 0.0) for reason in ("output", "error"))
    requests = 0.0 if case.canary is None else case.canary.requests
    made = examined.checks or {}
    is_noisy = "determinism" in made and not made["determinism"].passed
    # Of a network that draws random numbers, two answers differ whatever its padding is.
    wanted = ("output shape", "lengths") if is_noisy else ("output shape", "parity: stored", "padding", "lengths")
    checks = [c for n in wanted if (c := made.get(n))]
    figures = {"invalid_outputs": invalid, "requests": requests, **{c.name: c.figure for c in checks}}
    live = f"{invalid:.0f} of {requests:.0f} live outputs were invalid"
    bad = [f"{c.name}: {c.figure}" for c in checks if not c.passed]
    if bad:
        remedy = (
            "see to the mask in the network and to the shapes of the export; `td-loop deploy verify` shows both"
        )
        return Answer(name, Outcome.FAIL, "; ".join([*bad, live]), figures, remedy)
    if not checks:
        sentence = f"the artefact cannot be examined: {examined.fault}; {live}"
        return Answer(name, Outcome.NOT_CHECKABLE, sentence, figures, "put the artefact back where it was")
    fine = "; ".join(f"{c.name}: {c.figure}" for c in checks)
    if is_noisy:
        sentence = f"its noise hides what padding does ({fine}); {live}"
        return Answer(name, Outcome.NOT_CHECKABLE, sentence, figures, "turn the noise off, then verify it again")
    if invalid > 0:
        sentence = f"{live}, though shapes and padding are as they should be ({fine})"
        remedy = "the network itself gives NaN or fails for inputs that its reference cases do not have"
        if examined.beyond:
            column, value = examined.beyond[0]
            remedy += f": outside the training data, at {column} = {value:.4g} for one"
        return Answer(name, Outcome.PASS, sentence, figures, remedy)
    return Answer(name, Outcome.PASS, f"{fine}; {live}", figures)


def hardware(case: Case, now: Engine) -> Answer:
    """Was the machine short of cores, throttled or hot while the canary was watched?"""
    name, e, seconds = "hardware", case.engine, case.seconds
    requests = sum(c.requests for c in (case.stable, case.canary) if c is not None)
    figures: dict[str, Any] = {**e, "seconds": seconds, "requests": requests}
    said: list[str] = []
    bad: list[str] = []

    def judge(what: str, value: float, limit: float, text: str) -> None:
        figures[what] = value
        (bad if value > limit else said).append(text)

    if "throttled_s" in e and seconds > 0:
        share = e["throttled_s"] / seconds
        judge("throttled", share, THROTTLED, f"throttled {share:.1%} of the time")
    # It is counted in nanoseconds: exactly none is what servers tell whose kernel does not count.
    if e.get("run_queue_s", 0.0) > 0:
        share = e["run_queue_s"] / (e.get("cpu_s", 0.0) + e["run_queue_s"])
        judge("waiting", share, WAITING, f"threads waited for a core {share:.0%} of the time that they could run")
    if "involuntary" in e and requests > 0:
        each = e["involuntary"] / requests
        judge("switches", each, SWITCHES, f"{each:.1f} involuntary context switches a request")
    p99 = {s: p99_s(c) for s, c in (("stable", case.stable), ("canary", case.canary)) if c is not None}
    figures |= {f"p99_ms_{s}": None if x is None else 1e3 * x for s, x in p99.items()}
    figures |= {f"now_{k}": getattr(now, k) for k in ("thermal", "megahertz", "steal_s", "throttled_s")}
    slow = ", ".join(f"{s} {1e3 * x:g} ms" for s, x in p99.items() if x is not None)
    tail = [f"p99 at most: {slow}"] if slow else []
    if now.thermal is not None:
        tail.append(f"{now.thermal:.0f} thermal throttlings since this machine started")
    tail.append("policies run on the CPU: no GPU memory is in play")
    if bad:
        remedy = "give the servers more cores or fewer neighbours before the canary is blamed for its latency"
        return Answer(name, Outcome.FAIL, "; ".join([*bad, *tail]), figures, remedy)
    if not said:
        sentence = "; ".join(["the servers told nothing of processor time, switches or waits", *tail])
        return Answer(
            name, Outcome.NOT_CHECKABLE, sentence, figures, "let the source read the rl_engine_ counters"
        )
    return Answer(name, Outcome.PASS, "; ".join([*said, *tail]), figures)
