"""Where things lie in a run directory. Paths inside it are kept relative, so that it can be moved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"
LATEST_GOOD = "latest_good.npz"
BEST_VAL = "best_val.npz"
LOCK = ".lock"
TRIMMED = "trimmed"
MC_ROWS = "mc_rows.npz"
V_SNAP = "V_snap.npz"
BOOTSTRAP_COPY = f"iter0/{V_SNAP}"
BRANCH_DATA = "branch_data.npz"
CHUNKS = "branch_data.chunks"
WEIGHTS = "weights.npz"
TRAINING = "weights.training.json"
VALIDATION = "validation.json"
PROVENANCE = "provenance.json"
GAMES = "gate.games"
MATCH = "gate.json"
GUARD = "guard"

TRAINING_SHA256 = "training_sha256"
"""Key of validation.json: the hash of the report that the checks judged."""

RUN_FILES = (MANIFEST, LATEST_GOOD, BEST_VAL, MC_ROWS)
ATTEMPT_FILES = (V_SNAP, BRANCH_DATA, CHUNKS, WEIGHTS, TRAINING, VALIDATION, PROVENANCE, GAMES, MATCH)

_ITER_DIR = re.compile(r"iter(\d+)(?:_retry(\d+))?")
_TRIMMED_DIR = re.compile(_ITER_DIR.pattern + r"(?:\.\d+)?")


def run_dir(runs_dir: Path, tag: str) -> Path:
    """The folder of the run `tag`."""
    return runs_dir / f"td_loop_{tag}"


def iter_dir(i: int, attempt: int) -> str:
    """Name of an attempt's folder: `iter3`, `iter3_retry1`."""
    return f"iter{i}_retry{attempt}" if attempt else f"iter{i}"


def iter_dirs(run: Path) -> dict[str, int]:
    """The attempt folders that exist, with the iteration each belongs to."""
    return _matching(run, _ITER_DIR)


def trimmed_dirs(run: Path) -> dict[str, int]:
    """The attempt folders that were set aside (`trimmed/iter3.1`), with the iteration each belongs to."""
    return {f"{TRIMMED}/{name}": i for name, i in _matching(run / TRIMMED, _TRIMMED_DIR).items()}


def _matching(folder: Path, pattern: re.Pattern[str]) -> dict[str, int]:
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    found = ((p.name, pattern.fullmatch(p.name)) for p in entries if p.is_dir())
    return {name: int(match[1]) for name, match in found if match}


def attempt_of(name: str) -> tuple[int, int] | None:
    """Iteration and attempt that a folder `iter3_retry1` is named after; None: it is no attempt's name."""
    match = _ITER_DIR.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2] or 0))


@dataclass(frozen=True)
class AttemptPaths:
    """Files of one attempt."""

    run: Path
    name: str
    """Name of the attempt's folder, relative to the run."""

    @property
    def folder(self) -> Path:
        return self.run / self.name

    @property
    def branch_data(self) -> Path:
        return self.folder / BRANCH_DATA

    @property
    def chunks(self) -> Path:
        """Finished chunks of a prepare that was stopped on its way."""
        return self.folder / CHUNKS

    @property
    def weights(self) -> Path:
        return self.folder / WEIGHTS

    @property
    def training(self) -> Path:
        return self.folder / TRAINING

    @property
    def validation(self) -> Path:
        return self.folder / VALIDATION

    @property
    def games(self) -> Path:
        """The games of the match against `latest_good`, if a promotion needs one."""
        return self.folder / GAMES

    @property
    def match(self) -> Path:
        """How that match ended."""
        return self.folder / MATCH

    @property
    def guard(self) -> Path:
        """The folder of the guard that fit runs under, if it does."""
        return self.folder / GUARD

    def log(self, stage: str) -> Path:
        """What a stage wrote: results and errors."""
        return self.folder / f"{stage}.log"
