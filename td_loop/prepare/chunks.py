"""The finished chunks of a prepare that may be killed: kept beside its output, taken back by the next one.

The first record is the provenance, JSON; every other one a chunk: a head, the rows, the arrays of `Computed` as
they lie in memory. `B` rows of a chunk, `F` features.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from td_loop.errors import StorageError
from td_loop.files import dumps_json
from td_loop.journal import Journal, read_records
from td_loop.prepare.compute import Computed
from td_loop.prepare.notices import difference, say

FORMAT_VERSION = 1

_HEAD = struct.Struct("<IIQQQ?d")


class Finished(NamedTuple):
    """A chunk that was computed."""

    worker: int  # index of the worker that did
    row: npt.NDArray[np.int64]  # [B]
    computed: Computed  # [B] each
    searched: bool  # agent rows only: False when they took the replay's action without a search
    counts: tuple[int, int, int]  # rows, retries and fallbacks of this worker up to and with this chunk
    wall_s: float  # that prepare took up to here, those that were killed included


def chunks_path(out: Path) -> Path:
    """Where the chunks of a branch_data file are kept."""
    return out.with_name(out.name.removesuffix(".npz") + ".chunks")


class ChunkKeeper:
    """Keeps the chunks of one branch_data file.

    Args:
        out: the branch_data file.
        provenance: what its arrays are a pure function of, as JSON.
        n_features: F.

    Raises:
        CacheError: what lies there is not ours.
        StorageError: the disk is full, read-only or failing.
    """

    def __init__(self, out: Path, provenance: Mapping[str, Any], n_features: int) -> None:
        self.path, self._n_features = chunks_path(out), n_features
        head = dumps_json({"kind": "chunks", "chunks_version": FORMAT_VERSION, **provenance})
        old = read_records(self.path)
        first = next(old, None)
        if first is not None and (other := difference(orjson.loads(first), orjson.loads(head))):
            say(f"{self.path}: starting anew: the chunks there were made with {other}")
            old = iter(())
        self._journal = Journal(self.path, chain([head], old))

    def __enter__(self) -> ChunkKeeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()

    def finished(self) -> Iterator[Finished]:
        """What an earlier prepare finished, in the order in which it did."""
        records = read_records(self.path)
        next(records)
        for payload in records:
            worker, b, *counts, searched, wall_s = _HEAD.unpack_from(payload)
            at = _HEAD.size
            row = np.frombuffer(payload, np.int64, b, at)
            at += row.nbytes
            computed = Computed.empty(b, self._n_features)
            for name in Computed.ARRAYS:
                array = getattr(computed, name)
                array[...] = np.frombuffer(payload, array.dtype, array.size, at).reshape(array.shape)
                at += array.nbytes
            rows, retries, fallbacks = counts
            yield Finished(worker, row, computed, searched, (rows, retries, fallbacks), wall_s)

    def keep(self, chunk: Finished) -> None:
        """Add a chunk.

        Raises:
            StorageError: the disk is full or failing; the chunks before are kept.
        """
        head = _HEAD.pack(chunk.worker, len(chunk.row), *chunk.counts, chunk.searched, chunk.wall_s)
        arrays = (chunk.row, *(getattr(chunk.computed, name) for name in Computed.ARRAYS))
        self._journal.append(b"".join((head, *(a.tobytes() for a in arrays))))

    def remove(self) -> None:
        """Delete the chunks: their rows stand in the branch_data file. If that fails, warn and go on."""
        try:
            self._journal.remove()
        except StorageError as e:
            say(f"warning: {e}; it is of no use any more and can be removed")
