"""How much traffic the canary gets, in a file that every server process looks at before every decision.

`traffic` in the server's folder is mapped into memory, and all of it that matters is one word of 64 bits: it is
read and written as a whole, so that no reader ever sees half a change, needs a lock, or polls. What is set holds
for the next request of every process.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from td_loop.deploy.names import FULL_BP
from td_loop.errors import DataError, UsageError
from td_loop.files import make_dir, storage_errors, write_bytes
from td_loop.lock import locked

FILE, LOCK = "traffic", "traffic.lock"

_MAGIC = b"td_loop traffic 1\n"
_SIZE, _WORD = 4096, 8  # bytes of the file; which of its 64-bit words is the state
_WEIGHT, _SHADOW, _REVISION, _GENERATION = 0, 14, 16, 32  # bits where the parts of the word begin


@dataclass(frozen=True, slots=True)
class TrafficState:
    """The split at one moment.

    Attributes:
        generation: how often it was changed, modulo 2**32.
        canary_weight_bp: new episodes that go to the canary, in hundredths of a percent, 0..10000.
        revision: of the policies that it is meant for, modulo 2**16; see `server.policies`.
        shadow: whether the canary answers beside the stable policy, for nobody.
    """

    generation: int = 0
    canary_weight_bp: int = 0
    revision: int = 0
    shadow: bool = False

    @property
    def percent(self) -> float:
        """`canary_weight_bp` in percent."""
        return self.canary_weight_bp / 100


class Traffic:
    """The split of one folder, from any process and thread."""

    def __init__(self, folder: Path) -> None:
        """Open the folder's file, and make it (all to the stable policy) if there is none.

        Raises:
            DataError: the file is something else.
            StorageError: it cannot be made.
        """
        self._path = folder / FILE
        make_dir(folder)
        with locked(folder / LOCK, "try again"):
            if not self._path.exists():
                write_bytes(self._path, _MAGIC.ljust(_SIZE, b"\0"))
        with storage_errors(self._path), self._path.open("r+b") as f:
            if f.read(len(_MAGIC)) != _MAGIC or f.seek(0, 2) != _SIZE:
                raise DataError(
                    f"{self._path}: is not a traffic file of td_loop; move it away, or give another --dir"
                )
            self._map = mmap.mmap(f.fileno(), _SIZE)
        self._words = memoryview(self._map).cast("Q")

    @classmethod
    def open(cls, folder: Path) -> Traffic:
        """As the constructor."""
        return cls(folder)

    def close(self) -> None:
        """Give the file back. The split stays as it is."""
        self._words.release()
        self._map.close()

    def read(self) -> TrafficState:
        """The split as it is now."""
        word = self._words[_WORD]
        return TrafficState(
            word >> _GENERATION,
            word & (1 << _SHADOW) - 1,
            word >> _REVISION & 0xFFFF,
            bool(word >> _SHADOW & 1),
        )

    def set(self, canary_weight_bp: int) -> TrafficState:
        """Give the canary another share; what is returned was read back.

        Raises:
            UsageError: not in 0..10000.
            RunInUse: another process has been changing it for a while.
            StorageError: the disk fails; the change holds for processes that run.
        """
        if not 0 <= canary_weight_bp <= FULL_BP:
            raise UsageError(
                f"the canary's weight is 0..{FULL_BP} hundredths of a percent, not {canary_weight_bp}"
            )
        return self.change(lambda state: replace(state, canary_weight_bp=canary_weight_bp))

    def change(self, what: Callable[[TrafficState], TrafficState]) -> TrafficState:
        """Replace the state by `what` of it, one writer at a time; the generation grows by one.

        Raises:
            RunInUse, StorageError: see `set`.
        """
        with locked(self._path.parent / LOCK, "try again"):
            state = self.read()
            new = replace(what(state), generation=(state.generation + 1) % 2**32)
            self._words[_WORD] = (
                new.generation << _GENERATION
                | (new.revision & 0xFFFF) << _REVISION
                | new.shadow << _SHADOW
                | new.canary_weight_bp << _WEIGHT
            )
            # Not the map's own flush: that keeps the interpreter's lock while the disk works, and a server waits.
            with storage_errors(self._path), self._path.open("rb") as f:
                os.fsync(f.fileno())
        return self.read()
