"""One attempt of an iteration: prepare, check, fit, check, play. It ends with a record; it promotes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from td_loop.checks import Severity, Verdict, failed, knot_coverage, stage3, stage4
from td_loop.checks.stage3 import NO_PREVIOUS
from td_loop.checks.stage4 import final_val_mc_nll, stopped_by_guard
from td_loop.errors import DataError, StorageError
from td_loop.files import disk_free, fsync_file, move, sha256, write_json
from td_loop.loop import console as text
from td_loop.loop import gate, guarded, provenance, reuse
from td_loop.loop.config import Gate, RunConfig
from td_loop.loop.cost import iteration_bytes, work_of
from td_loop.loop.layout import BRANCH_DATA, MC_ROWS, TRAINING_SHA256, AttemptPaths
from td_loop.loop.manifest import IterRecord, Json, Manifest, Status
from td_loop.loop.outputs import (
    check_report,
    check_weights,
    n_features,
    read_branch_data,
    read_prior_targets,
    read_training,
    require_file,
)
from td_loop.loop.process import last_error
from td_loop.loop.stages import fit_argv, gate_argv, prepare_argv
from td_loop.text import size

FIT_BLOWUP = 2
"""fit's exit code after a mid-run blow-up; only with the `aborted` marker beside it."""

RunStage = Callable[[str, Sequence[str], Path], int]
"""(stage, command line, log file) -> exit code; raises Interrupted."""


