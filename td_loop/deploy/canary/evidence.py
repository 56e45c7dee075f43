"""What has been counted in a release so far: a value that grows with each observation, and survives as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from td_loop.deploy.canary.observation import Counts, Observation
from td_loop.deploy.canary.sequential import MORE, OTHER, DifferenceSums, FloatArray, ShareSums
from td_loop.deploy.canary.settings import CanarySettings
from td_loop.errors import DataError

MODEL_REASONS = ("error", "output", "illegal")
"""Reasons for a fallback that the model itself gave, rather than the clock."""
RATIO_SETTLE_S = 2.0
"""Episodes of so many seconds after a change of the weights are not held against them."""
KEPT = 24
"""Tests that go on at the same time; beside the first, the newest."""
_STRATUM = 3.0
"""Rewards of each subset that a stratum has at least: fewer would waste those of the other."""

Measure = Callable[[Counts], float]


@dataclass(frozen=True)
class Rate:
    """Events among trials, compared between the subsets.

    Attributes:
        name: of the trigger.
        events, trials: what of the counters.
        limit: the share from which on it counts.
        what: a few words, for sentences: "the fallback's answers".
    """

    name: str
    events: Measure
    trials: Measure
    limit: float
    what: str


def rates(settings: CanarySettings) -> tuple[Rate, ...]:
    """The rates that are watched, that of the deepest cause first."""
    limits = settings.limits
    slow = limits.p99_ms / 1000.0
    return (
        Rate(
            "output",
            lambda c: sum(n for reason, n in c.fallbacks.items() if reason in MODEL_REASONS),
            lambda c: c.requests,
            limits.output,
            "invalid or illegal outputs",
        ),
        Rate("error", lambda c: c.errors, lambda c: c.requests, limits.error, "5xx answers, or none,"),
        Rate(
            "latency",
            lambda c: c.slower_than(slow),
            lambda c: c.seconds[-1][1] if c.seconds else 0.0,
            0.01,
            f"answers slower than {limits.p99_ms:g} ms",
        ),
        Rate(
            "nondeterminism",
            lambda c: c.differing,
            lambda c: c.replayed,
            limits.differing,
            "identical states answered differently",
        ),
        Rate(
            "fallback",
            lambda c: sum(c.fallbacks.values()),
            lambda c: c.requests,
            limits.fallback,
            "the fallback's answers",
        ),
    )


@dataclass(frozen=True)
class Sums:
    """What the tests need of a stretch of time.

    Attributes:
        rewards: of closed strata.
        rates: by name.
        ratio: episodes of both subsets, against the router's weight.
        entropy: f64[4] sum and number of the canary's entropies, and of the stable policy's.
    """

    rewards: DifferenceSums = field(default_factory=DifferenceSums.zero)
    rates: Mapping[str, ShareSums] = field(default_factory=dict)
    ratio: ShareSums = field(default_factory=lambda: ShareSums.zero(OTHER))
    entropy: FloatArray = field(default_factory=lambda: np.zeros(4))

    def since(self, mark: Self) -> Self:
        """What came after `mark`, an earlier value."""
        return type(self)(
            self.rewards.since(mark.rewards),
            {name: s.since(mark.rates[name]) if name in mark.rates else s for name, s in self.rates.items()},
            self.ratio.since(mark.ratio),
            self.entropy - mark.entropy,
        )

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "rewards": _as_lists(self.rewards),
            "rates": {name: _as_lists(s) for name, s in self.rates.items()},
            "ratio": _as_lists(self.ratio),
            "entropy": self.entropy.tolist(),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`."""
        return cls(
            _from_lists(DifferenceSums, found["rewards"]),
            {name: _from_lists(ShareSums, s) for name, s in found["rates"].items()},
            _from_lists(ShareSums, found["ratio"]),
            np.array(found["entropy"], float),
        )


def _as_lists(sums: DifferenceSums | ShareSums) -> list[Any]:
    return [getattr(sums, f.name).tolist() for f in fields(sums)]


def _from_lists(kind: Any, found: Any) -> Any:
    return kind(*(np.array(x, float) for x in found))


@dataclass(frozen=True)
class Mark:
    """Where a test began.

    Attributes:
        start: its number in the release, from 0.
        time: when, on the clock of the observations.
        sums: of everything before.
    """

    start: int
    time: float
    sums: Sums


@dataclass(frozen=True)
class Setting:
    """What held while an interval was observed.

    Attributes:
        live: whether the canary gets traffic; in shadow it earns no rewards and has no episodes.
        weight: its percentage.
        since: when the weight was set; before, nothing is held against it.
        rewards_from: rewards count from then on.
    """

    live: bool
    weight: float
    since: float
    rewards_from: float


