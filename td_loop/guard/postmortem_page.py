"""The postmortem as a page of Markdown."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from td_loop.guard import plot
from td_loop.guard.audits import Audit
from td_loop.guard.breaker import Transition
from td_loop.guard.breaker_log import NAME
from td_loop.guard.examine import LISTED, SHOWN, Postmortem, shown

_TITLES = {
    "replay_buffer": "Replay buffer: contamination, invalid rewards",
    "gradient_clip": "Gradient clipping: norm against observed norms",
    "advantage_normalisation": "Advantage normalisation: zero deviation",
    "reward_scale": "Reward scale: drift",
    "rate_decay": "Learning rate: decay that ended early",
}


def markdown(found: Postmortem, *, picture: str | None) -> str:
    """The page.

    Args:
        found: what there is to say.
        picture: file name of the plot beside it; None for none.
    """
    lines = [f"# Postmortem of {found.folder.resolve().name}", "", _summary(found), ""]
    lines += ["## What happened", "", *_transitions(found.transitions), ""]
    lines += ["## Around the trip" if found.trip else "## The last records", "", *_around(found)]
    if picture:
        lines += ["", f"![telemetry]({picture})"]
    lines += ["", "## Audits", "", *_audits(found.audits), ""]
    lines += ["## What this rests on", "", *_sources(found), ""]
    return "\n".join(lines)


def _summary(found: Postmortem) -> str:
    b = found.breaker
    state = f"The breaker is {str(b.state).replace('_', '-')}"
    if b.locked:
        state += f" and locked after {b.retries} {'retry' if b.retries == 1 else 'retries'}"
    tripped = "Nothing has tripped." if found.trip is None else f"Last trip: {found.trip.reason}."
    if found.trip is not None and found.trip.step is not None:
        tripped = f"Last trip, at step {found.trip.step} of attempt {found.trip.attempt}: {found.trip.reason}."
    stable = (
        "no stable snapshot" if found.stable_step is None else f"a stable snapshot of step {found.stable_step}"
    )
    return f"{state}. {tripped} There is {stable}. {len(found.failed)} of {len(found.audits)} audits failed."


def _transitions(transitions: Sequence[Transition]) -> list[str]:
    if not transitions:
        return ["No transition is on record."]
    rows = [
        (
            f"{datetime.datetime.fromtimestamp(x.t, datetime.UTC):%Y-%m-%d %H:%M:%S}",
            str(x.attempt),
            "" if x.step is None else str(x.step),
            str(x.event),
            f"{x.before} → {x.after}{' (locked)' if x.locked else ''}",
            x.reason,
        )
        for x in transitions
    ]
    return _table(("UTC", "attempt", "step", "event", "state", "reason"), rows)


def _around(found: Postmortem) -> list[str]:
    series_of = shown(found)
    if found.history is None or not series_of:
        return [*_from_evidence(found.trip)]
    rows = []
    for name, series in series_of.items():
        good = series.finite.values
        low, high = (f"{good.min():.4g}", f"{good.max():.4g}") if len(good) else ("", "")
        scale = " (log)" if plot.logarithmic(series.values[-plot.WIDTH :].tolist()) else ""
        line = f"`{plot.sparkline(series.values.tolist())}`{scale}"
        rows.append((name, line, low, high, f"{series.values[-1]:.4g}"))
    last = [{"step": r.step, **r.values} for r in list(found.history.records)[-LISTED:]]
    return [
        f"The bars are the last {plot.WIDTH} records; × is a value that is not finite. Lowest and highest are of "
        f"the last {SHOWN}.",
        "",
        *_table(("metric", "up to the trip", "lowest", "highest", "last"), rows),
        "",
        *_records(last),
    ]


def _from_evidence(trip: Transition | None) -> list[str]:
    recent = trip.evidence.get("recent") if trip else None
    rows = [r for r in recent if isinstance(r, Mapping)] if isinstance(recent, list) else []
    if not rows:
        return ["There is no telemetry of this attempt."]
    return ["No telemetry file of this attempt; these records are from the breaker's log.", "", *_records(rows)]


def _records(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [
        tuple(f"{row[n]:.4g}" if isinstance(row.get(n), float) else str(row.get(n, "")) for n in names)
        for row in rows
    ]
    return _table(tuple(names), cells)


def _audits(audits: Sequence[Audit]) -> list[str]:
    rows = [(_TITLES[a.name], str(a.outcome).replace("_", " "), a.sentence) for a in audits]
    todo = [f"- {_TITLES[a.name].partition(':')[0]}: {a.remedy}." for a in audits if a.remedy]
    return [*_table(("audit", "outcome", "found"), rows), *(["", "To do:", "", *todo] if todo else [])]


def _sources(found: Postmortem) -> list[str]:
    h = found.history
    lines = [f"- {NAME}: {len(found.transitions)} transitions"]
    if h is None:
        return [*lines, "- no telemetry file of the attempt"]
    parts = [f"{h.total} records"]
    if h.total > len(h.records):
        parts.append(f"the last {len(h.records)} of them were examined")
    if h.bad:
        parts.append(f"{h.bad} lines that are no records, the first at {h.first_bad}")
    if h.foreign:
        parts.append(f"{h.foreign} records of other attempts or after the trip, which do not count")
    return [*lines, f"- {h.path.name}: {', '.join(parts)}"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(' '.join(c.split()).replace('|', chr(92) + '|') for c in cells)} |"

    return [line(head), line(["---"] * len(head)), *(line(row) for row in rows)]
