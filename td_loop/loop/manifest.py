"""manifest.json: the single source of truth of a run, and how it changes.

Values are frozen; every change makes a new manifest, which the driver then writes. Keys are those of the seed
document, plus `schema_version`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from td_loop.errors import DataError, ManifestError
from td_loop.files import as_float, read_json, write_json
from td_loop.loop.layout import BOOTSTRAP_COPY, MANIFEST

SCHEMA_VERSION = 1

Json = dict[str, Any]

RECORD_KEYS = (
    "i",
    "attempt",
    "iter_dir",
    "weights",
    "v_snap",
    "v_snap_sha256",
    "prepare",
    "stage3_validation",
    "fit",
    "stage4_validation",
    "knot_coverage",
    "status",
    "promoted_to_latest_good",
    "weights_sha256",
)
"""Keys of an iteration's record, in the order of docs/td_outer_loop.md; a match adds `gate`, a retry
`previous_attempt`."""


class Status(StrEnum):
    """How an attempt of an iteration ended."""

    PROMOTED = "promoted"
    REVERTED = "reverted"
    HARD_ABORTED = "hard_aborted"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class IterRecord:
    """One iteration's last attempt. Paths are relative to the run directory.

    Attributes:
        i: iteration.
        attempt: 0, or 1 for the retry.
        iter_dir: the attempt's folder.
        v_snap: the weights that made its targets.
        v_snap_sha256: their hash.
        status: how it ended.
        weights: what fit wrote; None where there is no valid file.
        prepare: `wall_s`, `exit_code`, `n_r`, `n_a`, `engine_fallback_rate`; None: not run.
        stage3_validation: S3.* records and `config`; `failure` where prepare gave no usable output.
        fit: `wall_s`, `exit_code`, `final_val_mc_nll`; None: not run.
        stage4_validation: S4.* records and `config`; `failure` where fit gave no usable output.
        knot_coverage: see `td_loop.checks.KnotCoverage`.
        promoted_to_latest_good: whether `latest_good` moved to `weights`.
        weights_sha256: hash of `weights`.
        gate: the match against `v_snap`, see `td_loop.loop.gate`; there is such a key only where one was begun.
        previous_attempt: the record that this retry replaces; in a first attempt there is no such key.
    """

    i: int
    attempt: int
    iter_dir: str
    v_snap: str
    v_snap_sha256: str
    status: Status
    weights: str | None = None
    prepare: Json | None = None
    stage3_validation: Json | None = None
    fit: Json | None = None
    stage4_validation: Json | None = None
    knot_coverage: Json | None = None
    promoted_to_latest_good: bool = False
    weights_sha256: str | None = None
    gate: Json | None = None
    previous_attempt: Json | None = None

    def as_json(self) -> Json:
        """In the key order of docs/td_outer_loop.md."""
        plain = asdict(self) | {"status": str(self.status)}
        more = {key: plain[key] for key in ("gate", "previous_attempt") if plain[key] is not None}
        return {key: plain[key] for key in RECORD_KEYS} | more

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> IterRecord:
        """From the file's content.

        Raises:
            KeyError, TypeError, ValueError: it is not a record.
        """
        return IterRecord(**{**raw, "status": Status(raw["status"])})

    @property
    def retried(self) -> IterRecord | None:
        """The record of the attempt that this one retries; None in a first attempt. Raises as `from_json`."""
        return None if self.previous_attempt is None else IterRecord.from_json(self.previous_attempt)

    @property
    def replay_set_hash(self) -> str | None:
        """Of the replays that it learned from; None where its prepare does not say."""
        found = ((self.stage3_validation or {}).get("config") or {}).get("replay_set_hash")
        return None if found is None else str(found)

    def check_number(self, check: str, key: str) -> float | None:
        """A number of a stage-3 check ("S3.7", "kl"); None where the check had no data."""
        value = ((self.stage3_validation or {}).get(check) or {}).get("numbers", {}).get(key)
        return None if value is None else as_float(value)


@dataclass(frozen=True)
class BestVal:
    """The promoted iteration with the lowest final `val_mc_nll`."""

    iter: int
    val_mc_nll: float
    path: str


@dataclass(frozen=True)
class Manifest:
    """State of a run. `hyperparams` and `hyperparams_current` of the file are the same values."""

    tag: str
    bootstrap_sha256: str
    hyperparams_initial: Json
    hyperparams_current: Json
    hyperparams_history: tuple[Json, ...]
    iters: tuple[IterRecord, ...] = ()
    latest_good: str = BOOTSTRAP_COPY
    best_val: BestVal | None = None

    @staticmethod
    def new(tag: str, bootstrap_sha256: str, hyperparams: Json) -> Manifest:
        """The manifest of a run that has done nothing yet."""
        first = {"resume_index": 0, "hyperparams": hyperparams}
        return Manifest(tag, bootstrap_sha256, hyperparams, hyperparams, (first,))

    def resumed(self, tag: str, hyperparams: Json) -> Manifest:
        """As a new invocation starts: trailing records that were not promoted dropped, hyperparams refreshed."""
        iters = self.iters
        while iters and iters[-1].status is not Status.PROMOTED:
            iters = iters[:-1]
        history = self.hyperparams_history
        if hyperparams != self.hyperparams_current:
            history = (*history, {"resume_index": len(history), "hyperparams": hyperparams})
        return replace(self, tag=tag, iters=iters, hyperparams_current=hyperparams, hyperparams_history=history)

    def with_record(self, record: IterRecord) -> Manifest:
        """With an attempt's record: appended, or in place of the same iteration's earlier attempt.

        A promoted record also moves `latest_good`, and `best_val` when its loss is the lowest so far.
        """
        kept = self.iters[:-1] if self.iters and self.iters[-1].i == record.i else self.iters
        after = replace(self, iters=(*kept, record))
        if record.status is not Status.PROMOTED:
            return after
        assert record.weights is not None
        assert record.fit is not None
        loss = as_float(record.fit["final_val_mc_nll"])
        best = self.best_val
        if math.isfinite(loss) and (best is None or loss < best.val_mc_nll):
            best = BestVal(record.i, loss, record.weights)
        return replace(after, latest_good=record.weights, best_val=best)

    def as_json(self) -> Json:
        """The file's content."""
        return {
            "schema_version": SCHEMA_VERSION,
            "tag": self.tag,
            "bootstrap_sha256": self.bootstrap_sha256,
            "hyperparams": self.hyperparams_current,
            "hyperparams_initial": self.hyperparams_initial,
            "hyperparams_current": self.hyperparams_current,
            "hyperparams_history": list(self.hyperparams_history),
            "iters": [record.as_json() for record in self.iters],
            "latest_good": self.latest_good,
            "best_val": None if self.best_val is None else asdict(self.best_val),
        }


