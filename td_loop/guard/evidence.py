"""Why training was stopped, as data for the log and the postmortem: findings, and the last records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from td_loop.guard.health import Finding
from td_loop.guard.record import Record

RECENT = 10
"""Records before a trip that the log keeps: a supervisor hands over a `deque(maxlen=RECENT)`."""


def evidence(findings: Iterable[Finding], recent: Iterable[Record] = ()) -> dict[str, Any]:
    """JSON data: the findings, the one that trips first, and the last records.

    Args:
        findings: those that were sick; all others only tell that nothing was wrong.
        recent: the last records, oldest first; the last one is what tripped.
    """
    ranked = sorted(findings, key=lambda f: not f.trips)
    return {"findings": [_finding(f) for f in ranked], "recent": [_record(r) for r in list(recent)[-RECENT:]]}


def _finding(f: Finding) -> dict[str, Any]:
    return {"detector": f.detector, "trips": f.trips, "value": f.value, "limit": f.limit, "why": f.why}


def _record(r: Record) -> Mapping[str, Any]:
    return {"step": r.step, **r.values}
