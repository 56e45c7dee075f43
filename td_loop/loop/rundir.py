"""The run directory on disk: open it, resume it, publish what was promoted, prune what retention names.

Order of every change: data, then manifest, then symlinks. Whatever moment a kill picks, the manifest names only
files that are there, and the links are derived from it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from td_loop.errors import StorageError, WeightsError
from td_loop.files import make_dir, move, point, remove, sha256, sweep_temporaries, unpoint, write_bytes
from td_loop.loop.config import DEFAULT_BOOTSTRAP, RunConfig
from td_loop.loop.fault import require_promoted, require_weights
from td_loop.loop.layout import (
    ATTEMPT_FILES,
    BEST_VAL,
    BOOTSTRAP_COPY,
    BRANCH_DATA,
    CHUNKS,
    LATEST_GOOD,
    MC_ROWS,
    PROVENANCE,
    RUN_FILES,
    TRIMMED,
    V_SNAP,
    iter_dir,
    iter_dirs,
    trimmed_dirs,
)
from td_loop.loop.manifest import Manifest, read_manifest, write_manifest
from td_loop.loop.outputs import check_bootstrap
from td_loop.loop.plan import prunable
from td_loop.loop.verify_manifest import require_none_lost, require_sound

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
        require_none_lost(run)
        manifest = _start(run, config, find_bootstrap(config.bootstrap))
    else:
        require_sound(run, before)
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
    """Move the attempt folders that no record names to `trimmed/`, whole, and remove half-written files.

    They are what an interrupted, reverted or aborted attempt left. Out of the way, no file of theirs can be taken
    for the output of the attempt that comes, unless its provenance says so (`td_loop.loop.reuse`).
    """
    named = named_dirs(manifest)
    for name in iter_dirs(run):
        sweep_temporaries(run / name, ATTEMPT_FILES)
        if name not in named:
            set_aside(run, name)
    sweep_temporaries(run, RUN_FILES)


def named_dirs(manifest: Manifest) -> set[str]:
    """The attempt folders that records name; a promoted retry names its first attempt's as `previous_attempt`."""
    named = {record.iter_dir for record in manifest.iters}
    return named | {r.previous_attempt["iter_dir"] for r in manifest.iters if r.previous_attempt}


def set_aside(run: Path, name: str) -> None:
    """Move an attempt's folder to `trimmed/`, with all that is in it.

    The bootstrap's copy in `iter0` stays where the manifest has it, so this folder's files move one by one; the
    provenance is copied first and removed last, so that a kill on the way parts no output from it. Who goes on
    after a kill adds to a folder of the same provenance, and to no other.
    """
    folder, target = run / name, run / TRIMMED / name
    if name != iter_dir(0, 0):
        move(folder, _free(target, Path.exists))
        return
    content = [p for p in sorted(folder.iterdir()) if p.name not in (V_SNAP, PROVENANCE)]
    ours = _bytes_of(folder / PROVENANCE)
    if ours is None and not content:
        return
    target = _free(
        target,
        lambda there: (
            there.exists()
            and (
                ours is None
                or _bytes_of(there / PROVENANCE) != ours
                or any((there / p.name).exists() for p in content)
            )
        ),
    )
    if ours is not None:
        write_bytes(target / PROVENANCE, ours)
    for p in content:
        move(p, target / p.name)
    remove(folder / PROVENANCE)


def _bytes_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _free(target: Path, taken: Callable[[Path], bool]) -> Path:
    """`target`, or the first of `target.1`, `target.2` ... that is not taken."""
    k, free = 0, target
    while taken(free):
        k += 1
        free = target.with_name(f"{target.name}.{k}")
    return free


def link(run: Path, manifest: Manifest) -> None:
    """Derive the two symlinks from the manifest."""
    point(run / LATEST_GOOD, manifest.latest_good)
    if manifest.best_val is None:
        unpoint(run / BEST_VAL)
    else:
        point(run / BEST_VAL, manifest.best_val.path)


def start_attempt(run: Path, name: str) -> None:
    """Make an attempt's folder, empty."""
    if (run / name).exists():
        set_aside(run, name)
    make_dir(run / name)


def prune(run: Path, i: int, say: Callable[[str], None]) -> None:
    """Delete the caches, and half-made ones, that retention gives up at the start of iteration `i`.

    One that cannot be deleted is said, and costs nothing but its space.
    """
    for name in prunable(i, iter_dirs(run) | trimmed_dirs(run)):
        for path in (run / name / BRANCH_DATA, run / name / CHUNKS):
            try:
                remove(path)
            except (StorageError, OSError) as e:
                say(f"[prune] {path} is not needed any more, but could not be removed: {e}")


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
