"""The figures of a guard, by the names under which Prometheus has them.

td_guard_breaker_state{state="closed"}      1 for the state that the breaker is in, else 0
td_guard_locked                             1 when no retry is left
td_guard_attempt                            number of the attempt, from 0
td_guard_retries                            rollbacks that the breaker counts
td_guard_learning_rate_multiplier           1 / 2^retries
td_guard_step                               step of the last record
td_guard_records_total{health="healthy"}    records of this attempt, by what the detectors said of them
td_guard_trips_total                        how often the breaker opened, in the life of the folder
td_guard_snapshots{kind="stable"}           snapshots that are stable, and pending
td_guard_stable_step                        step of the newest stable snapshot
td_guard_faults_total{kind="telemetry"}     what went wrong and was survived, by its kind
td_guard_silent_seconds                     since the last record
td_guard_telemetry{metric="kl"}             values of the last record that had any
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from td_loop.guard import snapshots as rules
from td_loop.guard.breaker import Breaker, State
from td_loop.guard.snapshots import Snapshot
from td_loop.guard.watch import Watch


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric.

    Attributes:
        name: without `td_guard_`.
        help: what it is.
        values: by the value of its label; of one without a label by "".
        label: name of the label; empty for none.
    """

    name: str
    help: str
    values: Mapping[str, float]
    label: str = ""

    @property
    def counts(self) -> bool:
        """Whether it only grows."""
        return self.name.endswith("_total")


def figures(
    breaker: Breaker,
    watch: Watch,
    values: Mapping[str, float],
    snapshots: Sequence[Snapshot],
    faults: Mapping[str, int],
    trips: int,
    silent_s: float,
) -> tuple[Figure, ...]:
    """All figures of one moment. What is not known is left out."""
    stable, waiting = rules.stable(snapshots), rules.pending(snapshots)
    return (
        Figure("breaker_state", "1 for the state of the breaker", {s: s is breaker.state for s in State}, "state"),
        _single("locked", "1 when no retry is left", breaker.locked),
        _single("attempt", "Number of the attempt, from 0", watch.attempt),
        _single("retries", "Rollbacks that the breaker counts", breaker.retries),
        _single("learning_rate_multiplier", "1 / 2^retries", breaker.multiplier),
        _single("step", "Step of the last record", watch.last),
        Figure("records_total", "Records of this attempt by their health", dict(watch.steps), "health"),
        _single("trips_total", "How often the breaker opened, in the life of the folder", trips),
        Figure("snapshots", "Snapshots by kind", {"stable": len(stable), "pending": len(waiting)}, "kind"),
        _single("stable_step", "Step of the newest stable snapshot", stable[0].step if stable else None),
        Figure("faults_total", "What went wrong and was survived, by its kind", dict(faults), "kind"),
        _single("silent_seconds", "Seconds since the last record", silent_s),
        Figure("telemetry", "Values of the last record that had any", dict(values), "metric"),
    )


def _single(name: str, text: str, value: float | None) -> Figure:
    return Figure(name, text, {} if value is None else {"": value})
