"""The run directory on disk: open it, resume it, publish what was promoted, prune what retention names.

Order of every change: data, then manifest, then symlinks. Whatever moment a kill picks, the manifest names only
files that are there, and the links are derived from it again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from td_loop.errors import WeightsError
from td_loop.files import make_dir, move, remove, replace_symlink, sha256, storage_errors, write_bytes
from td_loop.loop.config import DEFAULT_BOOTSTRAP, RunConfig
from td_loop.loop.fault import require_promoted, require_weights
from td_loop.loop.layout import (
    BEST_VAL,
    BOOTSTRAP_COPY,
    BRANCH_DATA,
    LATEST_GOOD,
    MC_ROWS,
    TRIMMED,
    V_SNAP,
    iter_dir,
    iter_dirs,
)
from td_loop.loop.manifest import Manifest, read_manifest, write_manifest
from td_loop.loop.outputs import check_bootstrap
from td_loop.loop.plan import prunable

_REPOSITORY = Path(__file__).resolve().parents[2]


def find_bootstrap(path: Path) -> Path:
    """The bootstrap weights; the default one is also looked for in the clone that the package runs from.

    Raises:
        WeightsError: missing or not usable.
    """
    candidates = [path]
    if path == DEFAULT_BOOTSTRAP:
        candidates.append(_REPOSITORY / DEFAULT_BOOTSTRAP)
    for candidate in candidates:
        if candidate.exists():
            check_bootstrap(candidate)
            return candidate
    places = " or ".join(str(c.absolute()) for c in candidates)
    raise WeightsError(
        f"no bootstrap weights at {places}; a clone of the repository holds them in {DEFAULT_BOOTSTRAP.parent}/, "
        "an installed package does not: give --bootstrap, or fit your own with `td-loop fit` without --resume"
    )


def open_run(run: Path, config: RunConfig, say: Callable[[str], None]) -> Manifest:
    """Start a run, or resume the one that is there. The caller holds the lock.

    Args:
        run: the run directory; it exists.
        config: of this invocation.
        say: receives what a person should know about the weights that the run starts from.

    Raises:
        ManifestError: what is there cannot be resumed; nothing was changed.
        WeightsError: there is nothing to start from, or it cannot be used; nothing was changed.
    """
    before = read_manifest(run)
    if before is None:
        manifest = _start(run, config, find_bootstrap(config.bootstrap))
    else:
        manifest = before.resumed(config.tag, config.hyperparams())
        if manifest.iters:
            require_promoted(run, manifest)
            _warn_about_bootstrap(config.bootstrap, manifest, say)
        else:
            manifest = _rebase(run, config, before, manifest, say)
        write_manifest(run, manifest)
    sweep(run, manifest)
    link(run, manifest)
    return manifest


def _start(run: Path, config: RunConfig, bootstrap: Path) -> Manifest:
    copy = run / BOOTSTRAP_COPY
    write_bytes(copy, bootstrap.read_bytes())
    manifest = Manifest.new(config.tag, sha256(copy), config.hyperparams())
    write_manifest(run, manifest)
    return manifest


def _rebase(
    run: Path, config: RunConfig, before: Manifest, manifest: Manifest, say: Callable[[str], None]
) -> Manifest:
    """While nothing is promoted, start from the bootstrap (and the replays) that this invocation names.

    Without this a bootstrap that turned out to be unfit would occupy the tag for ever. Also heals a kill between
    the copy and the manifest.
    """
    copy = run / BOOTSTRAP_COPY
    if any(
        before.hyperparams_current.get(key) != manifest.hyperparams_current[key] for key in ("replays", "game")
    ):
        remove(run / MC_ROWS)  # of other replays; nothing was judged by them yet
    try:
        given = find_bootstrap(config.bootstrap)
    except WeightsError:
        if config.bootstrap != DEFAULT_BOOTSTRAP:
            raise
        require_promoted(run, manifest)  # an installed package: there is no default, but the run has its copy
        return manifest
    digest = sha256(given)
    if not copy.is_file() or sha256(copy) != digest:
        write_bytes(copy, given.read_bytes())
    if digest == manifest.bootstrap_sha256:
        return manifest
    remove(run / MC_ROWS)  # they depend on the weights' gamma
    say(f"nothing was promoted in {run} yet: it now starts from {given} (sha256 {digest[:12]}...)")
    return replace(manifest, bootstrap_sha256=digest)


def _warn_about_bootstrap(bootstrap: Path, manifest: Manifest, say: Callable[[str], None]) -> None:
    """A default that changed since says nothing; a file that was named and does not count does."""
    if bootstrap == DEFAULT_BOOTSTRAP or not bootstrap.is_file() or sha256(bootstrap) == manifest.bootstrap_sha256:
        return
    say(
        f"--bootstrap {bootstrap} is not used: the run goes on from {manifest.latest_good}; to start from other "
        "weights take another --tag"
    )


def sweep(run: Path, manifest: Manifest) -> None:
    """Move the attempt folders that no record names to `trimmed/`; nothing but their caches is deleted.

    They are what an interrupted, reverted or aborted attempt left. Out of the way, no file of theirs can be taken
    for the output of the attempt that comes.
    """
    named = {record.iter_dir for record in manifest.iters}
    # The folder of a promoted retry's first attempt is named through `previous_attempt`.
    named |= {r.previous_attempt["iter_dir"] for r in manifest.iters if r.previous_attempt}
    for name in iter_dirs(run).keys() - named:
        set_aside(run, name)


def set_aside(run: Path, name: str) -> None:
    """Move an attempt's folder to `trimmed/`, without its cache, which is large and can be made again.

    The bootstrap's copy in `iter0` stays where the manifest has it.
    """
    folder = run / name
    remove(folder / BRANCH_DATA)
    content = [p for p in sorted(folder.iterdir()) if (name, p.name) != (iter_dir(0, 0), V_SNAP)]
    if not content:
        return
    k, target = 0, run / TRIMMED / name
    while target.exists():
        k += 1
        target = run / TRIMMED / f"{name}.{k}"
    if name == iter_dir(0, 0):
        for p in content:
            move(p, target / p.name)
    else:
        move(folder, target)


def link(run: Path, manifest: Manifest) -> None:
    """Derive the two symlinks from the manifest."""
    _point(run / LATEST_GOOD, manifest.latest_good)
    if manifest.best_val is None:
        remove(run / BEST_VAL)
    else:
        _point(run / BEST_VAL, manifest.best_val.path)


def _point(path: Path, target: str) -> None:
    if not path.is_symlink() or str(path.readlink()) != target:
        replace_symlink(path, target)


def start_attempt(run: Path, name: str) -> None:
    """Make an attempt's folder, empty."""
    if (run / name).exists():
        set_aside(run, name)
    make_dir(run / name)


def prune(run: Path, i: int) -> None:
    """Delete the caches that retention gives up at the start of iteration `i`."""
    for name in prunable(i, iter_dirs(run)):
        remove(run / name / BRANCH_DATA)


def v_snap_of(run: Path, manifest: Manifest) -> tuple[str, str]:
    """Path (relative) and SHA-256 of the weights that the next attempt starts from.

    Raises:
        ManifestError: the file is not what was promoted.
    """
    digest = next(
        (r.weights_sha256 for r in manifest.iters if r.weights == manifest.latest_good and r.weights_sha256),
        manifest.bootstrap_sha256,
    )
    require_weights(run, manifest.latest_good, digest)
    return manifest.latest_good, digest


def disk_free(folder: Path) -> int:
    """Free bytes on the file system that holds `folder` (or the first of its parents that exists)."""
    while not folder.exists():
        folder = folder.parent
    with storage_errors(folder):
        return shutil.disk_usage(folder).free
