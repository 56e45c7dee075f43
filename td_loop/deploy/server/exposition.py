"""Counters as text, in Prometheus's exposition format 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from td_loop.deploy import names
from td_loop.deploy.names import SUBSETS, Subset
from td_loop.deploy.server.counters import CELLS, FAMILIES, Labels, samples

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(
    totals: list[float],
    weights: Mapping[Subset, float],
    artefacts: Mapping[Subset, str],
    choice_entropies: Mapping[Subset, float],
    drift: Mapping[Subset, Mapping[str, float]],
) -> bytes:
    """All metrics.

    Args:
        totals: of `Counters.totals`.
        weights: percent of new episodes by subset.
        artefacts: sha256 by subset; a subset without a policy is not in it.
        choice_entropies: of what was chosen, nats, by subset.
        drift: population stability index by subset and feature.
    """
    lines: list[str] = []
    for family in FAMILIES:
        # Readers that know OpenMetrics (prometheus_client's does) would add `_total` to other counters' names.
        counts_oddly = family.kind == "counter" and not family.name.endswith("_total")
        kind = "untyped" if counts_oddly else family.kind
        _family(lines, family.name, kind, family.help, samples(family, totals))
    for subset in SUBSETS:
        cells, name = CELLS[subset], names.REWARD.format(subset=subset) + "_sum"
        total = totals[cells.reward_positive] - totals[cells.reward_negative]
        _family(lines, name, "gauge", "What all rewards add up to; it may fall.", [(name, (), total)])
    for name, text, values in (
        (names.WEIGHT, "Percent of new episodes that go to the subset.", _by_subset(names.WEIGHT, weights)),
        (
            names.POLICY_INFO,
            "The artefact that answers for the subset.",
            [(names.POLICY_INFO, (("subset", s), ("sha256", sha)), 1.0) for s, sha in artefacts.items()],
        ),
        (
            names.CHOICE_ENTROPY,
            "Entropy of what was chosen in the last decisions, nats.",
            _by_subset(names.CHOICE_ENTROPY, choice_entropies),
        ),
        (
            names.DRIFT,
            "Population stability index of a feature against the artefact's reference.",
            [
                (names.DRIFT, (("subset", s), ("feature", feature)), x)
                for s, features in drift.items()
                for feature, x in features.items()
            ],
        ),
    ):
        _family(lines, name, "gauge", text, values)
    return ("\n".join(lines) + "\n").encode()


def _by_subset(name: str, values: Mapping[Subset, float]) -> list[tuple[str, Labels, float]]:
    return [(name, (("subset", subset),), x) for subset, x in values.items()]


def _family(
    lines: list[str], name: str, kind: str, text: str, values: Iterable[tuple[str, Labels, float]]
) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for sample, labels, value in values:
        shown = ",".join(f'{key}="{_escaped(x)}"' for key, x in labels)
        lines.append(f"{sample}{{{shown}}} {_number(value)}" if shown else f"{sample} {_number(value)}")


def _number(x: float) -> str:
    return "NaN" if math.isnan(x) else repr(float(x))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
