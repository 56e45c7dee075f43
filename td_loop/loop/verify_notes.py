"""What is worth knowing of a run directory and is no fault: leftovers, what retention left or took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from td_loop.lock import Holder
from td_loop.loop.layout import BOOTSTRAP_COPY, BRANCH_DATA, MC_ROWS, TRIMMED, iter_dirs, run_dir, trimmed_dirs
from td_loop.loop.manifest import Manifest, Status
from td_loop.loop.rundir import named_dirs
from td_loop.text import size


def notes(run: Path, manifest: Manifest, driver: Holder | None) -> Iterator[str]:
    """One sentence each. With a driver at work, what it has not finished is no leftover."""
    expected = run_dir(run.parent, manifest.tag).name
    if run.resolve().name != expected:
        yield f"the folder was renamed or copied: tag {manifest.tag!r} is looked for in {expected}"
    if driver is None:
        yield from _temporary(run)
    yield from _unnamed(run, manifest, driver)
    yield from _retention(run, manifest)
    if not (run / MC_ROWS).exists() and any(r.replay_set_hash for r in manifest.iters):
        yield f"{MC_ROWS} is missing: the next prepare makes the same rows again from the same replays"


def _temporary(run: Path) -> Iterator[str]:
    for path in sorted([*run.glob(".*.tmp"), *run.glob("iter*/.*.tmp")]):
        yield f"{path.relative_to(run)} is half a file that a killed program left: delete it"


def _unnamed(run: Path, manifest: Manifest, driver: Holder | None) -> Iterator[str]:
    for name in sorted(iter_dirs(run).keys() - named_dirs(manifest)):
        if driver is not None:
            yield f"{name} is in progress and was left alone"
        elif {str(p.relative_to(run)) for p in (run / name).iterdir()} - {BOOTSTRAP_COPY}:
            yield f"{name} is of no record: a stopped driver left it; the next start moves it to {TRIMMED}/"


def _retention(run: Path, manifest: Manifest) -> Iterator[str]:
    if not manifest.iters:
        return
    last = manifest.iters[-1]
    for name, i in (iter_dirs(run) | trimmed_dirs(run)).items():
        path = run / name / BRANCH_DATA
        if i <= last.i - 2 and path.is_file():
            taken = size(path.stat().st_size)
            yield f"{name}/{BRANCH_DATA} ({taken}) is older than retention keeps: it can be deleted"
    if last.status is Status.PROMOTED and not (run / last.iter_dir / BRANCH_DATA).exists():
        yield f"{last.iter_dir}/{BRANCH_DATA} is gone: S3.7 of the next iteration has nothing to compare with"
