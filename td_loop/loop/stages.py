"""Command lines of the stages. Pure: the same flags for td_loop's own programs and for a user's."""

from __future__ import annotations

import sys
from pathlib import Path

from td_loop.loop.config import RunConfig
from td_loop.loop.layout import AttemptPaths


def prepare_argv(config: RunConfig, i: int, v_snap: Path, paths: AttemptPaths, mc_rows: Path) -> list[str]:
    """Stage 3 of iteration `i`; `config` is the attempt's. The stage draws from `seed + iter_index`."""
    c = config.prepare
    flags: dict[str, object] = {
        "--weights": v_snap,
        "--out": paths.branch_data,
        "--mc-rows": mc_rows,
        "--seed": config.seed,
        "--iter-index": i,
        "--n": c.n,
        "--k": c.k,
        "--budget-s": c.budget_s,
        "--budget-evals": c.budget_evals,
        "--workers": c.workers,
        "--partial-input-p": c.partial_input_p,
        "--mc-target-p": c.mc_target_p,
        "--game": config.game,
        "--replays": config.replays,
        "--cache-dir": config.cache_dir,
    }
    return config.stage_command("prepare") + _words(flags)


def fit_argv(config: RunConfig, i: int, v_snap: Path, paths: AttemptPaths, mc_rows: Path) -> list[str]:
    """Stage 4 of iteration `i`; `config` is the attempt's. fit knows no iteration, so its seed includes `i`."""
    c = config.fit
    flags: dict[str, object] = {
        "--resume": v_snap,
        "--td-cache": paths.branch_data,
        "--mc-rows": mc_rows,
        "--output": paths.weights,
        "--lr": c.lr_peak,
        "--lr-warmup-frac": c.lr_warmup_frac,
        "--lr-hold-frac": c.lr_hold_frac,
        "--lr-floor-frac": c.lr_floor_frac,
        "--epochs": c.epochs,
        "--batches-per-epoch": c.batches_per_epoch,
        "--batch-size": c.batch_size,
        "--lambda-mc": c.lambda_mc,
        "--lambda-td": c.lambda_td,
        "--val-blowup-tau": c.val_blowup_tau,
        "--seed": config.seed + i,
    }
    return config.stage_command("fit") + _words(flags)


def gate_argv(config: RunConfig, i: int, candidate: Path, opponent: Path, paths: AttemptPaths) -> list[str]:
    """The match of iteration `i`; `config` is the attempt's, whose seed draws maps of its own."""
    elo0, elo1 = config.match.gate_elo
    seconds, evals = config.match.limit(config.prepare)
    contestants = [f"candidate={candidate.absolute()}", f"latest_good={opponent.absolute()}"]
    flags: dict[str, object] = {
        "--rounds": config.match.gate_rounds,
        "--budget-s": seconds,
        "--budget-evals": evals,
        "--seed": config.seed + i,
        "--workers": config.prepare.workers,
        "--game": config.game,
        "--store": paths.games,
        "--out": paths.match,
    }
    command = [sys.executable, "-m", "td_loop", "tournament", *contestants]
    return [*command, "--sprt", str(elo0), str(elo1), *_words(flags)]


def _words(flags: dict[str, object]) -> list[str]:
    """Paths are made absolute: a user's program may start in another folder."""
    words = []
    for flag, value in flags.items():
        if value is not None:
            words += [flag, str(value.absolute() if isinstance(value, Path) else value)]
    return words
