"""What the servers have counted of both subsets at one moment, and what was added between two moments.

All counters are cumulative and sums over every server process. Whoever reads them (`prometheus.py`, `window.py`)
says nothing of what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

from td_loop.deploy.names import Subset
from td_loop.errors import DataError, TdLoopError
from td_loop.files import as_float

Buckets = tuple[tuple[float, float], ...]
"""(upper bound in seconds, requests up to it), rising in both; the last bound is infinite."""


class SourceError(TdLoopError):
    """The counters cannot be had: who should tell them does not answer, or the answer is not whole."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Cumulative counters of one subset.

    Attributes:
        requests: decisions asked for.
        fallbacks: answers that the fallback gave, by reason.
        errors: requests answered with a 5xx status, or by nobody.
        episodes: episodes that the router gave to the subset.
        rewards: rewards of the policy's own answers; those of the fallback are in none of these.
        positive, negative: what rewards above and below zero add up to, both as numbers >= 0.
        squares: sum of squares of the rewards.
        seconds: histogram of the time from the request read to the answer written.
        entropy: sum of the marginal entropies of `entropies` decisions, nats.
        entropies: how many decisions that is.
        replayed: states that were asked for again.
        differing: those of them that were answered differently.
        drift: population stability index against the artefact's reference by feature; a gauge.
        sha256: of the artefact that answers; "" if it is not told.
        choice_entropy: of what was chosen over the recent window, nats; a gauge, None if it is not told.
    """

    requests: float
    fallbacks: Mapping[str, float]
    errors: float
    episodes: float
    rewards: float
    positive: float
    negative: float
    squares: float
    seconds: Buckets
    entropy: float = 0.0
    entropies: float = 0.0
    replayed: float = 0.0
    differing: float = 0.0
    drift: Mapping[str, float] = field(default_factory=dict)
    sha256: str = ""
    choice_entropy: float | None = None

    @property
    def counters(self) -> dict[str, float]:
        """All that may only rise, by name."""
        plain = ("requests", "errors", "episodes", "rewards", "positive", "negative", "squares", "entropy")
        return {
            **{name: getattr(self, name) for name in plain},
            **{name: getattr(self, name) for name in ("entropies", "replayed", "differing")},
            **{f"fallbacks, {reason}": n for reason, n in self.fallbacks.items()},
            **{f"seconds up to {bound:g}": n for bound, n in self.seconds},
        }

    def slower_than(self, limit: float) -> float:
        """Requests slower than the least bound that is not below `limit` (seconds): never more than there were."""
        total = self.seconds[-1][1] if self.seconds else 0.0
        return total - next((n for bound, n in self.seconds if bound >= limit * (1 - 1e-9)), total)

    def minus(self, before: Counts) -> Counts:
        """What was added since `before`; gauges stay as they are."""
        then = dict(before.seconds)
        return Counts(
            self.requests - before.requests,
            {reason: n - before.fallbacks.get(reason, 0.0) for reason, n in self.fallbacks.items()},
            self.errors - before.errors,
            self.episodes - before.episodes,
            self.rewards - before.rewards,
            self.positive - before.positive,
            self.negative - before.negative,
            self.squares - before.squares,
            tuple((bound, n - then.get(bound, 0.0)) for bound, n in self.seconds),
            self.entropy - before.entropy,
            self.entropies - before.entropies,
            self.replayed - before.replayed,
            self.differing - before.differing,
            self.drift,
            self.sha256,
            self.choice_entropy,
        )

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of `asdict` by way of JSON."""
        numbers = {k: as_float(v) for k, v in found.items() if k not in _TABLES}
        return cls(
            **numbers,
            fallbacks={k: as_float(v) for k, v in found["fallbacks"].items()},
            drift={k: as_float(v) for k, v in found["drift"].items()},
            seconds=tuple((as_float(bound), as_float(n)) for bound, n in found["seconds"]),
            sha256=str(found["sha256"]),
            choice_entropy=None if (x := found.get("choice_entropy")) is None else as_float(x),
        )


_ULPS = 1e-12
"""Sums of several processes may be added up in another order each time."""
_TABLES = ("fallbacks", "drift", "seconds", "sha256", "choice_entropy")


@dataclass(frozen=True, slots=True)
class Observation:
    """Both subsets at one moment.

    Attributes:
        time: when the counters stood so, seconds of the clock of whoever read them.
        age: how old they were when they were asked for, seconds.
        stable, canary: the subsets.
        instances: the servers (or what scrapes them calls them) whose counters are added up.
        engine: cumulative counters of the server processes, by the field of `observe.engine.Engine`; what they do
            not tell is not in it. No rule looks at them, the postmortem does.
    """

    time: float
    age: float
    stable: Counts
    canary: Counts
    instances: tuple[str, ...] = ()
    engine: Mapping[str, float] = field(default_factory=dict)

    def subset(self, which: Subset) -> Counts:
        """The counters of a subset."""
        return self.canary if which == "canary" else self.stable

    def fault(self, since: Observation | None = None) -> str:
        """Why nothing can be concluded from these counters, or from what was added `since`; "" if it can.

        A counter that fell, or another set of servers, means that sums cannot be compared: a server began anew.
        """
        subsets: tuple[Subset, ...] = ("stable", "canary")
        for which in subsets:
            now = self.subset(which).counters
            if strange := [name for name, x in now.items() if not math.isfinite(x) or x < 0]:
                return (
                    f"{which}: {', '.join(strange[:3])} {'is' if len(strange) == 1 else 'are'} no count (NaN, say)"
                )
            if since is None:
                continue
            before = since.subset(which).counters
            if fell := [name for name, x in before.items() if now.get(name, 0.0) < x * (1.0 - _ULPS)]:
                return f"{which}: {', '.join(fell[:3])} went backwards: a server was restarted"
        if since is not None and set(self.instances) != set(since.instances):
            changed = sorted(set(self.instances) ^ set(since.instances))
            return f"other servers are counted than before ({', '.join(changed[:3])})"
        return ""

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`.

        Raises:
            DataError: it is none.
        """
        try:
            return cls(
                as_float(found["time"]),
                as_float(found["age"]),
                Counts.from_json(found["stable"]),
                Counts.from_json(found["canary"]),
                tuple(map(str, found["instances"])),
                {k: as_float(v) for k, v in found.get("engine", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise DataError(f"is no observation ({e!r})") from e


class Source(Protocol):
    """Where observations come from."""

    def observe(self) -> Observation:
        """The counters as they stand now.

        Raises:
            SourceError: they cannot be had, or not wholly.
        """
        ...

    def close(self) -> None:
        """Give back connections."""
        ...
