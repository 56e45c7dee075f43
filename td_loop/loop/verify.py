"""Is a run directory what it must be? Everything that can be seen in one is looked at; nothing is changed.

The invariants are those of docs/architecture.md. I10 cannot be seen: it takes a second run. Of I11 it can be seen
that everything that was promoted is still there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from td_loop.errors import DataError
from td_loop.files import pointed, read_json
from td_loop.lock import Holder, holder
from td_loop.loop.fault import RESTORE_MANIFEST, Fault, weights_fault
from td_loop.loop.layout import BEST_VAL, BOOTSTRAP_COPY, LATEST_GOOD, LOCK, MANIFEST
from td_loop.loop.manifest import Json, Manifest, Status, read_manifest
from td_loop.loop.verify_attempt import AttemptFiles
from td_loop.loop.verify_manifest import (
    MALFORMED,
    hyperparameter_faults,
    lost_manifest,
    missing_keys,
    pointer_faults,
    record_faults,
)
from td_loop.loop.verify_mc_rows import read_mc_rows
from td_loop.loop.verify_notes import notes

SECOND_LOOK_S = 0.5
"""While a driver works, what is wrong must still be wrong after this time: manifest and links change in turn."""

RELINK = "give the command that started the run again: it derives the links from manifest.json"


@dataclass(frozen=True)
class Examination:
    """What was found in a run directory.

    Attributes:
        faults: what is wrong.
        notes: what a person may want to know and is no fault.
        promoted: promoted iterations.
        weights: weights files whose hash was compared.
        caches: `branch_data.npz` files that were read.
        driver: the driver that was at work in it, if any.
    """

    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()
    promoted: int = 0
    weights: int = 0
    caches: int = 0
    driver: Holder | None = None


def faults(run: Path) -> list[Fault]:
    """What is wrong with a run directory; see `examine`."""
    return list(examine(run).faults)


def examine(run: Path) -> Examination:
    """Check every hash, every file that the manifest names, and I1 to I9 and I11 as far as they can be seen.

    While a driver works there, the attempt in progress is left alone, and only what a second look finds too is a
    fault.
    """
    driver = holder(run / LOCK)
    first = _look(run, driver)
    if driver is None or not first.faults:
        return first
    time.sleep(SECOND_LOOK_S)
    second = _look(run, holder(run / LOCK))
    lasting = tuple(fault for fault in second.faults if fault in first.faults)
    return Examination(lasting, second.notes, second.promoted, second.weights, second.caches, driver)


def _look(run: Path, driver: Holder | None) -> Examination:
    try:
        manifest = read_manifest(run)
        content: Json = {} if manifest is None else read_json(run / MANIFEST)
    except (DataError, OSError) as e:
        return Examination((_unreadable(str(e)),), driver=driver)
    if manifest is None:
        return _without_manifest(run, driver)
    if absent := missing_keys(content, manifest):
        return Examination(tuple(absent), driver=driver)
    try:
        return _look_at(run, manifest, content, driver)
    except OSError as e:  # with a driver at work, a file that went while it was looked at: the second look is calm
        name = str(e.filename or run)
        what, remedy = "cannot be looked at", "see to the disk and the permissions, then verify again"
        return Examination((Fault(name, "I9", what, str(e.strerror), "readable files", remedy),), driver=driver)
    except MALFORMED as e:
        return Examination((_unreadable(f"{type(e).__name__} {e}"),), driver=driver)


def _look_at(run: Path, manifest: Manifest, content: Json, driver: Holder | None) -> Examination:
    """A fault of the manifest hides what only follows from it, and so does one of a file."""
    total = len(manifest.iters)
    of_records = [record_faults(content["iters"][i], r, i, total) for i, r in enumerate(manifest.iters)]
    sound = [
        attempt
        for record, bad in zip(manifest.iters, of_records, strict=True)
        if not bad
        for attempt in (record.retried, record)
        if attempt is not None
    ]
    rows, of_rows = read_mc_rows(run, next((h for r in sound if (h := r.replay_set_hash)), None))
    attempts = [AttemptFiles(run, r, rows) for r in sound]
    of_files = [fault for attempt in attempts for fault in attempt.faults()] + of_rows
    if (fault := weights_fault(run, BOOTSTRAP_COPY, manifest.bootstrap_sha256)) is not None:
        of_files.append(fault)
    in_manifest = [fault for bad in of_records for fault in bad] or pointer_faults(
        content, manifest, {fault.file for fault in of_files}
    )
    of_links = [] if in_manifest else _link_faults(run, manifest)
    return Examination(
        (*hyperparameter_faults(content), *in_manifest, *of_links, *of_files),
        tuple(notes(run, manifest, driver)),
        promoted=sum(r.status is Status.PROMOTED for r in manifest.iters),
        weights=1 + sum(r.weights is not None for r in sound),
        caches=sum(a.judged_cache() for a in attempts),
        driver=driver,
    )


def _unreadable(why: str) -> Fault:
    return Fault(MANIFEST, "I9", "cannot be read", why, "a manifest", RESTORE_MANIFEST)


def _without_manifest(run: Path, driver: Holder | None) -> Examination:
    """Normal for a moment at the start of a run; later the manifest was lost."""
    if (lost := lost_manifest(run)) is None:
        return Examination((), ("no iteration was begun here yet",), driver=driver)
    return Examination((lost,), driver=driver)


def _link_faults(run: Path, manifest: Manifest) -> list[Fault]:
    best = None if manifest.best_val is None else manifest.best_val.path
    found = []
    for name, target in ((LATEST_GOOD, manifest.latest_good), (BEST_VAL, best)):
        there = pointed(run / name)
        # Beside a right pointer file, a file of the link's own name would be read in place of what it leads to.
        in_its_way = (run / name).exists() and not (run / name).is_symlink()
        if there != target or in_its_way:
            is_there = "a file that is no link" if in_its_way else there or "no link"
            wanted = "no link" if target is None else f"a link to {target}"
            found.append(Fault(name, "I8", "does not lead where the manifest says", is_there, wanted, RELINK))
    return found
