"""The run that a person means: a folder, or a tag."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from td_loop.errors import DataError
from td_loop.loop.layout import LOCK, MANIFEST, iter_dirs, run_dir
from td_loop.loop.manifest import Manifest, read_manifest

_PREFIX = run_dir(Path(), "").name


def find_run(name: str, runs_dir: Path) -> Path:
    """The run directory `name`, or that of the tag `name` in `runs_dir`.

    Raises:
        DataError: there is neither; the message names the runs that there are.
    """
    places = [Path(name), run_dir(runs_dir, name)]
    for place in places:
        if is_run(place):
            return place
    there = sorted(p.name.removeprefix(_PREFIX) for p in runs_dir.glob(f"{_PREFIX}*") if is_run(p))
    known = f"tags in {runs_dir}: {', '.join(there)}" if there else f"{runs_dir} holds no run; see --runs-dir"
    raise DataError(f"no run {name!r}: neither {places[0]} nor {places[1]} is a run directory ({known})")


def is_run(folder: Path) -> bool:
    """Whether a driver ever began something in `folder`."""
    if not folder.is_dir():
        return False
    return (folder / MANIFEST).exists() or ((folder / LOCK).exists() or bool(iter_dirs(folder)))


@contextlib.contextmanager
def sound_records(run: Path) -> Iterator[None]:
    """Turn what reading records of the wrong shape raises into a `DataError`; a person may have edited them."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        why = f"{type(e).__name__} {e}"
        raise DataError(f"{run}: its records cannot be understood ({why}); td-loop verify {run} says more") from e


def manifest_of(run: Path) -> Manifest:
    """The manifest of a run that has one.

    Raises:
        ManifestError: it cannot be read.
        DataError: there is none yet.
    """
    manifest = read_manifest(run)
    if manifest is None:
        raise DataError(f"{run}: has no {MANIFEST}; its driver was stopped before it began, or has just started")
    return manifest
