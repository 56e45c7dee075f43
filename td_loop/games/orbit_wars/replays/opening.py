"""`open_replays`: whatever a user calls replays, as a store."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.replays.bundled import BUNDLED, expand_bundle, store_name
from td_loop.games.orbit_wars.replays.importer import import_games
from td_loop.games.orbit_wars.replays.layout import FORMAT_VERSION, is_store
from td_loop.games.orbit_wars.replays.sources import find_sources, fingerprint
from td_loop.games.orbit_wars.replays.store import ReplayStore


def open_replays(source: Path | None, cache: Path) -> ReplayStore:
    """Open replays: a store folder, a set of `td-loop selfplay` (npz), episode files (a file, folder, glob or
    zip), or None for the bundled set.

    Episode files are imported once, into `cache/replays-<hash>`, and again when a file is added or replaced. Two
    processes that do so at once both end well: each builds a folder of its own, one is kept.

    Raises:
        ReplayError: nothing there, or nothing of use: no game with a known outcome, or all won by one seat.
        StorageError: `cache` cannot be written.
    """
    if source is None:
        if not BUNDLED.is_file():
            raise ReplayError(f"{BUNDLED}: the bundled replay set is missing; install again, or pass --replays")
        source = BUNDLED
    if source.suffix == ".npz" and source.is_file():
        folder = cache / store_name(source)
        _made_once(folder, lambda: expand_bundle(source, folder))
        return _checked(ReplayStore(folder), source)
    if is_store(source):
        return _checked(ReplayStore(source), source)
    sources = find_sources([source])
    if not sources:
        raise ReplayError(
            f"{source}: holds no .json or .json.gz file; name episode files, a zip or folder of them, or an npz "
            "that `td-loop selfplay` made"
        )
    folder = cache / f"replays-{fingerprint(sources)}-{FORMAT_VERSION}"
    _made_once(folder, lambda: _import(source, folder))
    return _checked(ReplayStore(folder), source)


def _made_once(folder: Path, make: Callable[[], object]) -> None:
    """Make `folder` unless it is there, or somebody else finishes it first."""
    if is_store(folder):
        return
    try:
        make()
    except FileExistsError:
        if not is_store(folder):
            raise ReplayError(f"{folder}: is in the way and is no replay store; remove it") from None


def _import(source: Path, folder: Path) -> None:
    report = import_games(find_sources([source]), folder, verify=False)
    lines = [f"imported {report.imported} games, {report.frames} frames from {source} (once; kept in {folder})"]
    lines += [f"skipped {reason}" for reason in report.skipped]
    lines += [f"skipped {name}: the same game as {other}" for name, other in report.duplicates]
    sys.stderr.write("\n".join(lines) + "\n")


def _checked(store: ReplayStore, source: Path) -> ReplayStore:
    known = [g.outcome for g in store.games if g.outcome is not None]
    if not known:
        reasons = sorted({e.why_no_outcome for e in store.entries})
        raise ReplayError(
            f"{source}: none of its {len(store)} game(s) has a known outcome ({', '.join(reasons[:3])}), "
            "so nothing can be learned from who won; add games that were played to their end"
        )
    if all(np.array_equal(known[0], outcome) for outcome in known[1:]) and (known[0] == 1).any():
        seat = int(np.argmax(known[0]))
        raise ReplayError(
            f"{source}: seat {seat} wins in all {len(known)} game(s) with a known outcome; a value function would "
            "learn the seat and not the game; add games that other seats win"
        )
    return store