@dataclass(frozen=True)
class Evidence:
    """All that is known of a stretch of stages without and with traffic, respectively.

    Attributes:
        last: the observation before; None before the first.
        reset: why the last two observations could not be compared; "" if they could.
        sums: since the start.
        stratum: f64[2, 3] rewards of the open stratum: number, sum, squares of canary and stable.
        marks: the tests that are under way.
        started: tests that were begun in the whole release.
        seen: when last a request or reward came, by "canary requests" and so on.
        stage: requests of the canary, rewards of both, since the stage began.
        step: requests of the canary since the weight was set.
    """

    last: Observation | None = None
    reset: str = ""
    sums: Sums = field(default_factory=Sums)
    stratum: FloatArray = field(default_factory=lambda: np.zeros((2, 3)))
    marks: tuple[Mark, ...] = ()
    started: int = 0
    seen: Mapping[str, float] = field(default_factory=dict)
    stage: Mapping[str, float] = field(default_factory=dict)
    step: float = 0.0

    def next_stage(self, live: bool, was_live: bool) -> Evidence:
        """What the next stage begins with. When traffic begins, so do all tests, as the next in number."""
        if live == was_live:
            return replace(self, stage={}, step=0.0)
        return Evidence(last=self.last, started=self.started)

    def take(self, now: Observation, settings: CanarySettings, under: Setting) -> Evidence:
        """The evidence after one more observation, which has no fault of its own.

        What came between is counted if both can be compared. If not, it is lost, and counting goes on from here.
        """
        before = self.last
        if before is not None and now.time == before.time:
            return self
        fault = "" if before is None else now.fault(before)
        if before is not None and now.time < before.time:  # else nothing would be counted until it has caught up
            fault = fault or "the clock of the counters went back"
        if before is None or fault:
            seen = {f"{who} {what}": now.time for who in _WHO for what in _WHAT}
            seen |= {key: min(t, now.time) for key, t in self.seen.items()}
            return replace(self, last=now, reset=fault, seen=seen)
        canary, stable = now.canary.minus(before.canary), now.stable.minus(before.stable)
        marks, started = self.marks, self.started
        if not marks or before.time - marks[-1].time >= settings.watch.window_s:
            marks = (*marks, Mark(started, before.time, self.sums))
            started += 1
            if len(marks) > KEPT:
                marks = (marks[0], *marks[-KEPT + 1 :])
        counts_rewards = under.live and before.time >= under.rewards_from
        sums, stratum = self._add(canary, stable, settings, under, before.time, counts_rewards)
        pairs = {"canary": canary, "stable": stable}
        seen = {
            f"{who} {what}": now.time if getattr(c, what) > 0 else self.seen.get(f"{who} {what}", now.time)
            for who, c in pairs.items()
            for what in _WHAT
        }
        rewards = {f"{who} rewards": c.rewards if counts_rewards else 0.0 for who, c in pairs.items()}
        added = {"canary requests": canary.requests, **rewards}
        stage = {name: self.stage.get(name, 0.0) + n for name, n in added.items()}
        tried = canary.requests if before.time >= under.since else 0.0
        return Evidence(now, "", sums, stratum, marks, started, seen, stage, self.step + tried)

    def _add(
        self, canary: Counts, stable: Counts, settings: CanarySettings, under: Setting, since: float, rewards: bool
    ) -> tuple[Sums, FloatArray]:
        """Sums and open stratum after what was added since the time `since`."""
        sums, stratum = self.sums, self.stratum
        difference = sums.rewards
        if rewards:
            stratum = stratum + np.array(
                [[c.rewards, c.positive - c.negative, c.squares] for c in (canary, stable)]
            )
            if min(stratum[:, 0]) >= _STRATUM:
                difference = difference.add(tuple(stratum[0]), tuple(stratum[1]))
                stratum = np.zeros((2, 3))
        shares = {
            rate.name: sums.rates.get(rate.name, ShareSums.zero(MORE)).add_events(
                MORE, _pair(rate, canary), _pair(rate, stable)
            )
            for rate in rates(settings)
        }
        ratio = sums.ratio
        if under.live and since >= under.since + RATIO_SETTLE_S:
            ratio = ratio.add_draws(
                OTHER, *map(np.asarray, (under.weight / 100.0, canary.episodes, stable.episodes))
            )
        entropy = sums.entropy + np.array([canary.entropy, canary.entropies, stable.entropy, stable.entropies])
        return Sums(difference, shares, ratio, entropy), stratum

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "last": None if self.last is None else self.last.as_json(),
            "reset": self.reset,
            "sums": self.sums.as_json(),
            "stratum": self.stratum.tolist(),
            "marks": [{"start": m.start, "time": m.time, "sums": m.sums.as_json()} for m in self.marks],
            "started": self.started,
            "seen": dict(self.seen),
            "stage": dict(self.stage),
            "step": self.step,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`.

        Raises:
            DataError: it is none.
        """
        try:
            return cls(
                None if found["last"] is None else Observation.from_json(found["last"]),
                str(found["reset"]),
                Sums.from_json(found["sums"]),
                np.array(found["stratum"], float).reshape(2, 3),
                tuple(Mark(int(m["start"]), float(m["time"]), Sums.from_json(m["sums"])) for m in found["marks"]),
                int(found["started"]),
                {str(k): float(v) for k, v in found["seen"].items()},
                {str(k): float(v) for k, v in found["stage"].items()},
                float(found["step"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise DataError(f"is no evidence of a canary ({e!r})") from e


_WHO = ("canary", "stable")
_WHAT = ("requests", "rewards")


def _pair(rate: Rate, counts: Counts) -> tuple[FloatArray, FloatArray]:
    return np.asarray(rate.events(counts)), np.asarray(rate.trials(counts))
