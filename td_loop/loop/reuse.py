"""Finished work of attempts that a kill, a revert or an abort ended: found, checked, and taken back.

Attempts that no record names lie whole in `trimmed/`. The next attempt of the same name takes a finished output
back from there when its provenance is the same and it passes every check that it would have to pass anew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from td_loop.checks import Severity, failed, stage4
from td_loop.checks.stage3 import no_mass_on_dead_seats, row_count, targets_are_distributions
from td_loop.errors import DataError
from td_loop.loop import provenance
from td_loop.loop.layout import TRIMMED, AttemptPaths
from td_loop.loop.manifest import IterRecord
from td_loop.loop.outputs import check_report, check_weights, read_branch_data, read_training
from td_loop.loop.provenance import Json
from td_loop.npz import load_npz


@dataclass(frozen=True)
class Found:
    """A finished output.

    Attributes:
        paths: the attempt that it is of.
        wall_s: what making it took, as far as it says.
    """

    paths: AttemptPaths
    wall_s: float


@dataclass(frozen=True)
class Search:
    """What a search for a finished output came to.

    Attributes:
        found: the output, or None: the stage has to run.
        why: one line, in words, why one that was there cannot be used; empty where there was none.
    """

    found: Found | None
    why: str = ""


def left_by(run: Path, name: str, *, unnamed: bool = False) -> list[AttemptPaths]:
    """The attempts called `name` that were set aside, newest first.

    `unnamed`: so will be the folder `name` itself, which no record names (a resume sets it aside first).
    """
    pattern = re.compile(re.escape(name) + r"(?:\.(\d+))?")
    folder = run / TRIMMED
    matches = ((p.name, pattern.fullmatch(p.name)) for p in (folder.iterdir() if folder.is_dir() else ()))
    aside = sorted(((int(m[1] or 0), name) for name, m in matches if m), reverse=True)
    here = [name] if unnamed and (run / name).is_dir() else []
    return [AttemptPaths(run, n) for n in here + [f"{TRIMMED}/{n}" for _, n in aside]]


def prepared(left: list[AttemptPaths], wanted: Json, *, mc_rows: Path, before: IterRecord | None) -> Search:
    """Look for a finished `branch_data.npz`.

    Args:
        left: where, see `left_by`.
        wanted: the provenance that it must have.
        mc_rows: the outcome rows that fit will read with it; they must be of the same replays.
        before: the iteration before, which learned from the same replays; None: there is none.
    """

    def judge(paths: AttemptPaths) -> float:
        asked = {key: wanted[key] for key in ("n", "k", "seed", "iter_index")}
        cache, meta = read_branch_data(paths.branch_data, v_snap_sha256=wanted["V_snap"], asked=asked)
        if before and before.replay_set_hash not in (None, meta.get("replay_set_hash")):
            raise DataError("the replay set is another")
        if (mine := meta.get("replay_set_hash")) is not None:
            _, rows_meta = load_npz(mc_rows, names=())
            if rows_meta.get("replay_set_hash") != mine:
                raise DataError(f"{mc_rows.name} is of another replay set")
        rows = row_count(len(cache["branch_r_target"]), len(cache["branch_a_target"]), wanted["n"])
        for verdict in failed(
            (no_mass_on_dead_seats(cache), rows, targets_are_distributions(cache)), Severity.HARD
        ):
            raise DataError(f"it failed {verdict.id}")
        return seconds(meta)

    found = [(p, p.branch_data) for p in left if p.branch_data.is_file()]
    return _search(found, "prepare", wanted, judge)


def fitted(left: list[AttemptPaths], wanted: Json, v_snap: Path) -> Search:
    """Look for a finished fit: weights, and the report about them."""

    def judge(paths: AttemptPaths) -> float:
        training = read_training(paths.training)
        check_report(training, paths.training, paths.weights, branch_data_sha256=wanted["branch_data"])
        if training.get("aborted") is not None:
            raise DataError("it was aborted")
        verdicts = stage4(training, exit_code=0, best_val_so_far=None, val_regression_tau=math.inf)
        for verdict in failed(verdicts, Severity.HARD):
            raise DataError(f"it failed {verdict.id}")
        check_weights(paths.weights, v_snap)
        return seconds(training)

    found = [(p, p.weights) for p in left if p.weights.is_file() and p.training.is_file()]
    return _search(found, "fit", wanted, judge)


def chunks(left: list[AttemptPaths], wanted: Json) -> Search:
    """Look for the finished chunks of a prepare that was stopped on its way."""
    return _begun([(p, p.chunks) for p in left], "prepare", wanted)


def games(left: list[AttemptPaths], wanted: Json) -> Search:
    """Look for the games of a match, whether it was stopped on its way or had an end."""
    return _begun([(p, p.games) for p in left], "gate", wanted)


def _begun(left: list[tuple[AttemptPaths, Path]], stage: str, wanted: Json) -> Search:
    why = ""
    for paths, output in left:
        if not output.is_file():
            continue
        reason = provenance.difference(provenance.read(paths.folder).get(stage), wanted)
        if reason is None:
            return Search(Found(paths, 0.0))
        why = why or f"{reason} ({paths.name})"
    return Search(None, why)


def _search(
    left: list[tuple[AttemptPaths, Path]], stage: str, wanted: Json, judge: Callable[[AttemptPaths], float]
) -> Search:
    why = ""
    for paths, output in left:
        noted = provenance.read(paths.folder).get(stage)
        reason = provenance.difference(noted, wanted)
        # Our own stages put a file in place when it is whole, fit its report last. Of other programs that is not
        # known: they may write as they go, and fail after that.
        if reason is None and wanted[f"{stage}_cmd"] is not None and not provenance.finished(noted, output):
            reason = "it did not end well"
        if reason is None:
            try:
                return Search(Found(paths, judge(paths)))
            except DataError as e:
                reason = str(e)
        why = why or f"{reason} ({paths.name})"
    return Search(None, why)


def seconds(report: Json) -> float:
    """Wall seconds of a stage by its own account; 0 where it gives none."""
    wall_s = report.get("wall_s")
    return round(float(wall_s), 3) if isinstance(wall_s, int | float) else 0.0
