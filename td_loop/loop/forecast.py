"""What a run will take, from the cost model and from the run's own iterations."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from td_loop.files import disk_free
from td_loop.loop import console
from td_loop.loop.config import Gate, RunConfig
from td_loop.loop.cost import Cost, CostModel, Match, Work, calibrated, disk_bytes, match_s, work_of
from td_loop.loop.gate import GAMES_A_ROUND
from td_loop.loop.layout import MC_ROWS
from td_loop.loop.manifest import IterRecord, Manifest, Status
from td_loop.loop.outputs import n_features
from td_loop.machine import physical_cores


def predict(manifest: Manifest, config: RunConfig) -> Cost:
    """Wall seconds of an iteration."""
    cost = _model(manifest).predict(work_of(config))
    if config.gate is Gate.NONE:
        return cost
    seconds, evals = config.match.limit(config.prepare)
    match = Match(GAMES_A_ROUND * config.match.gate_rounds, seconds, evals, config.prepare.workers)
    return replace(cost, gate_s=match_s(match, _matches(manifest)))


def plan(config: RunConfig, run: Path, manifest: Manifest, weights: Path) -> tuple[str, str | None]:
    """The plan of a run that starts from `weights`, in words, and a warning about the disk if there is need."""
    work = work_of(config)
    mc_rows = run / MC_ROWS
    rows_size = mc_rows.stat().st_size if mc_rows.exists() else None
    needed, free = disk_bytes(work, n_features(weights), rows_size), disk_free(run)
    said = console.plan_text(
        config,
        run,
        manifest,
        work=work,
        cost=predict(manifest, config),
        cores=physical_cores(),
        disk=needed,
        free=free,
    )
    short = f"[disk] {run} may run out of space; a smaller --n needs less" if needed > free else None
    return said, short


def measured_cost(record: IterRecord) -> Cost:
    """What a promoted iteration took."""
    assert record.prepare is not None
    assert record.fit is not None
    return Cost(record.prepare["wall_s"], record.fit["wall_s"], (record.gate or {}).get("wall_s", 0.0))


def _matches(manifest: Manifest) -> list[tuple[Match, float, int]]:
    """This run's matches, see `cost.match_s`; those that were taken up when they were settled tell nothing."""
    measured = []
    for r in manifest.iters:
        if r.status is Status.PROMOTED and r.gate and r.gate["games_played"]:
            config = r.gate["config"]
            part = Match(r.gate["games_played"], config["budget_s"], config["budget_evals"], config["workers"])
            measured.append((part, r.gate["wall_s"], r.gate["games"]))
    return measured


def _model(manifest: Manifest) -> CostModel:
    """The cost model, corrected by this run's promoted iterations."""
    measured = []
    for r in manifest.iters:
        if r.status is Status.PROMOTED and r.stage3_validation and r.stage4_validation:
            settings = r.stage3_validation["config"] | r.stage4_validation["config"]
            measured.append((Work(**{f.name: settings[f.name] for f in fields(Work)}), measured_cost(r)))
    return calibrated(measured)
