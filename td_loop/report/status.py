"""Where a run stands: what `td-loop status` prints, as JSON or as text made from it."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from td_loop.lock import Holder, holder
from td_loop.loop.layout import LOCK
from td_loop.loop.manifest import Json, Manifest, Status
from td_loop.report.attempts import Attempt, Place, recorded, unrecorded
from td_loop.report.find import manifest_of, sound_records
from td_loop.report.text import driver_line, indented, number
from td_loop.text import duration, size, table

GATE = ("verdict", "llr", "rounds", "games", "score", "wall_s", "exit_code")
"""What is shown of a match."""

_LEGEND = "iter 3r1: the retry of iteration 3; knots: features that drifted; g latest_good, b best_val"


def status(run: Path) -> Json:
    """Everything that the table shows, for programs. Non-finite numbers are kept (see `files.dumps_json`).

    Raises:
        DataError: the run has no manifest that can be read, or its records cannot be understood.
    """
    manifest, driver = manifest_of(run), holder(run / LOCK)
    with sound_records(run):
        return _status(run, manifest, driver)


def _status(run: Path, manifest: Manifest, driver: Holder | None) -> Json:
    best = manifest.best_val
    attempts = recorded(manifest) + unrecorded(run, manifest, driver)
    return {
        "tag": manifest.tag,
        "run": str(run),
        "iterations": {
            "promoted": sum(r.status is Status.PROMOTED for r in manifest.iters),
            "wanted": manifest.hyperparams_current.get("iters"),
        },
        "driver": None if driver is None else asdict(driver),
        "disk_bytes": disk_used(run),
        "latest_good": manifest.latest_good,
        "best_val": None if best is None else asdict(best),
        "attempts": [_entry(run, attempt, manifest) for attempt in attempts],
    }


def _entry(run: Path, attempt: Attempt, manifest: Manifest) -> Json:
    r = attempt.record
    prepare, fit, knots = r.prepare or {}, r.fit or {}, r.knot_coverage or {}
    mine = r.weights is not None and attempt.place is Place.RECORDED
    return {
        "iter": r.i,
        "attempt": r.attempt,
        "folder": attempt.folder,
        "status": str(r.status) if attempt.place is Place.RECORDED else str(attempt.place),
        "stage": attempt.stage or None,
        "prepare_wall_s": prepare.get("wall_s"),
        "fit_wall_s": fit.get("wall_s"),
        "val_mc_nll": fit.get("final_val_mc_nll"),
        "val_mc_nll_baseline": attempt.training(run).get("val_mc_nll_baseline"),
        "kl": r.check_number("S3.7", "kl"),
        "engine_fallback_rate": prepare.get("engine_fallback_rate"),
        "knots_drifted": len(knots["warnings"]) if knots.get("available") else None,
        "is_latest_good": mine and r.weights == manifest.latest_good,
        "is_best_val": mine and manifest.best_val is not None and r.weights == manifest.best_val.path,
        # Only where there is a match: without a gate all is as it was.
        **({} if r.gate is None else {"gate": {key: r.gate.get(key) for key in GATE}}),
    }


def disk_used(run: Path) -> int:
    """Bytes of all files in a run directory; links are not followed, and what vanishes meanwhile is left out."""
    total = 0
    for path in run.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size if path.is_symlink() or path.is_file() else 0
    return total


# --- text ------------------------------------------------------------------------------------------------------


def status_text(s: Json) -> str:
    """The same for people: at most 80 columns."""
    best, iterations = s["best_val"], s["iterations"]
    driver = "no driver is at work" if s["driver"] is None else driver_line(Holder(**s["driver"]))
    lowest = "none yet" if best is None else f"{best['path']}, val_mc_nll {number(best['val_mc_nll'])}"
    lines = [
        *indented("", f"run '{s['tag']}' in {s['run']}"),
        f"  iterations   {iterations['promoted']} of {iterations['wanted']} done",
        *indented("  driver       ", driver),
        f"  disk         {size(s['disk_bytes'])} used",
        f"  latest_good  {s['latest_good']}",
        f"  best_val     {lowest}",
    ]
    if not s["attempts"]:
        return "\n".join([*lines, "", "no iteration was begun yet"])
    head = ("iter", "status", "prepare", "fit", "val_nll", "baseline", "KL", "fallback", "knots", "")
    rows = [_cells(entry) for entry in s["attempts"]]
    lines += ["", *table(head, rows, "<<>>>>>>><")]
    if matches := [(entry, entry["gate"]) for entry in s["attempts"] if "gate" in entry]:
        of_match = ("iter", "gate", "score", "rounds", "LLR", "took")
        lines += ["", *table(of_match, [_match_cells(*match) for match in matches], "<<>>>>")]
    return "\n".join([*lines, "", *indented("", _LEGEND)])


def _cells(e: Json) -> tuple[str, ...]:
    status = {"prepare": "preparing", "fit": "fitting", "gate": "playing"}.get(e["stage"], "judging")
    return (
        _name(e),
        status if e["status"] == Place.IN_PROGRESS else e["status"],
        _duration(e["prepare_wall_s"]),
        _duration(e["fit_wall_s"]),
        number(e["val_mc_nll"]),
        number(e["val_mc_nll_baseline"]),
        number(e["kl"], ".2g"),
        number(e["engine_fallback_rate"], ".1%"),
        "-" if e["knots_drifted"] is None else str(e["knots_drifted"] or "ok"),
        ("g" if e["is_latest_good"] else "") + ("b" if e["is_best_val"] else ""),
    )


def _match_cells(e: Json, gate: Json) -> tuple[str, ...]:
    return (
        _name(e),
        gate["verdict"] or ("not at its end" if gate["exit_code"] is None else "not played"),
        number(gate["score"], ".1%"),
        number(gate["rounds"], ".0f"),
        number(gate["llr"], ".2f"),
        _duration(gate["wall_s"]),
    )


def _name(e: Json) -> str:
    return f"{e['iter']}r{e['attempt']}" if e["attempt"] else f"{e['iter']}"


def _duration(seconds: Any) -> str:
    return "-" if seconds is None else duration(seconds)
