"""Atomic files, JSON that keeps non-finite numbers, symlinks: the only door to the disk.

The recipe everywhere: write a temporary name in the same folder, flush, fsync, `os.replace`, fsync the folder.
A reader therefore finds the old file or the new one, never half of one. Right before a change becomes visible the
fence is asked: a process whose driver was replaced by another one changes nothing (`RunInUse`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import orjson

from td_loop import fence, text
from td_loop.errors import DataError, StorageError

Array = npt.NDArray[Any]

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_STORAGE_ERRNOS = {*_FULL, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}
_REMEDIES = dict.fromkeys(_FULL, "free space or choose another folder") | dict.fromkeys(
    (errno.ENOTDIR, errno.EISDIR), "move away what is in its place, or choose another folder"
)
_NO_SYMLINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
_STORAGE_ERRNOS |= {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}  # a place where nothing can be put


@contextlib.contextmanager
def storage_errors(path: Path, size: int | None = None) -> Iterator[None]:
    """Turn an `OSError` of a full, read-only or failing disk into a `StorageError` that names `path`.

    `size` is how many bytes are to be written, where that is known: what a full disk has to have free.
    """
    try:
        yield
    except OSError as e:
        if e.errno in _STORAGE_ERRNOS:
            wanted = f" ({_room(path, size)})" if size is not None and e.errno in _FULL else ""
            remedy = _REMEDIES.get(e.errno, "see to the disk and the permissions, or choose another folder")
            raise StorageError(f"cannot write {path}: {e.strerror}{wanted}; {remedy}, then run again") from e
        raise


def _room(path: Path, size: int) -> str:
    return f"it takes {text.size(size)}, {text.size(disk_free(path.parent))} is free"


def disk_free(folder: Path) -> int:
    """Free bytes on the file system that holds `folder` (or the first of its parents that exists)."""
    while not folder.exists():
        folder = folder.parent
    with storage_errors(folder):
        return shutil.disk_usage(folder).free


def fsync_dir(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def atomic_file(path: Path, size: int | None = None, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Yield a binary file that becomes `path` when the block ends well, and vanishes when it does not.

    `size` is how many bytes will be written, where that is known, for the message about a full disk. Nobody but
    its owner may read a `private` one, at no moment.

    Raises:
        StorageError: the disk is full, read-only or failing.
    """
    with storage_errors(path, size):
        make_dir(path.parent)
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(fd, "w+b") as f:
                yield f
                f.flush()
                os.fsync(f.fileno())
            if not private:  # mkstemp's own mode is 0600
                temporary.chmod(0o666 & ~_umask())
            fence.check()
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        fsync_dir(path.parent)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that becomes `path` when the block ends well, and vanishes when it does not.

    Whoever writes files into it makes them durable (fsync) himself.

    Raises:
        FileExistsError: `path` is there and not empty: somebody else was faster, and what he made is left alone.
        StorageError: the disk is full, read-only or failing.
    """
    with storage_errors(path):
        make_dir(path.parent)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            fsync_dir(temporary)
            fence.check()
            try:
                temporary.rename(path)
            except OSError as e:
                if e.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise FileExistsError(errno.EEXIST, "exists already", str(path)) from e
                raise
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        fsync_dir(path.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def make_dir(path: Path) -> None:
    """Make a folder and its parents, if they are not there.

    Raises:
        StorageError: it cannot be made, or a file is in its way.
    """
    fence.check()  # a run directory that was moved away is not made anew
    with storage_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as e:  # what mkdir says of a file
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from e


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, atomically."""
    with atomic_file(path, len(data)) as f:
        f.write(data)


def point(link: Path, target: str) -> None:
    """Make `link` lead to `target` (relative to the link's folder) in one step: a symlink, or a pointer file.

    The pointer file, `latest_good.txt` for `latest_good.npz`, holds the target in one line. It takes over where
    the file system knows no symlinks (exFAT, some network shares), and goes once one can be made.
    """
    if link.is_symlink() and pointed(link) == target:
        return
    with storage_errors(link):
        if _replace_symlink(link, target):
            remove(pointer_file(link))
            return
        if pointed(link) != target:
            write_bytes(pointer_file(link), f"{target}\n".encode())
        remove(link)  # a copy of what it once led to, which would be read in place of the pointer


def _replace_symlink(link: Path, target: str) -> bool:
    """Point `link` at `target`; False where the file system has no symlinks.

    Remove-then-create would leave a moment in which readers find nothing; renaming a new link over it does not.
    """
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    fence.check()
    try:
        temporary.symlink_to(target)
    except OSError as e:
        if e.errno in _NO_SYMLINKS:
            return False
        raise
    try:
        temporary.replace(link)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_dir(link.parent)
    return True


