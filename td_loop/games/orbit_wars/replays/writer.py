"""Writing a replay store, one game at a time: nothing of a game stays in memory once it is added."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from td_loop import files
from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.replays.layout import (
    DTYPES,
    INDEX,
    Entry,
    dump_index,
    is_store,
    load_index,
    make_entry,
)
from td_loop.games.orbit_wars.replays.record import Array, GameRecord


class StoreWriter:
    """Games added to the end of a store; they count when `new_store` or `append_to_store` ends well.

    `seen` maps the content id of every game in it to its name.
    """

    def __init__(self, folder: Path, entries: list[Entry], counts: dict[str, int]) -> None:
        self.folder = folder
        self.entries = entries
        self.counts = counts
        self.seen = {e.content_id: e.name for e in entries}
        self._out: dict[str, BinaryIO] = {}

    def add(self, record: GameRecord, verified: str = "") -> bool:
        """Append a game; False, and nothing done, when the store has it already."""
        if record.content_id in self.seen:
            return False
        entry = make_entry(record, dict(self.counts), verified)
        frames = record.frames
        base_fleets, base_launches = self.counts["fleet.i32"] // 4, self.counts["launch.f64"] // 3
        ends = np.concatenate([frames.fleet_end[:, None] + base_fleets, frames.launch_end + base_launches], axis=1)
        board = np.concatenate([frames.cfg, frames.home.ravel(), frames.path.ravel()])
        for name, array in (
            ("board.f64", board),
            ("group.i64", frames.group),
            ("head.i32", frames.head),
            ("planet.f64", frames.planet_f),
            ("planet.i32", frames.planet_i),
            ("comet.i16", frames.comet_at),
            ("fleet.f64", frames.fleet_f),
            ("fleet.i32", frames.fleet_i),
            ("ends.i64", ends),
            ("launch.f64", frames.launch),
        ):
            self._append(name, array)
        self.entries.append(entry)
        self.seen[entry.content_id] = entry.name
        return True

    def _append(self, name: str, array: Array) -> None:
        with files.storage_errors(self.folder / name):
            self._out[name].write(np.ascontiguousarray(array, DTYPES[name]).data)
        self.counts[name] += array.size

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        """Hold all files open for appending; when the block ends well, make them durable and write the index."""
        with contextlib.ExitStack() as stack:
            for name, dtype in DTYPES.items():
                path = self.folder / name
                with files.storage_errors(path):
                    f: BinaryIO = stack.enter_context(path.open("r+b" if path.exists() else "x+b"))
                    f.truncate(self.counts[name] * np.dtype(dtype).itemsize)  # what a killed import left behind
                    f.seek(0, os.SEEK_END)
                self._out[name] = f
            yield
            for name, f in self._out.items():
                with files.storage_errors(self.folder / name):
                    f.flush()
                    os.fsync(f.fileno())
        files.write_bytes(self.folder / INDEX, files.dumps_json(dump_index(self.entries, self.counts)))


@contextlib.contextmanager
def new_store(folder: Path) -> Iterator[StoreWriter]:
    """Write a new store; `folder` appears, complete, when the block ends well, and not at all when it does not.

    Raises:
        FileExistsError: `folder` is there and not empty, now or when the block ends; it is left alone.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(errno.EEXIST, "exists already", str(folder))
    with files.atomic_folder(folder) as temporary:
        writer = StoreWriter(temporary, [], dict.fromkeys(DTYPES, 0))
        with writer._opened():
            yield writer


@contextlib.contextmanager
def append_to_store(folder: Path) -> Iterator[StoreWriter]:
    """Add games to a store. Who reads it meanwhile, or after a crash in the middle, sees it as it was.

    Raises:
        ReplayError: `folder` is not a store, or another process is adding to it.
    """
    if not is_store(folder):
        raise ReplayError(f"{folder}: not a replay store, so nothing can be added to it; leave out --append")
    with _locked(folder), contextlib.ExitStack() as stack:
        writer = StoreWriter(folder, *load_index(folder))
        stack.enter_context(writer._opened())
        yield writer


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when the process ends, however it ends."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise ReplayError(f"{folder}: another process is adding to this store; wait for it to end") from e
        yield
    finally:
        os.close(fd)


__all__ = ["StoreWriter", "append_to_store", "new_store"]