@dataclass
class Attempt:
    """Runs one attempt. `record` says at any moment how far it has come, and reads "interrupted" until it ends.

    Attributes:
        run: the run directory.
        config: settings of this attempt (a retry has its own).
        manifest: the run before this attempt.
        record: so far.
        run_stage: runs a stage program.
        say: receives, in a line, what is reused and why something is not.
        training_sha256: hash of fit's report as it was judged; None before.
    """

    run: Path
    config: RunConfig
    manifest: Manifest
    record: IterRecord
    run_stage: RunStage
    say: Callable[[str], None]
    training_sha256: str | None = None

    @property
    def paths(self) -> AttemptPaths:
        return AttemptPaths(self.run, self.record.iter_dir)

    @property
    def v_snap(self) -> Path:
        return self.run / self.record.v_snap

    def execute(self) -> IterRecord:
        """Run it to its end.

        Raises:
            Interrupted: by a signal; `record` holds what was done.
        """
        status = self._prepare() or self._fit() or self._gate() or Status.PROMOTED
        self.record = replace(self.record, status=status, promoted_to_latest_good=status is Status.PROMOTED)
        self._write_validation()
        return self.record

    def _prepare(self) -> Status | None:
        """Stage 3 and its checks; a status if the attempt ends here."""
        c, i = self.config, self.record.i
        earlier = [r for r in self.manifest.iters if r.i < i]
        exit_code, wall_s = self._prepared(earlier)
        done: Json = {
            "wall_s": wall_s,
            "exit_code": exit_code,
            "n_r": None,
            "n_a": None,
            "engine_fallback_rate": None,
        }
        p = c.prepare
        settings: Json = {
            "n": p.n,
            "k": p.k,
            "budget_s": p.budget_s,
            "budget_evals": p.budget_evals,
            "workers": p.workers,
            "seed": c.seed,
            "seg_uniform_tau": c.checks.seg_uniform_tau,
            "max_fallback_rate": c.checks.max_fallback_rate,
        }
        if exit_code != 0:
            return self._stage3(done, settings, (), _exit_failure("prepare", exit_code, self.paths))
        try:
            asked = {"n": p.n, "k": p.k, "seed": c.seed, "iter_index": i}
            digest = self.record.v_snap_sha256
            require_file(self.paths.branch_data)
            cache, meta = read_branch_data(self.paths.branch_data, v_snap_sha256=digest, asked=asked)
        except DataError as e:
            return self._stage3(done, settings, (), f"prepare exited with 0 but left no valid output: {e}")
        provenance.finish(self.paths.folder, "prepare", self.paths.branch_data)
        # With what an earlier prepare did of it, which was stopped on its way.
        done["wall_s"] = max(wall_s, reuse.seconds(meta))
        replays = meta.get("replay_set_hash")
        settings |= {"replay_set_hash": replays}
        if failure := _other_replays(earlier, replays):
            return self._stage3(done, settings, (), failure)
        previous, lacking = self._previous_targets(earlier)
        verdicts = stage3(
            cache,
            n=p.n,
            k=p.k,
            seg_uniform_tau=c.checks.seg_uniform_tau,
            max_fallback_rate=c.checks.max_fallback_rate,
            previous=previous,
            lacking=lacking,
            previous_kls=[r.check_number("S3.7", "kl") for r in earlier],
        )
        done |= {
            "n_r": len(cache["branch_r_target"]),
            "n_a": len(cache["branch_a_target"]),
            "engine_fallback_rate": next(v for v in verdicts if v.id == "S3.5").numbers["rate"],
        }
        return self._stage3(done, settings, verdicts, None)

    def _prepared(self, earlier: Sequence[IterRecord]) -> tuple[int, float]:
        """Have `branch_data.npz` where it belongs: taken back, or made. Exit code and wall seconds."""
        c, i, paths = self.config, self.record.i, self.paths
        wanted = provenance.of_prepare(c, i, self.record.v_snap_sha256)
        left = reuse.left_by(self.run, paths.name)
        search = reuse.prepared(left, wanted, mc_rows=self.run / MC_ROWS, before=earlier[-1] if earlier else None)
        begun = reuse.chunks(left, wanted)
        # That it goes on from chunks, prepare says itself, with how many rows they are.
        self._tell("prepare", search if search.found or search.why or begun.found else begun)
        provenance.write(paths.folder, prepare=wanted)
        if search.found is not None:
            move(search.found.paths.branch_data, paths.branch_data)
            return 0, search.found.wall_s
        if begun.found is not None:
            move(begun.found.paths.chunks, paths.chunks)
        self._check_disk()
        return self._timed("prepare", prepare_argv(c, i, self.v_snap, paths, self.run / MC_ROWS))

    def _check_disk(self) -> None:
        """Refuse to start what would fill the disk.

        Raises:
            StorageError: names the bytes wanted.
        """
        mc_rows = self.run / MC_ROWS
        needed = iteration_bytes(work_of(self.config), n_features(self.v_snap), mc_rows=not mc_rows.exists())
        free = disk_free(self.run)
        if needed > free:
            raise StorageError(
                f"{self.run}: iteration {self.record.i} needs about {size(needed)}, {size(free)} is free; free "
                f"{size(needed - free)}, or give a smaller --n, and run the same command again"
            )

    def _previous_targets(self, earlier: Sequence[IterRecord]) -> tuple[dict[str, Any] | None, str]:
        """What S3.7 compares with, or None and why."""
        if not earlier:
            return None, NO_PREVIOUS
        try:
            return read_prior_targets(self.run / earlier[-1].iter_dir / BRANCH_DATA), ""
        except DataError as e:
            return None, f"the cache of iteration {earlier[-1].i} cannot be read: {e}"

    def _stage3(
        self, done: Json, settings: Json, verdicts: Sequence[Verdict], failure: str | None
    ) -> Status | None:
        self.record = replace(self.record, prepare=done, stage3_validation=_records(verdicts, settings, failure))
        self._write_validation()
        return Status.HARD_ABORTED if failure or failed(verdicts, Severity.HARD) else None

    def _fit(self) -> Status | None:
        """Stage 4 and its checks; a status if the attempt ends here."""
        c = self.config
        exit_code, wall_s = self._fitted()
        done: Json = {"wall_s": wall_s, "exit_code": exit_code, "final_val_mc_nll": None}
        settings = {
            "epochs": c.fit.epochs,
            "batches_per_epoch": c.fit.batches_per_epoch,
            "batch_size": c.fit.batch_size,
            "lr_peak": c.fit.lr_peak,
            "val_blowup_tau": c.fit.val_blowup_tau,
            "val_regression_tau": c.checks.val_regression_tau,
            "knot_above_top_tau": c.checks.knot_above_top_tau,
            "knot_below_first_tau": c.checks.knot_below_first_tau,
        }
        try:
            watched = guarded.outcome(c, self.paths)
        except DataError as e:
            failure = f"fit exited with {exit_code}, but its guard left no valid log: {e}"
            return self._stage4(done, settings, (), failure)
        if watched is not None:
            done["guard"] = watched
        if watched is not None and guarded.gave_up(exit_code, watched):
            return self._stage4(done, settings, (stopped_by_guard(exit_code, watched),), None)
        if exit_code not in (0, FIT_BLOWUP):
            return self._stage4(done, settings, (), _exit_failure("fit", exit_code, self.paths))
        try:
            training = read_training(self.paths.training)
            digest = sha256(self.paths.branch_data)
            check_report(training, self.paths.training, self.paths.weights, branch_data_sha256=digest)
        except DataError as e:
            return self._stage4(done, settings, (), f"fit exited with {exit_code} but left no valid report: {e}")
        if exit_code == FIT_BLOWUP and training.get("aborted") is None:
            failure = f"fit exited with 2 without an 'aborted' marker in {self.paths.training}"
            return self._stage4(done, settings, (), failure)
        self.training_sha256 = sha256(self.paths.training)
        done["final_val_mc_nll"] = final_val_mc_nll(training)
        coverage = knot_coverage(
            training.get("knot_coverage_stats"),
            above_top_tau=c.checks.knot_above_top_tau,
            below_first_tau=c.checks.knot_below_first_tau,
        )
        self.record = replace(self.record, knot_coverage=coverage.as_json())
        best = self.manifest.best_val
        verdicts = stage4(
            training,
            exit_code=exit_code,
            best_val_so_far=None if best is None else best.val_mc_nll,
            val_regression_tau=c.checks.val_regression_tau,
        )
        return self._stage4(done, settings, verdicts, self._take_weights(exit_code))

    def _fitted(self) -> tuple[int, float]:
        """Have the weights and their report where they belong: taken back, or made. Exit code and wall seconds."""
        c, i, paths, mc_rows = self.config, self.record.i, self.paths, self.run / MC_ROWS
        wanted = provenance.of_fit(c, i, self.record.v_snap_sha256, paths.branch_data, mc_rows)
        search = reuse.fitted(reuse.left_by(self.run, paths.name), wanted, self.v_snap)
        self._tell("fit", search)
        provenance.write(paths.folder, fit=wanted)
        if search.found is not None:
            move(search.found.paths.weights, paths.weights)
            move(search.found.paths.training, paths.training)
            return 0, search.found.wall_s
        return self._timed("fit", guarded.watched(c, paths, fit_argv(c, i, self.v_snap, paths, mc_rows)))

    def _gate(self) -> Status | None:
        """The match against `latest_good`, where a promotion needs one; a status if the attempt ends here."""
        c, r = self.config, self.record
        if c.gate is Gate.NONE:
            return None
        begun = gate.begun(c, c.seed + r.i)
        self.record = replace(r, gate=begun)
        self._write_validation()  # so that one who looks on sees that a match is played
        exit_code, wall_s = self._played()
        ended = begun | {"wall_s": wall_s, "exit_code": exit_code}
        try:
            if exit_code in gate.VERDICTS:
                ended = gate.played(ended, self.paths, r.v_snap)
                fsync_file(self.paths.games)
            else:
                ended["failure"] = _exit_failure("gate", exit_code, self.paths)
        except DataError as e:
            ended["failure"] = f"gate exited with {exit_code} but left no valid result: {e}"
        self.record = replace(r, gate=ended)
        return gate.status(ended)

    def _played(self) -> tuple[int, float]:
        """Play the match to its end, with the games that an earlier one left. Exit code and wall seconds."""
        c, i, paths = self.config, self.record.i, self.paths
        wanted = provenance.of_gate(c, i, paths.weights, self.record.v_snap_sha256)
        begun = reuse.games(reuse.left_by(self.run, paths.name), wanted)
        if line := text.begun_line("gate", "games", paths.name, begun):
            self.say(line)
        provenance.write(paths.folder, gate=wanted)
        if begun.found is not None:
            move(begun.found.paths.games, paths.games)
        return self._timed("gate", gate_argv(c, i, paths.weights, self.v_snap, paths))

    def _tell(self, stage: str, search: reuse.Search) -> None:
        if line := text.reuse_line(stage, self.paths.name, search):
            self.say(line)

    def _take_weights(self, exit_code: int) -> str | None:
        """Enter the weights into the record if they are valid; what is wrong with them if they had to be."""
        weights = self.paths.weights
        try:
            require_file(weights)
            check_weights(weights, self.v_snap)
            digest = sha256(weights)
            if digest == self.record.v_snap_sha256:
                raise DataError(f"{weights}: is V_snap itself, byte for byte; nothing was fitted")
        except DataError as e:
            return None if exit_code == FIT_BLOWUP else f"fit exited with 0 but left no valid output: {e}"
        fsync_file(weights)
        name = str(weights.relative_to(self.run))
        self.record = replace(self.record, weights=name, weights_sha256=digest)
        if exit_code == 0:
            provenance.finish(self.paths.folder, "fit", weights)
        return None

    def _stage4(
        self, done: Json, settings: Json, verdicts: Sequence[Verdict], failure: str | None
    ) -> Status | None:
        self.record = replace(self.record, fit=done, stage4_validation=_records(verdicts, settings, failure))
        if failure or failed(verdicts, Severity.HARD):
            return Status.HARD_ABORTED
        return Status.REVERTED if failed(verdicts, Severity.SOFT) else None

    def _timed(self, stage: str, argv: Sequence[str]) -> tuple[int, float]:
        start = time.monotonic()
        exit_code = self.run_stage(stage, argv, self.paths.log(stage))
        return exit_code, round(time.monotonic() - start, 3)

    def _write_validation(self) -> None:
        r = self.record
        write_json(
            self.paths.validation,
            {
                "i": r.i,
                "attempt": r.attempt,
                "status": None if r.status is Status.INTERRUPTED else r.status,
                "stage3": r.stage3_validation,
                "stage4": r.stage4_validation,
                "knot_coverage": r.knot_coverage,
                TRAINING_SHA256: self.training_sha256,
                **({} if r.gate is None else {"gate": r.gate}),
            },
        )


def _records(verdicts: Sequence[Verdict], settings: Json, failure: str | None) -> Json:
    """A `stage*_validation` entry: verdicts by id, the settings behind them, and why there are none."""
    records: dict[str, Any] = {v.id: v.as_json() for v in verdicts}
    records["config"] = settings
    return records if failure is None else records | {"failure": failure}


def _other_replays(earlier: Sequence[IterRecord], found: str | None) -> str | None:
    """What is wrong when an iteration learned from other replays than the one before it."""
    wanted = earlier[-1].replay_set_hash if earlier else None
    if wanted is None or found == wanted:
        return None
    return (
        f"prepare used other replays than iteration {earlier[-1].i}, so its validation rows are others too; go "
        "back to the replays of the earlier iterations, or start under another --tag"
    )


def _exit_failure(stage: str, exit_code: int, paths: AttemptPaths) -> str:
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"
    memory = " (out of memory?)" if exit_code == -9 else ""
    log = paths.log(stage)
    said = last_error(log)
    return f"{stage} {how}{memory}" + (f": {said}" if said else "") + f"; its output is in {log}"