def unpoint(link: Path) -> None:
    """Remove what `point` made."""
    remove(link)
    remove(pointer_file(link))


def pointer_file(link: Path) -> Path:
    """The file that stands in for `link` where there are no symlinks."""
    return link.with_suffix(".txt")


def pointed(link: Path) -> str | None:
    """Where `link` leads, as `point` was told; None if nowhere."""
    pointer = pointer_file(link)
    if link.is_symlink():
        # Both there: the pointer is what a kill left between making the link and removing it.
        return None if pointer.exists() else str(link.readlink())
    return pointer.read_text().strip() if pointer.is_file() else None


def follow(path: Path) -> Path:
    """`path`, or where its pointer file leads if there is one and no `path`."""
    pointer = pointer_file(path)
    if os.path.lexists(path) or not pointer.is_file():
        return path
    return path.parent / pointer.read_text().strip()


_TEMPORARY = re.compile(r"\.(.+)\.[a-z0-9_]+\.tmp")


def sweep_temporaries(folder: Path, names: Collection[str] | None = None) -> None:
    """Remove what a kill left of half-written files and folders in `folder`.

    Only of those that were to become one of `names`, where these are given.
    """
    for path in sorted(folder.iterdir()):
        match = _TEMPORARY.fullmatch(path.name)
        if match and (names is None or match[1] in names):
            if path.is_dir() and not path.is_symlink():
                with storage_errors(path):
                    fence.check()
                    shutil.rmtree(path)
            else:
                remove(path)


def move(source: Path, target: Path) -> None:
    """Rename a file or folder within one file system; `target` must not exist."""
    make_dir(target.parent)
    with storage_errors(target):
        if target.exists():
            raise FileExistsError(errno.EEXIST, "already exists", str(target))
        fence.check()
        source.rename(target)
        fsync_dir(target.parent)
        fsync_dir(source.parent)


def remove(path: Path) -> None:
    """Delete a file or link, if it is there."""
    with storage_errors(path), contextlib.suppress(FileNotFoundError):
        fence.check()
        path.unlink()


def remove_tree(path: Path) -> None:
    """Delete a folder and all that is in it. Under its name it is there whole, or not at all.

    Raises:
        StorageError: it cannot be deleted.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with storage_errors(path):
        fence.check()
        path.rename(temporary)
        fsync_dir(path.parent)
        shutil.rmtree(temporary)


def fsync_file(path: Path) -> None:
    """Make a file durable that another program wrote."""
    with storage_errors(path):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        fsync_dir(path.parent)


def sha256(path: Path) -> str:
    """The hex SHA-256 of a file's bytes.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it cannot be read; the message names it.
    """
    try:
        with path.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except FileNotFoundError:
        raise
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}; see to the disk and the permissions") from e


# --- JSON ------------------------------------------------------------------------------------------------


def _jsonable(x: Any) -> Any:
    """Spell non-finite floats out, and turn numpy values and paths into plain ones."""
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, float) and not math.isfinite(x):
        # orjson would write null, which hides exactly what S4.1 looks for.
        return "NaN" if math.isnan(x) else ("Infinity" if x > 0 else "-Infinity")
    if isinstance(x, Mapping):
        return {str(k): _jsonable(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_jsonable(v) for v in x]
    if isinstance(x, np.ndarray):
        return _jsonable(x.tolist())
    if isinstance(x, Path):
        return str(x)
    return x


def dumps_json(value: Any, *, indent: bool = False) -> bytes:
    """JSON bytes; NaN and infinities become the strings "NaN", "Infinity", "-Infinity"."""
    return orjson.dumps(_jsonable(value), option=orjson.OPT_INDENT_2 if indent else 0)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically (see `dumps_json`)."""
    write_bytes(path, dumps_json(value, indent=True) + b"\n")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings that `--config` names.

    Raises:
        DataError: it is missing, cannot be read or is no TOML; the message names it, and the line.
    """
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as e:
        raise DataError(f"{path}: no such file; leave --config out for the defaults") from e
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"{path}: cannot be read: {e}") from e
    except tomllib.TOMLDecodeError as e:
        raise DataError(f"{path}: no valid TOML: {e}") from e


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: the file is missing, cannot be read or does not parse; the message names it.
    """
    try:
        return orjson.loads(path.read_bytes())
    except FileNotFoundError as e:
        raise DataError(f"{path}: no such file") from e
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}; see to the disk and the permissions") from e
    except orjson.JSONDecodeError as e:
        raise DataError(f"{path}: not valid JSON ({e})") from e


def as_float(x: Any) -> float:
    """A JSON number back to float; the strings that `dumps_json` writes for non-finite values included."""
    if isinstance(x, str) and x in _NON_FINITE:
        return _NON_FINITE[x]
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise DataError(f"expected a number, found {x!r}")
    return float(x)
