"""Samples, as Prometheus and the server's `/metrics` both have them, to an observation.

What is missing is never taken for zero: a subset without its counters is no answer, and an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from td_loop.deploy import names
from td_loop.deploy.canary.observation import Counts, Observation, SourceError
from td_loop.deploy.names import SUBSETS, Subset

ENGINE = {
    "cpu_s": (names.CPU_SECONDS, {}),
    "voluntary": (names.CONTEXT_SWITCHES, {"kind": "voluntary"}),
    "involuntary": (names.CONTEXT_SWITCHES, {"kind": "involuntary"}),
    "run_queue_s": (names.RUN_QUEUE_SECONDS, {}),
    "throttled_s": (names.THROTTLED_SECONDS, {}),
}
"""Field of `Observation.engine` -> sample and labels; a kernel may not tell all of them."""
OPTIONAL = (
    names.DRIFT,
    names.CHOICE_ENTROPY,
    names.POLICY_INFO,
    *dict.fromkeys(name for name, _ in ENGINE.values()),
)
"""What a server may have nothing to say of."""
PLAIN = {
    "requests": names.REQUESTS,
    "errors": names.ERRORS,
    "episodes": names.EPISODES,
    "entropy": f"{names.ENTROPY}_sum",
    "entropies": f"{names.ENTROPY}_count",
    "replayed": names.REPLAYED,
    "differing": names.NONDETERMINISM,
}
"""Field of `Counts` -> sample with the label "subset"."""
REWARDS = {"rewards": "count", "positive": "positive_sum", "negative": "negative_sum", "squares": "squares_sum"}
"""Field of `Counts` -> suffix of a reward's sample."""
BUCKETS = f"{names.DECISION_SECONDS}_bucket"


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a text format, or one series of an answer.

    Attributes:
        name: of the sample, suffix and all.
        labels: label -> value.
        value: what it is.
    """

    name: str
    labels: Mapping[str, str]
    value: float


def wanted() -> tuple[str, ...]:
    """Names of all samples that an observation is made of."""
    rewards = [f"{names.REWARD.format(subset=s)}_{suffix}" for s in SUBSETS for suffix in REWARDS.values()]
    return (*PLAIN.values(), names.FALLBACKS, BUCKETS, *rewards, *OPTIONAL)


def observation(samples: Iterable[Sample], *, time: float, age: float, instances: tuple[str, ...]) -> Observation:
    """What samples come to: those of several servers are added up, of gauges the largest is taken.

    Args:
        samples: of `wanted` names, others are passed over.
        time, age, instances: see `Observation`.

    Raises:
        SourceError: a counter is missing; the message names it.
    """
    found = list(samples)
    stable, canary = (_counts(found, subset) for subset in SUBSETS)
    return Observation(time, age, stable, canary, tuple(sorted(instances)), _engine(found))


def _engine(samples: list[Sample]) -> dict[str, float]:
    found: dict[str, float] = {}
    for field, (name, labels) in ENGINE.items():
        told = [s.value for s in samples if s.name == name and labels.items() <= s.labels.items()]
        if told and all(map(math.isfinite, told)):
            found[field] = math.fsum(told)
    return found


def _counts(samples: list[Sample], subset: Subset) -> Counts:
    mine = [s for s in samples if s.labels.get("subset") == subset]
    fields: dict[str, Any] = {field: _sum(mine, name, subset) for field, name in PLAIN.items()}
    prefix = names.REWARD.format(subset=subset)
    for field, suffix in REWARDS.items():
        fields[field] = _sum(samples, f"{prefix}_{suffix}", subset)
    _sum(mine, names.FALLBACKS, subset)
    fields["fallbacks"] = _by_label(mine, names.FALLBACKS, "reason")
    _sum(mine, BUCKETS, subset)
    buckets = _by_label(mine, BUCKETS, "le")
    fields["seconds"] = tuple(sorted((float(bound), n) for bound, n in buckets.items()))
    drift: dict[str, float] = {}
    for s in mine:
        if s.name == names.DRIFT and math.isfinite(s.value):  # NaN: too few states to tell
            feature = s.labels.get("feature", "")
            drift[feature] = max(s.value, drift.get(feature, s.value))
    hashes = {s.labels.get("sha256", "") for s in mine if s.name == names.POLICY_INFO and s.value}
    told = [s.value for s in mine if s.name == names.CHOICE_ENTROPY and math.isfinite(s.value)]
    fields["choice_entropy"] = max(told, default=None)
    return Counts(**fields, drift=drift, sha256=",".join(sorted(hashes)))


def _sum(samples: list[Sample], name: str, subset: Subset) -> float:
    values = [s.value for s in samples if s.name == name]
    if not values:
        raise SourceError(f"there is no {name} of the subset {subset}: no server, or not all that it should tell")
    return math.fsum(values) if all(map(math.isfinite, values)) else math.nan


def _by_label(samples: list[Sample], name: str, label: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for s in samples:
        if s.name == name:
            values.setdefault(s.labels.get(label, ""), []).append(s.value)
    return {key: math.fsum(xs) if all(map(math.isfinite, xs)) else math.nan for key, xs in values.items()}
