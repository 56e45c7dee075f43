"""What a fit starts from: the value function, the rows, and what it is judged on.

Two ways in. *Resume*: from V_snap on a branch_data cache, knots kept. *Bootstrap*: from nothing but outcomes,
knots derived here as quantiles of the training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import CacheError
from td_loop.files import sha256
from td_loop.fit.config import FitConfig
from td_loop.fit.data import Targets, TrainingRows, check_split, load_branch_data, load_mc_rows
from td_loop.rng import Stream, stream
from td_loop.value.io import load_weights
from td_loop.value.knots import coverage_stats, derive_knots
from td_loop.value.model import FORMAT_VERSION, SEGMENT_PLAYERS, SplineValue

SAMPLE_ROWS = 2048
"""Training losses are reported on at most so many rows each: a fixed random sample, the same in every epoch."""


@dataclass(frozen=True)
class Problem:
    """Everything that the training loop needs.

    Attributes:
        start: the value function before the first step.
        rows: what the steps draw from.
        val: the fixed validation rows.
        samples: by name of the history field (`train_mc_nll`, `sample_td_r_nll`, `sample_td_a_nll`), its rows; a
            branch without rows has an empty one.
        keep_best: write the weights of the epoch with the lowest val_mc_nll instead of the last one's.
        knot_coverage: `coverage_stats` of the rows under the knots of `start`.
        inputs: path and SHA-256 of every file read, by flag.
        warnings: what a person should know about the data.
    """

    start: SplineValue
    rows: TrainingRows
    val: Targets
    samples: dict[str, Targets]
    keep_best: bool
    knot_coverage: dict[str, Any]
    inputs: dict[str, dict[str, str]]
    warnings: tuple[str, ...]


def resume_problem(config: FitConfig, *, resume: Path, td_cache: Path, mc_rows: Path) -> Problem:
    """Fit on from the weights `resume` on the rows of `td_cache`, judged on the validation rows of `mc_rows`.

    Raises:
        WeightsError, CacheError: a file that cannot be used, or files that do not belong together.
    """
    start = load_weights(resume)
    branch = load_branch_data(td_cache, match=start)
    mc = load_mc_rows(mc_rows, match=start)
    check_split(td_cache, branch, mc_rows, mc)
    digest = sha256(resume)
    warnings = []
    made_with = branch.meta.get("v_snap_sha256")
    if made_with and made_with != digest:
        warnings.append(f"{td_cache} holds targets of other weights than {resume}")
    winners = _winning_seats(mc.train)
    if len(winners) == 1:
        warnings.append(f"seat {winners[0]} wins every game of the replay set: outcomes say little")
    td = branch.td
    return Problem(
        start=_with_parent(start, digest),
        rows=TrainingRows(td.features, td.n_players, td.alive, td.target, branch.mc_target, branch.has_mc),
        val=mc.val,
        samples={
            "train_mc_nll": _sample(config, mc.train, 0),
            "sample_td_r_nll": _sample(config, td.take(~branch.is_agent), 1),
            "sample_td_a_nll": _sample(config, td.take(branch.is_agent), 2),
        },
        keep_best=False,
        knot_coverage=coverage_stats(start.knots, start.feature_names, td.features, td.n_players, td.alive),
        inputs=_inputs({"resume": resume, "td_cache": td_cache, "mc_rows": mc_rows}),
        warnings=tuple(warnings),
    )


def bootstrap_problem(config: FitConfig, *, mc_rows: Path) -> Problem:
    """Fit from outcomes alone. It starts as the constant predictor, so that is also its baseline.

    Raises:
        CacheError: a file that cannot be used, or whose training games all have the same winner.
    """
    mc = load_mc_rows(mc_rows)
    train = mc.train
    winners = _winning_seats(train)
    if len(winners) == 1:
        raise CacheError(
            f"{mc_rows}: seat {winners[0]} wins every training game, so there is nothing to tell winners from "
            "losers by; add games that other seats win"
        )
    names = tuple(mc.meta["feature_names"])
    knots = derive_knots(train.features, train.alive, config.n_knots)
    meta = {
        "format_version": FORMAT_VERSION,
        "game": mc.meta.get("game"),
        "gamma": mc.meta["gamma"],
        "parent_sha256": None,
    }
    start = SplineValue(knots, np.zeros((len(SEGMENT_PLAYERS), *knots.shape)), names, meta)
    missing = _segments_without_rows(train)
    warnings = tuple(
        f"no training game of {SEGMENT_PLAYERS[s]} players: its curves are copied from the other segment"
        for s in missing
    )
    everywhere = np.ones(len(train), np.bool_)
    return Problem(
        start=start,
        rows=TrainingRows(train.features, train.n_players, train.alive, None, train.target, everywhere),
        val=mc.val,
        samples={
            "train_mc_nll": _sample(config, train, 0),
            "sample_td_r_nll": train.take(~everywhere),
            "sample_td_a_nll": train.take(~everywhere),
        },
        keep_best=True,
        knot_coverage=coverage_stats(knots, names, train.features, train.n_players, train.alive),
        inputs=_inputs({"mc_rows": mc_rows}),
        warnings=warnings,
    )


def fill_missing_segments(v: SplineValue, rows: TrainingRows) -> SplineValue:
    """Copy curves into a segment that had no training rows: better than a V that knows nothing there."""
    with_rows = Targets(rows.features, rows.n_players, rows.alive, rows.mc_target)
    coef = v.coef.copy()
    for s in _segments_without_rows(with_rows):
        coef[s] = coef[1 - s]
    return SplineValue(v.knots, coef, v.feature_names, v.meta)


def _segments_without_rows(rows: Targets) -> list[int]:
    four = rows.n_players > SEGMENT_PLAYERS[0]
    return [s for s, mask in enumerate((~four, four)) if not mask.any()]


def _winning_seats(rows: Targets) -> list[int]:
    """Seats that win, alone or not, in any row."""
    return [int(p) for p in np.flatnonzero((rows.target > 0).any(axis=0))]


def _sample(config: FitConfig, rows: Targets, index: int) -> Targets:
    """A fixed random sample of at most SAMPLE_ROWS rows, in their order."""
    if len(rows) <= SAMPLE_ROWS:
        return rows
    rng = stream(config.seed, Stream.FIT, index)
    chosen: npt.NDArray[np.int64] = np.sort(rng.choice(len(rows), SAMPLE_ROWS, replace=False))
    return rows.take(chosen)


def _with_parent(v: SplineValue, digest: str) -> SplineValue:
    return SplineValue(v.knots, v.coef, v.feature_names, {**v.meta, "parent_sha256": digest})


def _inputs(paths: dict[str, Path]) -> dict[str, dict[str, str]]:
    return {flag: {"path": str(path), "sha256": sha256(path)} for flag, path in paths.items()}
