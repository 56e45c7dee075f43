"""Why an iteration was promoted, reverted, aborted or interrupted: what `td-loop explain` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from td_loop.errors import UsageError
from td_loop.lock import Holder, holder
from td_loop.loop.console import reason
from td_loop.loop.layout import LOCK, attempt_of
from td_loop.loop.manifest import IterRecord, Json, Manifest, Status
from td_loop.report.attempts import Attempt, Place, recorded, trimmed, unrecorded
from td_loop.report.checks import CheckRow, check_rows
from td_loop.report.find import manifest_of, sound_records
from td_loop.report.text import indented, number
from td_loop.text import duration, table


def explain(run: Path, which: str) -> str:
    """Every attempt of an iteration, with its checks, in at most 80 columns.

    Args:
        run: the run directory.
        which: `3` for all attempts of iteration 3; `3_retry1` for its retry alone.

    Raises:
        UsageError: there is no such iteration; the message names those that there are.
        DataError: the run has no manifest that can be read, or its records cannot be understood.
    """
    manifest, driver = manifest_of(run), holder(run / LOCK)
    with sound_records(run):
        return _explain(run, which, manifest, driver)


def _explain(run: Path, which: str, manifest: Manifest, driver: Holder | None) -> str:
    attempts = trimmed(run) + recorded(manifest) + unrecorded(run, manifest, driver)
    found = _select(attempts, which, run)
    lines = [*indented("", f"iteration {found[0].record.i} of run '{manifest.tag}' in {run}")]
    for attempt in found:
        lines += ["", *_attempt_lines(run, attempt, manifest)]
    return "\n".join(lines)


def _select(attempts: Sequence[Attempt], which: str, run: Path) -> list[Attempt]:
    wanted = attempt_of(which if which.startswith("iter") else f"iter{re.sub(r'r(?=[0-9])', '_retry', which)}")
    found = [
        a
        for a in attempts
        if wanted is not None and a.record.i == wanted[0] and wanted[1] in (0, a.record.attempt)
    ]
    if found:
        return found
    names = sorted({(a.record.i, a.record.attempt) for a in attempts})
    there = ", ".join(f"{i}_retry{n}" if n else f"{i}" for i, n in names)
    what = "no attempt" if wanted else "not an iteration (write 3, or 3_retry1)"
    raise UsageError(f"{which!r}: {what} of {run}; there are: {there or 'none yet'}")


def _attempt_lines(run: Path, attempt: Attempt, manifest: Manifest) -> list[str]:
    r = attempt.record
    rows = check_rows(r)
    lines = [*indented("", f"attempt {r.attempt}, {attempt.folder}: {_ending(attempt)}")]
    lines += indented("  why       ", _why(attempt, rows, manifest))
    if r.v_snap:
        lines += indented("  V_snap    ", f"{r.v_snap} (sha256 {r.v_snap_sha256[:12]}...)")
    if settings := _settings(r):
        lines += indented("  settings  ", settings)
    for stage, said in (("prepare", _prepare(r)), ("fit", _fit(run, attempt)), ("gate", _gate(r))):
        if said:
            lines += indented(f"  {stage:<10}", said)
    if rows:
        head = ("check", "looks at", "value", "limit", "", "verdict")
        cells = [(c.id, c.title, c.value, c.limit, c.severity, c.verdict) for c in rows]
        lines += ["", *(f"  {line}" for line in table(head, cells, "<<>><<"))]
        remarks = [c for c in rows if c.verdict not in ("passed", "logged")]
        lines += [""] if remarks else []
        for c in remarks:
            lines += indented(f"  {c.id:<6}", c.message)
    return lines


def _ending(attempt: Attempt) -> str:
    status = str(attempt.record.status)
    return {
        Place.RECORDED: status,
        Place.TRIMMED: f"{status}, then set aside by a resume",
        Place.IN_PROGRESS: "in progress",
        Place.UNFINISHED: "unfinished",
    }[attempt.place]


def _why(attempt: Attempt, rows: Sequence[CheckRow], manifest: Manifest) -> str:
    r, stage = attempt.record, attempt.stage
    where = f"during {stage}" if stage else "after both stages were judged"
    if attempt.place is Place.IN_PROGRESS:
        return (
            f"a driver works on it: it is {where.removeprefix('during ')}'s turn"
            if stage
            else "it is being judged"
        )
    if attempt.place is Place.UNFINISHED:
        return f"its driver was killed {where}; the next start of the run sets it aside and begins it anew"
    if r.status is Status.INTERRUPTED:
        return f"stopped {where}; the same command runs the iteration again"
    if r.status is Status.PROMOTED:
        warned = ", ".join(c.id for c in rows if c.verdict == "warned")
        return (
            "no hard check failed and the final val_mc_nll is within its limit (S4.3), "
            + ("and it won its match (gate), " if r.gate else "")
            + f"so latest_good moved to {r.weights}"
            + (f"; warnings, which stop nothing: {warned}" if warned else "")
        )
    retried = any(x.i == r.i and x.attempt > r.attempt for x in manifest.iters)
    if attempt.place is Place.TRIMMED:
        # The log that it names was moved with the attempt.
        return reason(r).replace(f"/{Path(attempt.folder).name.partition('.')[0]}/", f"/{attempt.folder}/")
    if r.status is Status.REVERTED and retried:
        after = "; it was run once more with half the learning rate and another seed"
    else:
        after = f"; latest_good stayed {manifest.latest_good}"
    return f"{reason(r)}{after}"


def _settings(r: IterRecord) -> str:
    config = {
        **((r.stage3_validation or {}).get("config") or {}),
        **((r.stage4_validation or {}).get("config") or {}),
    }
    names = ("n", "k", "budget_s", "budget_evals", "workers", "seed", "epochs", "lr_peak")
    if config.get("budget_evals") is not None:
        config.pop("budget_s", None)
    return ", ".join(f"{name} {config[name]}" for name in names if config.get(name) is not None)


def _prepare(r: IterRecord) -> str:
    p = r.prepare
    if p is None:
        return ""
    rows = "" if p["n_r"] is None else f": {p['n_r']} replay rows (R), {p['n_a']} agent rows (A)"
    return f"{duration(p['wall_s'])}, exit code {p['exit_code']}{rows}"


def _fit(run: Path, attempt: Attempt) -> str:
    fit = attempt.record.fit
    if fit is None:
        return ""
    baseline = number(attempt.training(run).get("val_mc_nll_baseline"))
    losses = f": val_mc_nll {baseline} before, {number(fit['final_val_mc_nll'])} after"
    return (
        f"{duration(fit['wall_s'])}, exit code {fit['exit_code']}"
        + ("" if fit["final_val_mc_nll"] is None else losses)
        + _guard(fit.get("guard"))
    )


def _guard(guard: Json | None) -> str:
    """What a guard did about a fit that it watched."""
    if guard is None:
        return ""
    trips = "; ".join(f"tripped at step {t['step']} ({t['reason']})" for t in guard["trips"])
    ended = f"; it ended at {guard['multiplier']:g} of the learning rate" if guard["retries"] else ""
    return f"; under guard ({guard['mode']}): {trips or 'nothing tripped'}{ended}"


def _gate(r: IterRecord) -> str:
    gate = r.gate
    if gate is None:
        return ""
    config = gate["config"]
    move = f"{config['budget_evals']} evaluations" if config["budget_s"] is None else f"{config['budget_s']} s"
    asked = f"{config['elo'][0]:g} or {config['elo'][1]:g} Elo, {config['rounds']} rounds at most, {move} a move"
    if gate["exit_code"] is None:
        return f"not at its end: {asked}"
    told = f": {gate['verdict']}, {gate['games']} games" if gate["verdict"] else ""
    return f"{duration(gate['wall_s'])}, exit code {gate['exit_code']}{told}; {asked}"
