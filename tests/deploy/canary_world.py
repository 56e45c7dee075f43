"""A world for the canary's controller: a clock that jumps, drawn traffic, a router and a server that may fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.deploy.canary import store
from td_loop.deploy.canary.controller import Controller
from td_loop.deploy.canary.machine import Release
from td_loop.deploy.canary.observation import Counts, Observation, SourceError
from td_loop.deploy.canary.serving import Policies, ServingError
from td_loop.deploy.canary.settings import CanarySettings
from td_loop.deploy.canary.webhook import Webhook
from td_loop.deploy.canary.world import World
from td_loop.deploy.names import SUBSETS, Subset
from td_loop.deploy.routing.contract import RouterError, whole_steps

START = 1_000_000.0
BOUNDS = (0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, float("inf"))
QUICK: dict[str, dict[str, Any]] = {
    "stages": {"shadow_s": 40.0, "canary_s": 100.0, "ramp_s": 300.0, "step_s": 20.0},
    "watch": {"requests": 50, "poll_s": 10.0},
    "limits": {"settle_s": 10.0},
}
"""Settings of a release of about 8 minutes: 5 % from second 40 on, the ramp from about 160 to 470."""


@dataclass(frozen=True)
class Policy:
    """How a policy behaves.

    Attributes:
        reward: mean of rewards with a standard deviation of 1.
        fallback: share of requests that the fallback answers, for `why`.
        error: share of requests answered with a 5xx status.
        slow: share of requests that take 30 ms.
        entropy: of its decisions, nats.
        differing: share of replayed states that it answers differently.
    """

    reward: float = 2.0
    fallback: float = 0.0005
    why: str = "timeout"
    error: float = 0.0
    slow: float = 0.001
    entropy: float = 1.2
    differing: float = 0.0


@dataclass
class Tally:
    """Counters of a subset."""

    requests: float = 0
    fallbacks: dict[str, float] = field(default_factory=lambda: {"timeout": 0.0, "output": 0.0})
    errors: float = 0
    episodes: float = 0
    rewards: float = 0
    positive: float = 0
    negative: float = 0
    squares: float = 0
    quick: float = 0
    slow: float = 0
    entropy: float = 0
    replayed: float = 0
    differing: float = 0

    def counts(self, sha256: str) -> Counts:
        whole = self.quick + self.slow
        seconds = tuple((b, whole if b >= 0.05 else self.quick) for b in BOUNDS)
        return Counts(
            self.requests,
            dict(self.fallbacks),
            self.errors,
            self.episodes,
            self.rewards,
            self.positive,
            self.negative,
            self.squares,
            seconds,
            self.entropy,
            self.requests,
            self.replayed,
            self.differing,
            sha256=sha256,
        )


class Street:
    """Requests, a clock that moves them, and whatever was arranged to happen at a time."""

    def __init__(self, policies: Mapping[str, Policy], stable: str, rate: float = 10.0, seed: int = 0) -> None:
        self.policies, self.rate = dict(policies), rate
        self.now_s = START
        self.rng = np.random.default_rng(seed)
        self.router, self.serving = FakeRouter(), FakeServing(stable, self)
        self.router.street = self
        self.tally = {subset: Tally() for subset in SUBSETS}
        self.answered: dict[str, float] = dict.fromkeys(policies, 0.0)
        self.plans: list[tuple[float, Callable[[], object]]] = []
        self.spoil: Callable[[Observation], Observation] = lambda o: o
        self.source_down = False
        self.biased = 0.0
        """Episodes of the canary that get lost, as a share."""

    # --- clock -----------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        until = self.now_s + seconds
        while self.plans and self.plans[0][0] <= until:
            at, what = self.plans.pop(0)
            self._drive(at - self.now_s)
            what()
        self._drive(until - self.now_s)

    def at(self, seconds: float, what: Callable[[], object]) -> None:
        """Have something happen so many seconds after the start."""
        self.plans = sorted([*self.plans, (START + seconds, what)], key=lambda p: p[0])

    def _drive(self, seconds: float) -> None:
        if seconds <= 0:
            return
        self.now_s += seconds
        n = int(self.rng.poisson(self.rate * seconds))
        weight = self.router.weight / 100.0 if self.serving.canary and not self.serving.shadow else 0.0
        n_canary = int(self.rng.binomial(n, weight))
        self._answer("stable", self.serving.stable, n - n_canary, earns=True)
        if self.serving.canary:
            shadowed = n if self.serving.shadow else n_canary
            self._answer("canary", self.serving.canary, shadowed, earns=not self.serving.shadow)

    def _answer(self, subset: Subset, sha256: str, n: int, *, earns: bool) -> None:
        policy, tally, rng = self.policies[sha256], self.tally[subset], self.rng
        failed = int(rng.binomial(n, policy.fallback))
        tally.requests += n
        tally.fallbacks[policy.why] = tally.fallbacks.get(policy.why, 0.0) + failed
        tally.errors += rng.binomial(n, policy.error)
        slow = rng.binomial(n, policy.slow)
        tally.quick += n - slow
        tally.slow += slow
        tally.entropy += n * policy.entropy
        replayed = rng.binomial(n, 0.2)
        tally.replayed += replayed
        tally.differing += rng.binomial(replayed, policy.differing)
        if not earns:
            return
        self.answered[sha256] += n
        tally.episodes += rng.binomial(n, 1.0 - self.biased) if subset == "canary" else n
        x = policy.reward + rng.standard_normal(n - failed)
        tally.rewards += len(x)
        tally.positive += x[x > 0].sum()
        tally.negative += -x[x < 0].sum()
        tally.squares += (x**2).sum()

    # --- source ----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        if self.source_down:
            raise SourceError("http://127.0.0.1:9090 does not answer: connection refused")
        s = self.serving
        stable, canary = self.tally["stable"].counts(s.stable), self.tally["canary"].counts(s.canary)
        return self.spoil(Observation(self.now_s, 0.0, stable, canary, ("a",)))

    def close(self) -> None: ...

    def restart(self) -> None:
        """The server begins anew: all counters are 0."""
        self.tally = {subset: Tally() for subset in SUBSETS}


class FakeRouter:
    """A router. `down` makes every call fail."""

    def __init__(self, step: float = 0.01) -> None:
        self.weight, self.down, self._step = 0.0, False, step
        self.apart = False
        self.set_to: list[float] = []
        self.street: Street | None = None

    @property
    def step(self) -> float:
        return self._step

    def read(self) -> float:
        if self.down:
            raise RouterError("the router does not answer")
        return self.weight

    def set(self, canary: float) -> float:
        if self.down:
            raise RouterError("the router does not answer")
        self.weight = whole_steps(canary, self._step)
        self.set_to.append(self.weight)
        return self.weight

    def close(self) -> None: ...


class FakeServing:
    """A server. Artefacts are found by the last part of their path, which is their hash."""

    def __init__(self, stable: str, street: Street) -> None:
        self.stable, self.canary, self.shadow, self.down = stable, "", False, False
        self.loads = 0
        self._street = street

    def _check(self) -> None:
        if self.down:
            raise ServingError("the server does not answer")

    def policies(self) -> Policies:
        self._check()
        return Policies(self.stable, self.canary, self.shadow)

    def load_canary(self, path: str, *, shadow: bool) -> None:
        self._check()
        if Path(path).name not in self._street.policies:
            raise ServingError(f"{path}: no such file", is_final=True)
        self.canary, self.shadow = Path(path).name, shadow
        self.loads += 1

    def promote(self, sha256: str) -> None:
        self._check()
        assert sha256 == self.canary
        self.stable, self.canary = self.canary, ""

    def unload_canary(self) -> None:
        self._check()
        self.canary = ""


class Heard:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def progress(self, line: str) -> None:
        self.shown.append(line)


@dataclass
class Bench:
    """A street, and controllers on it that come and go."""

    folder: Path
    street: Street
    settings: CanarySettings = field(default_factory=lambda: CanarySettings.from_mapping(QUICK))
    heard: Heard = field(default_factory=Heard)
    postmortems: list[store.Line] = field(default_factory=list)
    config: Path | None = None

    def world(self) -> World:
        def postmortem(_folder: Path, line: store.Line) -> None:
            self.postmortems.append(line)

        return World(
            self.folder,
            self.street.router,
            self.street,
            self.street.serving,
            Webhook(self.settings.webhook),
            self.street,
            self.heard,
            postmortem,
            self.config,
        )

    def begin(self, sha256: str) -> Controller:
        """A controller of a release that begins."""
        lines = store.read_audit(self.folder)
        number, seq = (lines[-1].release.number + 1, lines[-1].seq + 1) if lines else (1, 1)
        return Controller(self.world(), self.settings, Release(number, sha256, f"/policies/{sha256}", seq))

    def resume(self) -> Controller | None:
        """A controller that takes over."""
        return Controller.resumed(self.world())

    def lines(self) -> list[store.Line]:
        return store.read_audit(self.folder)

    def events(self) -> list[str]:
        """What the audit log tells of, weights and notes left out."""
        return [
            f"{x.event} {x.release.stage}" for x in self.lines() if x.event not in ("weigh", "note", "resumed")
        ]

    def triggers(self) -> list[str]:
        """Triggers of the rollback, the first the deepest."""
        cause = next(x for x in reversed(self.lines()) if x.event == "roll_back")
        return list(cause.evidence["triggers"])


GOOD, SAME, BAD = "a" * 64, "b" * 64, "c" * 64


def bench(folder: Path, canary: Policy | None = None, **street: Any) -> Bench:
    """A street whose stable policy is GOOD, with SAME, which is just as good, and BAD, which is `canary`."""
    stable = Policy()
    policies = {GOOD: stable, SAME: replace(stable), BAD: canary or stable}
    return Bench(folder, Street(policies, GOOD, **street))
