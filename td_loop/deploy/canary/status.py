"""Where a folder's release stands, for people and programs. Reading changes nothing."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from td_loop import text
from td_loop.deploy.canary import store
from td_loop.deploy.canary.evidence import Evidence
from td_loop.deploy.canary.machine import Event, Release, duration
from td_loop.deploy.canary.settings import CanarySettings
from td_loop.errors import DataError
from td_loop.lock import holder

QUIET = (Event.WEIGH, Event.NOTE, Event.RESUMED)
"""What the history leaves out unless all of it is asked for."""


def status(folder: Path) -> dict[str, Any]:
    """Where the newest release of a folder stands, as JSON data.

    Raises:
        DataError: there was none, or the folder's files are damaged.
    """
    lines = store.read_audit(folder)
    if not lines:
        raise DataError(f"{folder}: no policy was released here yet; see `td-loop deploy canary --help`")
    release = lines[-1].release
    begin = next(x for x in lines if x.release.number == release.number)
    settings = CanarySettings.from_mapping(begin.evidence["settings"])
    saved, observed = store.read_state(folder), None
    if saved is not None and saved["release"]["number"] == release.number:
        if saved["release"]["seq"] == release.seq:
            release = Release.from_json(saved["release"])
        observed = Evidence.from_json(saved["evidence"])
    who = holder(folder / store.LOCK)
    last = next(x for x in reversed(lines) if x.event not in QUIET)
    return {
        "release": release.as_json(),
        "began": begin.t,
        "stage_s": duration(settings.stages, release.stage),
        "controller": None if who is None else {"who": who.who, "since": who.since},
        "last": {"t": last.t, "event": str(last.event), "reason": last.reason},
        "counted": {} if observed is None else _counted(observed),
        "refused": store.refusal(folder, release.sha256),
    }


def _counted(evidence: Evidence) -> dict[str, Any]:
    sums = evidence.sums
    canary, stable = (None if sums.rewards.weight == 0 else float(m) for m in sums.rewards.means)
    return {
        "rewards": {
            "canary": canary,
            "stable": stable,
            "canary_count": float(sums.rewards.canary),
            "stable_count": float(sums.rewards.stable),
        },
        "rates": {
            name: dict(zip(("canary", "stable"), map(float, shares.rates), strict=True))
            for name, shares in sums.rates.items()
        },
    }


def status_text(found: Mapping[str, Any]) -> str:
    """`status` for people."""
    release = found["release"]
    controller = found["controller"]
    over = release["stage"] in ("promoted", "rolled_back")
    nobody = "" if over else "nobody: `td-loop deploy canary` goes on, `td-loop deploy abort` withdraws it"
    lines = [
        f"release     {release['number']}, {release['sha256'][:12]}, begun {_when(found['began'])}",
        f"artefact    {release['path']}" + ("  (refused)" if found["refused"] else ""),
        f"stage       {release['stage']}" + _progress(release, found["stage_s"]),
        f"weights     stable {100 - release['weight']:g} %, canary {release['weight']:g} %",
        f"controller  {nobody if controller is None else controller['who']}".rstrip(),
        f"last        {_when(found['last']['t'])} {found['last']['event']}: {found['last']['reason']}",
    ]
    if release["held"]:
        lines.insert(3, f"HOLD        {', '.join(release['held'])}")
    if release["waiting"]:
        lines.insert(3, "waiting     for `td-loop deploy approve`")
    rewards = found["counted"].get("rewards")
    if rewards and rewards["canary"] is not None:
        lines.append(
            f"reward      canary {rewards['canary']:.4g} ({rewards['canary_count']:.0f}), "
            f"stable {rewards['stable']:.4g} ({rewards['stable_count']:.0f})"
        )
    for name, rate in found["counted"].get("rates", {}).items():
        lines.append(f"{name:<14}  canary {rate['canary']:.3%}, stable {rate['stable']:.3%}")
    return "\n".join(_wrapped(line) for line in lines)


def _wrapped(line: str) -> str:
    """In 80 columns, the second column under itself."""
    return textwrap.fill(line, 80, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False)


def _progress(release: Mapping[str, Any], whole: float) -> str:
    if not whole:
        return ""
    return f", {text.duration(release['progress_s'])} of {text.duration(whole)}"


def history(folder: Path, *, everything: bool = False) -> list[dict[str, Any]]:
    """Lines of the audit log, oldest first; steps of ramps and notes only with `everything`.

    Raises:
        DataError: a line is damaged.
    """
    return [x.as_json() for x in store.read_audit(folder) if everything or x.event not in QUIET]


def history_text(lines: list[dict[str, Any]]) -> str:
    """`history` for people."""
    if not lines:
        return "no policy was released here yet"
    return "\n".join(
        f"{_when(x['t'])}  {x['release']['number']:>3}  {x['release']['sha256'][:12]}  {x['event']:<9} "
        f"{x['to']:<12} {x['weight']:>5g} %  {x['reason']}"
        for x in lines
    )


def _when(t: float) -> str:
    return datetime.datetime.fromtimestamp(t).astimezone().isoformat(sep=" ", timespec="seconds")
