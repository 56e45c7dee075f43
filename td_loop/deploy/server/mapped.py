"""Files that server processes share by mapping them: one page of head, then whatever belongs to each."""

from __future__ import annotations

import mmap
from pathlib import Path

from td_loop.files import atomic_file, storage_errors

HEAD_BYTES = 4096
_TEXT = 256  # bytes of the head that say what the file is


class Mapped:
    """A file mapped into memory, of a kind and shape that its head names in plain text.

    Attributes:
        buffer: all bytes of it.
        words: the same as unsigned 64-bit words; one of them is read and written as a whole.
    """

    def __init__(self, path: Path, what: str, size: int, *, fresh: bool = False) -> None:
        """Open `path` if it is `what`, with `size` bytes behind its head; else, or if `fresh`, make it of zeros.

        What was in another file under this name is lost: these files hold nothing that a release depends on.

        Raises:
            StorageError: the disk is full, read-only or failing.
        """
        head = what.encode().ljust(_TEXT, b"\0")
        if fresh or not _is(path, head, HEAD_BYTES + size):
            with atomic_file(path, HEAD_BYTES + size) as f:
                f.write(head)
                f.truncate(HEAD_BYTES + size)
        with storage_errors(path), path.open("r+b") as f:
            self.buffer = mmap.mmap(f.fileno(), HEAD_BYTES + size)
        self.words = memoryview(self.buffer).cast("Q")

    def close(self) -> None:
        """Give the file back; what was written stays."""
        self.words.release()
        self.buffer.close()


def _is(path: Path, head: bytes, size: int) -> bool:
    try:
        with path.open("rb") as f:
            return f.read(_TEXT) == head and f.seek(0, 2) == size
    except OSError:
        return False
