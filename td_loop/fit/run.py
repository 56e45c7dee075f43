"""One fit from files to files: read, train, judge, write."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from td_loop.errors import Blowup
from td_loop.files import write_json
from td_loop.fit.blowup import SCREEN_EVERY, Aborted, BlowupGuard
from td_loop.fit.config import FitConfig
from td_loop.fit.history import Progress, Summary, training_json
from td_loop.fit.metrics import constant_nll, mean_nll, nll_by_segment
from td_loop.fit.problem import Problem, fill_missing_segments
from td_loop.fit.schedule import Schedule
from td_loop.fit.trainer import Trainer
from td_loop.fit.watch import Watch
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue

Advance = Callable[[int], None]
"""Called with the number of steps done since the last call."""


def schedule_of(config: FitConfig) -> Schedule:
    """The schedule that a fit with `config` follows."""
    return Schedule(
        total_steps=config.total_steps,
        warmup_frac=config.lr_warmup_frac,
        hold_frac=config.lr_hold_frac,
        floor_frac=config.lr_floor_frac,
        flat_steps=config.warmup_steps,
    )


def run_fit(
    config: FitConfig, problem: Problem, output: Path, advance: Advance, watch: Watch | None = None
) -> Summary:
    """Train on `problem`, then write `output` and, after it, `<stem>.training.json`.

    A fit that blows up writes only the training.json, with its `aborted` marker: its weights must not be taken for
    a result. A file that already is at `output` then stays as it is.

    `watch` tells of every step, and carries out what a guard asks for: another rate, another seed, checkpoints.

    Raises:
        DataError: the checkpoint that the guard wants to go on from cannot be used.
        Blowup: val_mc_nll rose above its threshold.
        StorageError: the disk is full, read-only or failing.
    """
    if watch is not None:
        config = watch.config
    schedule = schedule_of(config)
    v, summary = train(config, schedule, problem, advance, watch)
    account = None if watch is None else watch.account()
    log = output.with_suffix(".training.json")
    if summary.aborted is not None:
        write_json(log, training_json(config, schedule, problem, summary, None, account))
        raise Blowup(
            f"{summary.aborted}; no weights written, see {log}; use a smaller --lr or look into the cache"
        )
    meta = {**v.meta, "created_by": {"command": "fit", "hyperparams": asdict(config), "inputs": _hashes(problem)}}
    save_weights(output, SplineValue(v.knots, v.coef, v.feature_names, meta))
    write_json(log, training_json(config, schedule, problem, summary, output, account))
    return summary


def train(
    config: FitConfig, schedule: Schedule, problem: Problem, advance: Advance, watch: Watch | None = None
) -> tuple[SplineValue, Summary]:
    """The training loop: pure but for clock, progress and `watch`. Returns the weights kept, and how it went.

    The knot-requantize warmup is part of the first epoch.
    """
    began = time.perf_counter()
    guard = BlowupGuard(problem.start, problem.val, config.val_blowup_tau)
    trainer = Trainer(problem.start, problem.rows, config, schedule)
    progress = Progress(kept=problem.start, final=guard.baseline)
    if watch is not None:
        watch.begin(trainer, progress)
        advance(trainer.steps_done)
    aborted: Aborted | None = None
    for epoch in range(progress.epochs_done, config.epochs):
        epoch_began = time.perf_counter()
        n_steps = config.batches_per_epoch + (config.warmup_steps if epoch == 0 else 0)
        aborted = _steps(trainer, guard, epoch, n_steps, progress, advance, watch)
        v = trainer.value()
        val = guard.val_mc_nll(v) if aborted is None else aborted.val_mc_nll
        aborted = aborted or guard.check(val, epoch, trainer.steps_done)
        progress.end_epoch(
            val_mc_nll=val,
            **{name: mean_nll(v, rows) for name, rows in problem.samples.items()},
            seconds=time.perf_counter() - epoch_began,
        )
        if aborted is not None:
            progress.keep(v, None, val)
            break
        if progress.kept_epoch is None or not problem.keep_best or val < progress.final:
            progress.keep(v, epoch, val)
    kept, final = progress.kept, progress.final
    if problem.keep_best:
        kept = fill_missing_segments(kept, problem.rows)
        final = guard.val_mc_nll(kept) if aborted is None else final
    summary = Summary(
        history=progress.history,
        baseline=guard.baseline,
        constant=constant_nll(problem.val),
        final=final,
        final_by_segment=nll_by_segment(kept, problem.val),
        kept_epoch=progress.kept_epoch,
        aborted=aborted,
        seconds=time.perf_counter() - began,
    )
    return kept, summary


def _steps(
    trainer: Trainer,
    guard: BlowupGuard,
    epoch: int,
    n_steps: int,
    progress: Progress,
    advance: Advance,
    watch: Watch | None,
) -> Aborted | None:
    """What is missing of the `n_steps` steps of an epoch, or fewer when the screen finds a blow-up."""
    done = len(progress.norms)
    for i in range(done + 1, n_steps + 1):
        lr, norm = trainer.step()
        progress.rates.append(lr)
        progress.norms.append(norm)
        if watch is not None:
            watch.report(trainer, lr, norm)
        if i == n_steps:  # all validation rows are looked at now, by the caller
            advance(i - done)
        elif i % SCREEN_EVERY == 0:
            advance(i - done)
            done = i
            aborted = guard.screen(trainer.value(), epoch, trainer.steps_done)
            if aborted is not None:
                return aborted
        if watch is not None:
            watch.stage(trainer.steps_done)
    return None


def _hashes(problem: Problem) -> dict[str, str]:
    """Hashes without paths: equal runs must give equal bytes, wherever they lie.

    The td-cache is left to training.json: its meta holds wall times and worker counts, so its hash never repeats.
    """
    return {flag: entry["sha256"] for flag, entry in problem.inputs.items() if flag != "td_cache"}