def write_manifest(run: Path, manifest: Manifest) -> None:
    """Write it, atomically."""
    write_json(run / MANIFEST, manifest.as_json())


def read_manifest(run: Path) -> Manifest | None:
    """The manifest of a run directory; None where there is none yet.

    Raises:
        ManifestError: it cannot be read, or is not what this version writes.
    """
    path = run / MANIFEST
    if not path.exists():
        return None
    try:
        content = read_json(path)
    except DataError as e:
        raise ManifestError(f"{e}; restore it from a copy, or start anew under another --tag") from e
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise ManifestError(
            f"{path}: schema_version is {version!r}, this program reads {SCHEMA_VERSION}; use the version that "
            "wrote it, or another --tag"
        )
    try:
        return _parse(content)
    except (KeyError, TypeError, ValueError, AttributeError, DataError) as e:
        raise ManifestError(
            f"{path}: {type(e).__name__} {e}: not a manifest of td_loop; restore it, or use another --tag"
        ) from e


def _parse(content: Json) -> Manifest:
    best = content["best_val"]
    if best is not None:
        best = BestVal(int(best["iter"]), as_float(best["val_mc_nll"]), str(best["path"]))
        # A best that is no number would block every later iteration; the next promoted one takes its place.
        best = best if math.isfinite(best.val_mc_nll) else None
    return Manifest(
        tag=str(content["tag"]),
        bootstrap_sha256=str(content["bootstrap_sha256"]),
        hyperparams_initial=dict(content["hyperparams_initial"]),
        hyperparams_current=dict(content["hyperparams_current"]),
        hyperparams_history=tuple(dict(entry) for entry in content["hyperparams_history"]),
        iters=tuple(_parse_record(record) for record in content["iters"]),
        latest_good=str(content["latest_good"]),
        best_val=best,
    )


def _parse_record(record: Mapping[str, Any]) -> IterRecord:
    parsed = IterRecord.from_json(record)
    if parsed.status is Status.PROMOTED and not (parsed.weights and parsed.weights_sha256 and parsed.fit):
        raise ValueError(f"iteration {parsed.i} is promoted but names no weights")
    return parsed
