"""Where a guarded run stands, and how it came there: read from its folder, which is left as it is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from td_loop.errors import DataError
from td_loop.files import read_json
from td_loop.guard.breaker import Event, Transition, replay
from td_loop.guard.breaker_log import NAME as LOG
from td_loop.guard.breaker_log import read_log
from td_loop.guard.record import METRICS
from td_loop.guard.snapshots import Snapshot, from_json
from td_loop.guard.state import read_state
from td_loop.guard.store import ACTIVE, DESCRIPTION, LOCK, QUARANTINE, SNAPSHOTS
from td_loop.lock import holder
from td_loop.text import WIDTH, duration, size, table

Json = dict[str, Any]


def status(folder: Path) -> Json:
    """Where the run of a guard's folder stands.

    Raises:
        DataError: no guard has worked there, or a file of it is damaged.
    """
    transitions = _transitions(folder)
    breaker = replay(transitions)
    saved, owner = read_state(folder), holder(folder / LOCK)
    watch: Mapping[str, Any] = {} if saved is None else saved.watch
    kept = _snapshots(folder / SNAPSHOTS)
    fenced = list((folder / QUARANTINE).iterdir()) if (folder / QUARANTINE).is_dir() else []
    opened = _last_trip(transitions)
    return {
        "folder": str(folder),
        "running": None if owner is None else {"who": owner.who, "since": owner.since},
        "breaker": {
            "state": breaker.state,
            "locked": breaker.locked,
            "retries": breaker.retries,
            "learning_rate_multiplier": breaker.multiplier,
            "since": transitions[-1].t if transitions else None,
        },
        "attempt": breaker.attempt,
        "last_trip": opened,
        "telemetry": None
        if saved is None
        else {
            "step": watch.get("last"),
            "health": watch.get("health"),
            "steps": watch.get("steps"),
            "values": dict(saved.values),
            "saved": saved.time,
            "address": saved.telemetry,
        },
        "snapshots": [_snapshot(s, watch.get("counts", {})) for s in kept],
        "active": _active(folder, kept),
        "quarantine": {"entries": len(fenced), "bytes": sum(map(_bytes, fenced))},
        "faults": {} if saved is None else dict(saved.faults),
    }


def status_text(found: Json) -> str:
    """The same for people: one screen, 80 columns."""
    b, t, q = found["breaker"], found["telemetry"], found["quarantine"]
    running = found["running"]
    state = b["state"].replace("_", "-") + (", locked" if b["locked"] else "")
    rate = f"learning rate x {b['learning_rate_multiplier']:g}"
    lines = [
        f"guard in {found['folder']}",
        "  at work     " + ("nobody" if running is None else running["who"]),
        f"  breaker     {state}; attempt {found['attempt']}, {_retries(b['retries'])}, {rate}",
    ]
    if found["last_trip"] is not None:
        trip = found["last_trip"]
        lines.append(f"  last trip   step {_or_dash(trip['step'])}, {_when(trip['t'])}: {trip['reason']}")
    if t is None:
        lines.append("  telemetry   none yet")
    else:
        counts = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in t["steps"].items())
        lines.append(
            f"  telemetry   step {_or_dash(t['step'])}, {t['health']}, {_ago(t['saved'])}; records: {counts}"
        )
        values = [f"{name} {t['values'][name]:.3g}" for name in METRICS if name in t["values"]]
        if values:
            lines.append("              " + "  ".join(values))
    lines += _snapshot_lines(found["snapshots"], found["active"])
    if q["entries"]:
        lines.append(f"  quarantine  {q['entries']} entries, {size(q['bytes'])}; nothing there is ever deleted")
    if found["faults"]:
        lines.append("  warnings    " + ", ".join(f"{kind} {n}" for kind, n in sorted(found["faults"].items())))
    if b["locked"]:
        lines.append("  locked: see `td-loop guard postmortem`, then `td-loop guard reset`")
    return "\n".join(_cut(line) for line in lines)


def history(folder: Path) -> list[Json]:
    """Every transition of the breaker, oldest first.

    Raises:
        DataError: no guard has worked in the folder, or its record is damaged.
    """
    return [t.as_json() for t in _transitions(folder)]


def history_text(found: list[Json]) -> str:
    """The same for people, 80 columns."""
    if not found:
        return "the breaker has never left its first state: closed"
    rows = [
        [_when(t["t"]), str(t["attempt"]), _or_dash(t["step"]), t["event"], t["to"].replace("_", "-"), t["reason"]]
        for t in found
    ]
    head = ["when", "attempt", "step", "event", "breaker", "reason"]
    return "\n".join(_cut(line) for line in table(head, rows, "<>><<<"))


def _transitions(folder: Path) -> list[Transition]:
    if not (folder / LOCK).exists():
        raise DataError(f"{folder}: no guard has worked here; see --dir")
    return read_log(folder / LOG)


def _snapshots(folder: Path) -> list[Snapshot]:
    """Those that are whole now; one that is being moved or deleted meanwhile is left out."""
    found = []
    for path in sorted(folder.glob(f"*/{DESCRIPTION}")):
        try:
            found.append(from_json(path.parent.name, read_json(path)))
        except DataError:
            continue
    return sorted((s for s in found if (folder / s.name / s.payload).exists()), key=lambda s: s.number)


def _snapshot(s: Snapshot, counts: Mapping[str, Any]) -> Json:
    return {
        "name": s.name,
        "step": s.step,
        "attempt": s.attempt,
        "stable": s.promoted is not None,
        "healthy_steps": counts.get(s.name, 0) if s.promoted is None else s.promoted.healthy_steps,
        "bytes": s.bytes,
        "time": s.time,
    }


def _active(folder: Path, kept: list[Snapshot]) -> str | None:
    target = folder / ACTIVE
    names = {s.name for s in kept}
    return next((p.name for p in target.resolve().parents if p.name in names), None) if target.exists() else None


def _snapshot_lines(found: list[Json], active: str | None) -> list[str]:
    if not found:
        return ["  snapshots   none: a trip could not be rolled back"]
    lines = []
    for k, s in enumerate(reversed(found[-5:])):
        kind = "stable" if s["stable"] else f"pending, {s['healthy_steps']} healthy steps"
        mark = "  <- active" if s["name"] == active else ""
        head = "  snapshots   " if k == 0 else " " * 14
        lines.append(f"{head}step {s['step']}, attempt {s['attempt']}, {size(s['bytes'])}, {kind}{mark}")
    return lines


def _last_trip(transitions: Sequence[Transition]) -> Json | None:
    last = next((t for t in reversed(transitions) if t.event is Event.TRIP), None)
    return (
        None if last is None else {"t": last.t, "step": last.step, "attempt": last.attempt, "reason": last.reason}
    )


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(p.lstat().st_size for p in files if p.is_file())


def _retries(n: int) -> str:
    return f"{n} retr{'y' if n == 1 else 'ies'}"


def _or_dash(x: Any) -> str:
    return "-" if x is None else str(x)


def _when(t: float) -> str:
    return datetime.fromtimestamp(t).astimezone().isoformat(sep=" ", timespec="seconds")[:19]


def _ago(t: float) -> str:
    return f"{duration(max(0.0, time.time() - t))} ago"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
