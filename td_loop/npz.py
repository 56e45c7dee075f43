"""npz files with a JSON `meta` entry and a digest at their end, read whole: a flipped byte is found at once."""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import orjson

from td_loop.errors import DataError
from td_loop.files import atomic_file, dumps_json

Array = npt.NDArray[Any]

_DIGEST = b"sha256:"
_HEX_BYTES = 64
_COMMENT_BYTES = len(_DIGEST) + _HEX_BYTES
_ENTRY_BYTES = 512
"""What a member takes in a zip besides its data, about: two zip headers and numpy's own."""


def save_npz(path: Path, arrays: Mapping[str, Array], meta: Mapping[str, Any], *, compress: bool = False) -> None:
    """Write `arrays` and a JSON `meta` entry to one npz, atomically.

    Arrays that are equal give a file that is equal byte for byte: `np.savez` stamps members with a fixed date. The
    file ends with its own digest, as the zip's comment: the checksums of a zip do not cover its headers.
    """
    entries: dict[str, Any] = {**arrays, "meta": np.array(dumps_json(meta).decode())}
    size = sum(np.asarray(entry).nbytes + _ENTRY_BYTES for entry in entries.values())
    with atomic_file(path, size) as f:
        (np.savez_compressed if compress else np.savez)(f, **entries)
        # The last two bytes of a zip without a comment are the length of that comment.
        f.seek(-2, os.SEEK_END)
        f.write(struct.pack("<H", _COMMENT_BYTES) + _DIGEST)
        f.write(_digest(f, f.tell()))


def load_npz(
    path: Path, error: type[DataError] = DataError, *, names: Collection[str] | None = None, maker: str = ""
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read every member of an npz now, so that a flipped byte is found here and not somewhere later.

    Args:
        path: the file.
        error: what to raise.
        names: the arrays to read; None reads all.
        maker: what to do about a file that is missing, for the message.

    Returns:
        The arrays by name, and the parsed `meta` entry.

    Raises:
        DataError (or the subclass `error`): missing, truncated, damaged, or without a `meta` entry.
    """
    try:
        with path.open("rb") as f, zipfile.ZipFile(f) as z:
            _check_digest(f, z.comment)
            members = {name.removesuffix(".npy"): name for name in z.namelist()}
            if names is not None:
                members = {name: members[name] for name in {*names, "meta"} if name in members}
            arrays = {name: _read_member(z, member) for name, member in members.items()}
    except FileNotFoundError as e:
        raise error(f"{path}: no such file" + (f"; {maker}" if maker else "")) from e
    except IsADirectoryError as e:
        raise error(f"{path}: is a folder, not an npz file") from e
    except Exception as e:  # a broken header goes through Python's own parser, which raises what it likes
        why = str(e) or type(e).__name__
        raise error(f"{path}: damaged or not an npz file ({why}); restore it or make it again") from e
    if "meta" not in arrays:
        raise error(f"{path}: has no 'meta' entry; it was not written by td_loop")
    try:
        meta = orjson.loads(str(arrays.pop("meta")))
    except orjson.JSONDecodeError as e:
        raise error(f"{path}: its 'meta' entry is not JSON ({e})") from e
    if not isinstance(meta, dict):
        raise error(f"{path}: its 'meta' entry is not a JSON object")
    missing = sorted(set(names or ()) - arrays.keys())
    if missing:
        raise error(f"{path}: has no '{missing[0]}'")
    return arrays, meta


def _digest(f: IO[bytes], size: int) -> bytes:
    """The hex SHA-256 of the first `size` bytes of `f`, whose position is then there."""
    f.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (piece := f.read(min(size, 1 << 20))):
        digest.update(piece)
        size -= len(piece)
    return digest.hexdigest().encode()


def _check_digest(f: IO[bytes], comment: bytes) -> None:
    """Compare the file with the digest at its end; one that another tool wrote has none."""
    end = f.seek(0, os.SEEK_END)
    f.seek(max(0, end - _COMMENT_BYTES))
    tail = f.read()
    # A flipped byte may have hit the mark itself, or the comment's length: what is left of them still tells.
    ours = tail.startswith(_DIGEST) or comment.startswith(_DIGEST) or len(comment) == _COMMENT_BYTES
    if ours and tail != _DIGEST + _digest(f, end - _HEX_BYTES):
        raise ValueError("its bytes do not have the digest at its end")


def _read_member(z: zipfile.ZipFile, member: str) -> Array:
    """One array. It is read to its last byte, for only there zipfile compares the checksum.

    A header that asks for less than there is (one flipped bit in a shape) would else go unnoticed.
    """
    with z.open(member) as f:
        array: Array = np.lib.format.read_array(f, allow_pickle=False)
        if f.read(1):
            raise ValueError(f"{member} is longer than its header says")
        return array
