"""What `drive` would do first, without doing it: the plan, and why each stage of the next attempt would run."""

from __future__ import annotations

from pathlib import Path

from td_loop.errors import RunInUse
from td_loop.files import sha256
from td_loop.lock import holder
from td_loop.loop import console, provenance, reuse, rundir
from td_loop.loop.config import Gate, RunConfig
from td_loop.loop.driver import find_programs
from td_loop.loop.fault import require_promoted
from td_loop.loop.forecast import plan
from td_loop.loop.layout import LOCK, MC_ROWS, V_SNAP, iter_dir, iter_dirs, run_dir
from td_loop.loop.manifest import Manifest, read_manifest
from td_loop.loop.plan import RunAttempt, attempt_config, next_step
from td_loop.loop.verify_manifest import require_none_lost, require_sound


def preview(config: RunConfig) -> list[str]:
    """The lines that tell it. Nothing is changed, or made, on disk.

    Raises:
        UsageError, ManifestError, WeightsError: what would stop the run itself.
    """
    find_programs(config)
    run = run_dir(config.runs_dir, config.tag)
    before = read_manifest(run)
    if before is None:
        require_none_lost(run)
    else:
        require_sound(run, before)
    if before is None or not (resumed := before.resumed(config.tag, config.hyperparams())).iters:
        weights = rundir.find_bootstrap(config.bootstrap)
        digest = sha256(weights)
        manifest = Manifest.new(config.tag, digest, config.hyperparams())
    else:
        manifest = resumed
        require_promoted(run, manifest)
        name, digest = rundir.v_snap_of(run, manifest)
        weights = run / name
    said, warning = plan(config, run, manifest, weights)
    lines = [said] + ([warning] if warning else [])
    if (now := holder(run / LOCK)) is not None:
        lines.append(f"in use by {now.who}: the run itself would be refused, exit code {RunInUse.exit_code}")
    named = rundir.named_dirs(manifest)
    left = iter_dirs(run).keys() - named if run.is_dir() else set()
    lines += [f"{name}: set aside, in trimmed/" for name in sorted(left) if _has_content(run, name)]
    step = next_step(manifest.iters, config.iters, config.on_fail)
    if not isinstance(step, RunAttempt):
        return [*lines, "nothing to run: all iterations are done"]
    return lines + _stages(attempt_config(config, step.attempt), run, manifest, step, weights, digest)


def _has_content(run: Path, name: str) -> bool:
    return any(p.name != V_SNAP for p in (run / name).iterdir())


def _stages(
    config: RunConfig, run: Path, manifest: Manifest, step: RunAttempt, weights: Path, digest: str
) -> list[str]:
    """A line a stage of the attempt: taken back, gone on with, or run, and why."""
    name = iter_dir(step.i, step.attempt)
    left = reuse.left_by(run, name, unnamed=name not in rundir.named_dirs(manifest))
    gated = config.gate is not Gate.NONE
    new = [f"{name}: gate runs: its candidate is new"] if gated else []
    wanted = provenance.of_prepare(config, step.i, digest)
    search = reuse.prepared(
        left, wanted, mc_rows=run / MC_ROWS, before=manifest.iters[-1] if manifest.iters else None
    )
    if search.found is None:
        begun = reuse.chunks(left, wanted)
        told = begun.found and console.begun_line("prepare", "chunks", name, begun)
        told = told or console.reuse_line("prepare", name, search) or console.reuse_line("prepare", name, begun)
        return [
            told or f"{name}: prepare runs: there is nothing to take up",
            f"{name}: fit runs: its targets are new",
            *new,
        ]
    branch_data = search.found.paths.branch_data
    fit = reuse.fitted(left, provenance.of_fit(config, step.i, digest, branch_data, run / MC_ROWS), weights)
    lines = [
        console.reuse_line("prepare", name, search),
        console.reuse_line("fit", name, fit) or f"{name}: fit runs: there is nothing to take up",
    ]
    if not gated or fit.found is None:
        return lines + new
    begun = reuse.games(left, provenance.of_gate(config, step.i, fit.found.paths.weights, digest))
    told = console.begun_line("gate", "games", name, begun)
    return [*lines, told or f"{name}: gate runs: there is nothing to take up"]
