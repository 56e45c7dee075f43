"""A checkpoint of any program, a file or a folder: its files, their digests, and a copy of it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from td_loop.errors import DataError
from td_loop.files import fsync_dir, fsync_file, make_dir, sha256, storage_errors

_PIECE = 1 << 20


def seal(path: Path) -> tuple[dict[str, str], int]:
    """Make a checkpoint durable that another program wrote, and take the SHA-256 of each of its files.

    Returns:
        The digests, by path below the folder that `path` is in; and bytes of all files together.

    Raises:
        DataError: it is not there, empty, or holds something that is no file, folder or link.
        StorageError: the disk is failing.
    """
    found, size = {}, 0
    for file in _files(path):
        fsync_file(file)
        found[_relative(file, path)] = _digest(file)
        size += file.stat().st_size
    return found, size


def copy(source: Path, target: Path) -> tuple[dict[str, str], int]:
    """Copy a checkpoint, durably; its program may keep and change the original.

    Returns:
        As `seal` does, for the copy.

    Raises:
        DataError: as `seal`, or it changed meanwhile.
        StorageError: the disk is full, read-only or failing; what was copied of it is left.
    """
    found, size = {}, 0
    with storage_errors(target, source.stat().st_size if source.is_file() else None):
        if source.is_dir():
            make_dir(target)
        for path in sorted(source.rglob("*")) if source.is_dir() else []:
            if path.is_dir() and not path.is_symlink():
                make_dir(target / path.relative_to(source))
            elif path.is_symlink():
                (target / path.relative_to(source)).symlink_to(path.readlink())
        for file in _files(source):
            to = target if file == source else target / file.relative_to(source)
            digest, length = _copy_file(file, to)
            found[_relative(to, target)] = digest
            size += length
        for folder in (p for p in target.rglob("*") if p.is_dir() and not p.is_symlink()):
            fsync_dir(folder)
        fsync_dir(target if target.is_dir() else target.parent)
    return found, size


def damage(folder: Path, digests: Mapping[str, str]) -> str | None:
    """What is wrong with a checkpoint whose files had these digests in `folder`; None if nothing is."""
    for name, digest in digests.items():
        try:
            if _digest(folder / name) != digest:
                return f"{folder / name} was changed since it was saved"
        except DataError as e:
            return str(e)
    return None


def _files(path: Path) -> Iterator[Path]:
    """The regular files of a checkpoint, in order; its links count as they are."""
    try:
        if not path.is_dir():
            if not stat.S_ISREG(path.lstat().st_mode):
                raise DataError(f"{path}: is neither a file nor a folder")
            yield path
            return
        empty = True
        for entry in sorted(path.rglob("*")):
            mode = entry.lstat().st_mode
            if stat.S_ISREG(mode):
                empty = False
                yield entry
            elif not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode):
                raise DataError(f"{entry}: is no file, folder or link, and cannot be part of a checkpoint")
    except FileNotFoundError as e:
        raise DataError(f"{e.filename}: no such file or folder") from e
    except PermissionError as e:
        raise DataError(f"{e.filename}: cannot be read: {e.strerror}; see to the permissions") from e
    if empty:
        raise DataError(f"{path}: holds no file")


def _relative(file: Path, payload: Path) -> str:
    return file.relative_to(payload.parent).as_posix()


def _digest(file: Path) -> str:
    try:
        return sha256(file)
    except FileNotFoundError as e:
        raise DataError(f"{file}: no such file") from e


def _copy_file(source: Path, target: Path) -> tuple[str, int]:
    """Copy one file, and digest it on the way."""
    digest, length = hashlib.sha256(), 0
    try:
        before = source.stat()
        with source.open("rb") as f, target.open("wb") as g:
            while piece := f.read(_PIECE):
                g.write(piece)
                digest.update(piece)
                length += len(piece)
            g.flush()
            os.fsync(g.fileno())
        after = source.stat()
    except FileNotFoundError as e:
        raise DataError(f"{source}: no such file") from e
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or length != after.st_size:
        raise DataError(
            f"{source}: changed while it was being copied; save to $TD_GUARD_STAGING, or each under a new name"
        )
    target.chmod(stat.S_IMODE(before.st_mode))
    return digest.hexdigest(), length
