"""What a run says: the plan, a line an iteration, warnings, how it ended. Text is made by pure functions.

Plan and iteration lines go to standard output, always; warnings go to standard error; progress goes there too, but
only when a person looks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from td_loop.checks import Severity
from td_loop.files import as_float
from td_loop.loop.config import Gate, RunConfig
from td_loop.loop.cost import Cost, Work
from td_loop.loop.layout import BEST_VAL, LATEST_GOOD
from td_loop.loop.manifest import IterRecord, Json, Manifest, Status
from td_loop.loop.reuse import Search
from td_loop.text import duration, size

MAX_WARNINGS = 3
"""Knot warnings shown for an iteration; the rest is counted, and stands in the record."""


class Console:
    """Writes lines to standard output and standard error."""

    def out(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def warn(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def progress(self, text: str) -> None:
        """Shown only on a terminal."""
        if sys.stderr.isatty():
            self.warn(text)


def orphans_line(ended: int) -> str:
    """What a driver says that found processes of an earlier one at work."""
    what = "1 process" if ended == 1 else f"{ended} processes"
    return f"warning: ended {what} that an earlier driver of this run left behind"


def plan_text(
    config: RunConfig, run: Path, manifest: Manifest, *, work: Work, cost: Cost, cores: int, disk: int, free: int
) -> str:
    """The plan that a run prints first."""
    done = len(manifest.iters)
    todo = max(0, config.iters - done)
    n_a = round(work.n_a)
    spend = f"{work.budget_s:g} s" if work.budget_evals is None else f"{work.budget_evals:,} evaluations"
    gated = config.gate is not Gate.NONE
    basis = "from this run's earlier iterations" if done else "from the cost model"
    lines = [
        f"run '{config.tag}' in {run}",
        f"  iterations  {todo} to go" + (f", {done} of {config.iters} done" if done else ""),
        f"  rows        {work.n:,} an iteration: {work.n - n_a:,} replay (R), about {n_a:,} agent (A)",
        f"  search      {spend} a row, {work.workers} workers ({cores} physical cores here)",
        f"  time        {duration(cost.total_s)} an iteration (prepare {duration(cost.prepare_s)}, "
        f"fit {duration(cost.fit_s)}" + (f", gate {duration(cost.gate_s)})" if gated else ")"),
        f"              {duration(todo * cost.total_s)} in all, {basis}",
        f"  disk        about {size(disk)} needed, {size(free)} free",
    ]
    if gated:
        (elo0, elo1), (seconds, evals) = config.match.gate_elo, config.match.limit(config.prepare)
        move = f"{seconds:g} s" if evals is None else f"{evals:,} evaluations"
        lines.insert(
            4,
            f"  gate        {elo0:g} or {elo1:g} Elo, {config.match.gate_rounds} rounds at most, {move} a move",
        )
    return "\n".join(lines)


def reuse_line(stage: str, name: str, search: Search) -> str:
    """What became of a stage's finished output; empty where there was none."""
    if search.found is not None:
        return f"{name}: {stage} is taken from {search.found.paths.name}, made from the same"
    return f"{name}: {stage} runs again: {search.why}" if search.why else ""


def begun_line(stage: str, what: str, name: str, search: Search) -> str:
    """What became of what a stage had done of its work; empty where that is nothing."""
    if search.found is not None:
        return f"{name}: {stage} goes on from the {what} of {search.found.paths.name}"
    return reuse_line(stage, name, search)


def gate_line(record: IterRecord) -> str:
    """One line about the match of an attempt; empty where there was none."""
    gate = record.gate
    if gate is None:
        return ""
    if gate["verdict"] is None:
        return f"gate {_name(record)}: could not be played"
    return (
        f"gate {_name(record)}: {gate['verdict']}, {gate['score']:.1%} of {gate['rounds']} rounds, "
        f"LLR {gate['llr']:.2f}, {duration(gate['wall_s'])}"
    )


def iteration_line(record: IterRecord, *, eta_s: float | None) -> str:
    """One line of at most 80 columns about an attempt that ended."""
    name = _name(record)
    prepare, fit = record.prepare or {}, record.fit or {}
    loss = _number(fit.get("final_val_mc_nll"), "{:#.4g}")
    fallback = _number(prepare.get("engine_fallback_rate"), "{:.1%}")
    kl = _number(record.check_number("S3.7", "kl"), "{:.2g}")
    took = duration(sum(stage.get("wall_s") or 0.0 for stage in (prepare, fit, record.gate or {})))
    line = f"iter {name:<3} {record.status:<12} val {loss:<6} fallback {fallback:<5} KL {kl:<7} {took:>6}"
    return line if eta_s is None else f"{line}  ETA {duration(eta_s)}"


def _name(record: IterRecord) -> str:
    return f"{record.i}" + (f"r{record.attempt}" if record.attempt else "")


def _number(value: object, style: str) -> str:
    return "-" if value is None else style.format(as_float(value))


def warning_lines(record: IterRecord) -> list[str]:
    """Soft checks that failed, and knot drift."""
    lines = [
        f"[{check}] iteration {record.i}: {result['message']}"
        for check, result in _checks(record)
        if result["severity"] == Severity.SOFT and result["passed"] is False and check != "S4.3"
    ]
    drift = (record.knot_coverage or {}).get("warnings", [])
    lines += [f"[knot-drift] iteration {record.i}: {warning}" for warning in drift[:MAX_WARNINGS]]
    if len(drift) > MAX_WARNINGS:
        lines.append(
            f"[knot-drift] iteration {record.i}: and {len(drift) - MAX_WARNINGS} more, see validation.json"
        )
    return lines


def reason(record: IterRecord) -> str:
    """Why an attempt was not promoted."""
    for validation in (record.stage3_validation, record.stage4_validation):
        if validation and "failure" in validation and not _failed_hard(validation):
            return str(validation["failure"])
    if record.gate is not None:
        return str(record.gate.get("failure") or f"gate failed: {record.gate.get('message')}")
    wanted = Severity.SOFT if record.status is Status.REVERTED else Severity.HARD
    found = [
        f"{check} failed: {result['message']}"
        for check, result in _checks(record)
        if result["passed"] is False
        and result["severity"] == wanted
        and (wanted is Severity.HARD or check == "S4.3")
    ]
    return "; ".join(found)


def _failed_hard(validation: Json) -> bool:
    return any(r["passed"] is False and r["severity"] == Severity.HARD for _, r in _results(validation))


def _checks(record: IterRecord) -> list[tuple[str, Json]]:
    return [pair for v in (record.stage3_validation, record.stage4_validation) if v for pair in _results(v)]


def _results(validation: Json) -> list[tuple[str, Json]]:
    return [(key, value) for key, value in validation.items() if key.startswith("S")]


def closing_text(run: Path, manifest: Manifest, notes: Sequence[str] = ()) -> str:
    """The last words of a run that did all its iterations."""
    best = manifest.best_val
    lines = [f"done: {len(manifest.iters)} iterations; {run / LATEST_GOOD} is {manifest.latest_good}"]
    if best is not None:
        lines.append(f"lowest val_mc_nll {best.val_mc_nll:.4f} in iteration {best.iter}: {run / BEST_VAL}")
    lines += [
        "val_mc_nll only tells that nothing broke: let the promoted weights play each other",
        "before you deploy one. A larger --iters continues this run.",
        *notes,
    ]
    return "\n".join(lines)
