"""Finding episode files: single files, folders, globs and zips, and reading one at a time."""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from td_loop.errors import ReplayError

_SUFFIXES = (".json", ".json.gz", ".zip")
_GZIP_MAGIC = b"\x1f\x8b"
_LARGEST = 1 << 30  # bytes of one unpacked episode; full 500-turn games with four seats are about 40 MB


@dataclass(frozen=True)
class Source:
    """One episode file: a file, or a member of a zip."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path.name if self.member is None else f"{self.path.name}:{self.member}"


def find_sources(patterns: Sequence[str | Path]) -> list[Source]:
    """All episode files that `patterns` name, in a stable order, each once.

    A pattern is a file (any name), a zip, a folder (searched with its subfolders for .json, .json.gz and .zip),
    or a glob (`**` for any depth).

    Raises:
        ReplayError: a pattern names nothing, or a zip cannot be opened.
    """
    paths: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            found = [
                p for p in sorted(path.rglob("*")) if p.name.endswith(_SUFFIXES) and _wanted(p.relative_to(path))
            ]
        elif path.exists():
            found = [path]
        else:
            names = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207 (a pattern may be absolute)
            found = [p for name in names if (p := Path(name)).is_file()]
        if not found:
            what = "holds no .json, .json.gz or .zip file" if path.is_dir() else "no such file or folder"
            raise ReplayError(f"{pattern}: {what}; name episode files, a folder, a glob or a zip of them")
        paths += found
    sources: list[Source] = []
    for path in dict.fromkeys(paths):
        sources += _members(path) if path.suffix == ".zip" else [Source(path)]
    return sources


def _wanted(relative: Path) -> bool:
    """Whether a path found in a folder or zip is a file of the user's, not what an archiver left beside it."""
    return not any(part.startswith((".", "__MACOSX")) for part in relative.parts)


def _members(path: Path) -> list[Source]:
    try:
        with zipfile.ZipFile(path) as z:
            names = [n for n in z.namelist() if n.endswith((".json", ".json.gz")) and _wanted(Path(n))]
    except (zipfile.BadZipFile, OSError) as e:
        raise ReplayError(f"{path}: damaged or not a zip ({e}); fetch it again or leave it out") from e
    return [Source(path, name) for name in sorted(names)]


def fingerprint(sources: Sequence[Source]) -> str:
    """Hash of the files' paths, sizes and modification times: another one when a file is added or replaced."""
    h = hashlib.sha256()
    for path in sorted({s.path.absolute() for s in sources}):
        stat = path.stat()
        h.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return h.hexdigest()[:16]


class Reader:
    """Reads sources; keeps the last zip open, because its directory may list thousands of games."""

    def __init__(self) -> None:
        self._zip: tuple[Path, zipfile.ZipFile] | None = None

    def read(self, source: Source) -> bytes:
        """The episode's JSON, unpacked.

        Raises:
            ReplayError: unreadable, truncated or damaged; the message names it.
        """
        try:
            if source.member is None:
                data = source.path.read_bytes()
            else:
                data = self._open(source.path).read(source.member)
            if data.startswith(_GZIP_MAGIC):
                with gzip.GzipFile(fileobj=io.BytesIO(data)) as f:
                    data = f.read(_LARGEST + 1)
        except (
            OSError,
            EOFError,
            zlib.error,
            zipfile.BadZipFile,
            RuntimeError,
            NotImplementedError,
            KeyError,
        ) as e:
            raise ReplayError(f"{source.name}: cannot be unpacked ({e})") from e
        if len(data) > _LARGEST:
            raise ReplayError(f"{source.name}: unpacks to more than {_LARGEST >> 20} MiB, so it is no episode")
        return data

    def _open(self, path: Path) -> zipfile.ZipFile:
        if self._zip is None or self._zip[0] != path:
            self.close()
            self._zip = (path, zipfile.ZipFile(path))
        return self._zip[1]

    def close(self) -> None:
        """Close the zip that is open."""
        if self._zip is not None:
            self._zip[1].close()
            self._zip = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
