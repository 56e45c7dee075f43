"""Do the files of an attempt agree with its record?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td_loop.checks import Severity
from td_loop.checks.stage3 import no_mass_on_dead_seats, row_count, targets_are_distributions
from td_loop.checks.stage4 import final_val_mc_nll
from td_loop.errors import Blowup, DataError, WeightsError
from td_loop.files import as_float, dumps_json, read_json, sha256
from td_loop.loop import provenance
from td_loop.loop.fault import RESTORE, Fault, weights_fault
from td_loop.loop.layout import TRAINING_SHA256, AttemptPaths
from td_loop.loop.manifest import IterRecord, Json, Status
from td_loop.loop.outputs import check_weights, read_branch_data, read_training
from td_loop.loop.verify_manifest import MALFORMED, first_difference
from td_loop.loop.verify_mc_rows import McRows, games_of

REMAKE = "nothing needs this cache but S3.7 of the next iteration: delete it, or restore it"


@dataclass(frozen=True)
class AttemptFiles:
    """The files of one attempt that a record names, and what they are compared with.

    Attributes:
        run: the run directory.
        record: of the attempt.
        mc_rows: the run's validation rows; None where there are none to compare with.
    """

    run: Path
    record: IterRecord
    mc_rows: McRows | None

    @property
    def paths(self) -> AttemptPaths:
        return AttemptPaths(self.run, self.record.iter_dir)

    def _fault(self, path: Path, rule: str, what: str, found: Any, expected: Any, remedy: str = RESTORE) -> Fault:
        return Fault(str(path.relative_to(self.run)), rule, what, str(found), str(expected), remedy)

    def faults(self) -> list[Fault]:
        """What is wrong with each file, at most one fault a file: the first explains the others."""
        if not self.paths.folder.is_dir():
            what = "the folder of an attempt is missing"
            return [self._fault(self.paths.folder, "I9", what, "no such folder", "what the manifest names")]
        found: list[Fault | None] = []
        for check in (
            self._weights,
            self._validation,
            self._training,
            self._branch_data,
            self._match,
            self._games,
        ):
            try:
                found.append(next(check(), None))
            except (*MALFORMED, OSError) as e:
                what = "the record or a file of this attempt cannot be understood"
                said = f"{type(e).__name__} {e}"
                found.append(self._fault(self.paths.folder, "I9", what, said, "what this version writes"))
        return [fault for fault in found if fault is not None]

    # --- weights -----------------------------------------------------------------------------------------------

    def _weights(self) -> Iterator[Fault]:
        r = self.record
        if r.weights is None or r.weights_sha256 is None:
            return
        kind = "promoted weights" if r.status is Status.PROMOTED else f"{r.status} weights"
        fault = weights_fault(self.run, r.weights, r.weights_sha256, kind)
        if fault is not None:
            yield fault
            return
        try:
            check_weights(self.run / r.weights)
        except WeightsError as e:
            yield self._fault(self.run / r.weights, "I8", "weights cannot be used", e, "finite arrays")

    # --- validation.json ---------------------------------------------------------------------------------------

    def _read_validation(self) -> Json | None:
        """Its content; None where an interrupted attempt did not come so far."""
        if self.record.status is Status.INTERRUPTED and not self.paths.validation.exists():
            return None
        content = read_json(self.paths.validation)
        if not isinstance(content, dict):
            raise DataError(f"{self.paths.validation}: is not a JSON object")
        return content

    def _validation(self) -> Iterator[Fault]:
        path = self.paths.validation
        try:
            content = self._read_validation()
        except DataError as e:
            yield self._fault(path, "I9", "cannot be read", e, "every check of the attempt")
            return
        if content is None:
            return
        r = self.record
        interrupted = r.status is Status.INTERRUPTED
        stages: Json = {
            "stage3": r.stage3_validation,
            "stage4": r.stage4_validation,
            "knot_coverage": r.knot_coverage,
            **({} if r.gate is None else {"gate": r.gate}),
        }
        if interrupted:  # the signal may have come before the file was written again
            stages = {key: value for key, value in stages.items() if content.get(key) is not None}
        expected = {"i": r.i, "attempt": r.attempt, "status": None if interrupted else str(r.status), **stages}
        for key in content.keys() - {
            "i",
            "attempt",
            "status",
            "stage3",
            "stage4",
            "knot_coverage",
            *(() if r.gate is None else ("gate",)),
            TRAINING_SHA256,
        }:
            yield self._fault(path, "I9", "has a key that nobody writes", key, "the keys of this version")
        difference = first_difference({key: content.get(key, "no such key") for key in expected}, expected)
        if difference is not None:
            where, found, wanted = difference
            yield self._fault(
                path, "I9", f"{where} differs from the record in manifest.json", _json(found), _json(wanted)
            )

    # --- weights.training.json -----------------------------------------------------------------------------------

    def _training(self) -> Iterator[Fault]:
        r, path = self.record, self.paths.training
        if r.fit is None or r.stage4_validation is None or "failure" in r.stage4_validation:
            return  # fit did not run, or left nothing that could be judged
        if r.fit["exit_code"] not in (0, Blowup.exit_code):
            return  # its guard stopped it
        try:
            training = read_training(path)
        except DataError as e:
            yield self._fault(path, "I9", "cannot be read", e, "the report of fit")
            return
        judged = self._judged_training()
        if judged is not None and (digest := sha256(path)) != judged:
            what = "was changed after it was judged"
            yield self._fault(path, "I9", what, f"sha256 {digest[:12]}...", f"sha256 {judged[:12]}...")
        final, recorded = final_val_mc_nll(training), r.fit["final_val_mc_nll"]
        recorded = None if recorded is None else as_float(recorded)
        if dumps_json(final) != dumps_json(recorded):
            yield self._fault(path, "I9", "final_val_mc_nll is not the record's", final, recorded)
        if r.status is Status.PROMOTED and training.get("aborted") is not None:
            yield self._fault(path, "I8", "promoted, but fit gave up", _json(training["aborted"]), "aborted null")
        written = (training.get("output") or {}).get("sha256")
        if written is not None and r.weights_sha256 is not None and written != r.weights_sha256:
            what = "is the report of other weights"
            yield self._fault(path, "I8", what, f"sha256 {written[:12]}...", f"sha256 {r.weights_sha256[:12]}...")
        coverage = (r.knot_coverage or {}).get("coverage") or {}
        if coverage and first_difference(training.get("knot_coverage_stats"), coverage) is not None:
            where, found, wanted = first_difference(training.get("knot_coverage_stats"), coverage) or ("", "", "")
            yield self._fault(path, "I9", f"knot_coverage_stats differ from the record in {where}", found, wanted)

    def _judged_training(self) -> str | None:
        """Hash of the report that the checks looked at; None where validation.json cannot say."""
        try:
            found = (self._read_validation() or {}).get(TRAINING_SHA256)
        except DataError:
            return None
        return None if found is None else str(found)

    # --- gate.json, gate.games -----------------------------------------------------------------------------------

    def _match(self) -> Iterator[Fault]:
        return self._judged(self.paths.match, "result_sha256")

    def _games(self) -> Iterator[Fault]:
        return self._judged(self.paths.games, "games_sha256")

    def _judged(self, path: Path, key: str) -> Iterator[Fault]:
        """A file of the match is the one that decided."""
        expected = (self.record.gate or {}).get(key)
        if expected is None:  # no match, or none that had an end
            return
        digest = sha256(path) if path.is_file() else None
        if digest is None:
            yield self._fault(path, "I9", "is missing", "no such file", "what decided the match")
        elif digest != expected:
            what = "was changed after it was judged"
            yield self._fault(path, "I9", what, f"sha256 {digest[:12]}...", f"sha256 {expected[:12]}...")

    # --- branch_data.npz -----------------------------------------------------------------------------------------

    def judged_cache(self) -> bool:
        """Whether the attempt's `branch_data.npz` is there and passed its hard checks."""
        r = self.record
        if r.prepare is None or r.stage3_validation is None or not self.paths.branch_data.is_file():
            return False
        bad = (
            v.get("passed") is False and v.get("severity") == Severity.HARD for v in r.stage3_validation.values()
        )
        return "failure" not in r.stage3_validation and not any(bad)

    def _branch_data(self) -> Iterator[Fault]:
        r, path = self.record, self.paths.branch_data
        if not self.judged_cache():
            return
        assert r.prepare is not None
        assert r.stage3_validation is not None
        try:
            arrays, meta = read_branch_data(path, v_snap_sha256=r.v_snap_sha256)
        except DataError as e:
            yield self._fault(path, "I3, I4, I6", "is damaged or malformed", e, "a valid cache", REMAKE)
            return
        config, seen = r.stage3_validation["config"], self._cache_that_fit_read()
        if seen is not None and (digest := sha256(path)) != seen:
            what, expected = "is not the cache that fit read", f"sha256 {seen[:12]}..."
            yield self._fault(path, "I9", what, f"sha256 {digest[:12]}...", expected, REMAKE)
        n_r, n_a = len(arrays["branch_r_target"]), len(arrays["branch_a_target"])
        for rule, verdict in (
            ("I1", row_count(n_r, n_a, config["n"])),
            ("I5", no_mass_on_dead_seats(arrays)),
            ("I2", targets_are_distributions(arrays)),
        ):
            if verdict.passed is False:
                yield self._fault(
                    path, rule, f"{verdict.id} fails", verdict.message, "what it passed then", REMAKE
                )
        for name, found, expected in (
            ("n_r", n_r, r.prepare["n_r"]),
            ("n_a", n_a, r.prepare["n_a"]),
            *((f"meta {key}", meta.get(key), config.get(key)) for key in ("n", "k", "seed", "replay_set_hash")),
            ("meta iter_index", meta.get("iter_index"), r.i),
        ):
            # A prepare of the user's own need not say all of this.
            if found is not None and expected is not None and found != expected:
                yield self._fault(path, "I1", f"{name} is not the record's", found, expected, REMAKE)
        yield from self._separate(path, arrays)

    def _cache_that_fit_read(self) -> str | None:
        """Hash of the cache that the driver gave to fit; None where that is not noted."""
        found = (provenance.read(self.paths.folder).get("fit") or {}).get("branch_data")
        return None if found is None else str(found)

    def _separate(self, path: Path, arrays: dict[str, Any]) -> Iterator[Fault]:
        """I7: no game that validates gives rows to train on."""
        if self.mc_rows is None:
            return
        sets = {self.mc_rows.replay_set_hash, self.record.replay_set_hash} - {None}
        if len(sets) > 1:  # that is a fault of mc_rows.npz; rows of other games cannot be compared
            return
        for b in ("r", "a"):
            shared = games_of(arrays[f"branch_{b}_frame_id"]) & self.mc_rows.validation_games
            if shared:
                found = f"{len(shared)} of them, game {min(shared):#x} for one"
                yield self._fault(path, "I7", f"Branch {b.upper()} has rows of validation games", found, "none")


def _json(value: Any) -> str:
    """A JSON value on one line, of a length that can be read."""
    text = dumps_json(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."
