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
from td_loop.fit.history import History, Summary, training_json
from td_loop.fit.metrics import constant_nll, mean_nll, nll_by_segment
from td_loop.fit.problem import Problem, fill_missing_segments
from td_loop.fit.schedule import Schedule
from td_loop.fit.trainer import Trainer
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


def run_fit(config: FitConfig, problem: Problem, output: Path, advance: Advance) -> Summary:
    """Train on `problem`, then write `output` and, after it, `<stem>.training.json`.

    A fit that blows up writes only the training.json, with its `aborted` marker: its weights must not be taken for
    a result. A file that already is at `output` then stays as it is.

    Raises:
        Blowup: val_mc_nll rose above its threshold.
        StorageError: the disk is full, read-only or failing.
    """
    schedule = schedule_of(config)
    v, summary = train(config, schedule, problem, advance)
    log = output.with_suffix(".training.json")
    if summary.aborted is not None:
        write_json(log, training_json(config, schedule, problem, summary, None))
        raise Blowup(
            f"{summary.aborted}; no weights written, see {log}; use a smaller --lr or look into the cache"
        )
    meta = {**v.meta, "created_by": {"command": "fit", "hyperparams": asdict(config), "inputs": _hashes(problem)}}
    save_weights(output, SplineValue(v.knots, v.coef, v.feature_names, meta))
    write_json(log, training_json(config, schedule, problem, summary, output))
    return summary


def train(
    config: FitConfig, schedule: Schedule, problem: Problem, advance: Advance
) -> tuple[SplineValue, Summary]:
    """The training loop: pure but for clock and progress. Returns the weights kept, and how it went.

    The knot-requantize warmup is part of the first epoch.
    """
    began = time.perf_counter()
    guard = BlowupGuard(problem.start, problem.val, config.val_blowup_tau)
    trainer = Trainer(problem.start, problem.rows, config, schedule)
    history = History()
    kept, kept_epoch, final = problem.start, None, guard.baseline
    aborted: Aborted | None = None
    for epoch in range(config.epochs):
        epoch_began = time.perf_counter()
        n_steps = config.batches_per_epoch + (config.warmup_steps if epoch == 0 else 0)
        rates, norms, aborted = _steps(trainer, guard, epoch, n_steps, advance)
        v = trainer.value()
        val = guard.val_mc_nll(v) if aborted is None else aborted.val_mc_nll
        aborted = aborted or guard.check(val, epoch, trainer.steps_done)
        history.add(
            val_mc_nll=val,
            lr_first=rates[0],
            lr_last=rates[-1],
            grad_norm=sum(norms) / len(norms),
            **{name: mean_nll(v, rows) for name, rows in problem.samples.items()},
            seconds=time.perf_counter() - epoch_began,
        )
        if aborted is not None:
            kept, kept_epoch, final = v, None, val
            break
        if kept_epoch is None or not problem.keep_best or val < final:
            kept, kept_epoch, final = v, epoch, val
    if problem.keep_best:
        kept = fill_missing_segments(kept, problem.rows)
        final = guard.val_mc_nll(kept) if aborted is None else final
    summary = Summary(
        history=history,
        baseline=guard.baseline,
        constant=constant_nll(problem.val),
        final=final,
        final_by_segment=nll_by_segment(kept, problem.val),
        kept_epoch=kept_epoch,
        aborted=aborted,
        seconds=time.perf_counter() - began,
    )
    return kept, summary


def _steps(
    trainer: Trainer, guard: BlowupGuard, epoch: int, n_steps: int, advance: Advance
) -> tuple[list[float], list[float], Aborted | None]:
    """`n_steps` steps, or fewer when the screen finds a blow-up. Learning rates and gradient norms, one a step."""
    rates, norms = [], []
    for i in range(1, n_steps + 1):
        lr, norm = trainer.step()
        rates.append(lr)
        norms.append(norm)
        if i == n_steps:  # all validation rows are looked at now, by the caller
            advance((i - 1) % SCREEN_EVERY + 1)
        elif i % SCREEN_EVERY == 0:
            advance(SCREEN_EVERY)
            aborted = guard.screen(trainer.value(), epoch, trainer.steps_done)
            if aborted is not None:
                return rates, norms, aborted
    return rates, norms, None


def _hashes(problem: Problem) -> dict[str, str]:
    """Hashes without paths: equal runs must give equal bytes, wherever they lie.

    The td-cache is left to training.json: its meta holds wall times and worker counts, so its hash never repeats.
    """
    return {flag: entry["sha256"] for flag, entry in problem.inputs.items() if flag != "td_cache"}
