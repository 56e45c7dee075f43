"""The numba decorator of all kernels, with a disk cache that yesterday's rules cannot survive in.

numba decides whether a cached function is stale by the file that it stands in, not by the kernels that it calls
nor by the constants that it freezes in other files. So the cache folder is named by a hash of every source of the
rooms that kernels live in: touch one, and all compile anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

# Where Intel's vector library is installed, numba would take sin and cos in loops from it. They differ from the C
# library's in the last bit, and a game would differ from the official one. numba reads this when it is imported.
os.environ["NUMBA_DISABLE_INTEL_SVML"] = "1"

import numba
import numpy as np
from numba.core import config, event

from td_loop.errors import TdLoopError

if vars(config).get("USING_SVML"):  # too late for the line above: somebody imported numba first
    raise TdLoopError(
        "numba was imported before td_loop and uses Intel's vector library, with which games differ from the "
        "official ones in the last bit; import td_loop.kernels (or the td_loop module you need) before numba, or "
        "set NUMBA_DISABLE_INTEL_SVML=1"
    )

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parent
_ROOMS = ("games", "value")  # where kernels live, and the constants that they freeze
_KEPT_S = 30 * 86_400.0  # a cache folder that nobody used for so long is deleted


@cache
def sources_hash() -> str:
    """Hash of numba's version, of this file and of every file of the rooms that kernels live in."""
    h = hashlib.sha256(numba.__version__.encode())
    paths = [_PACKAGE / "kernels.py", *(p for room in _ROOMS for p in (_PACKAGE / room).rglob("*.py"))]
    for path in sorted(paths):
        text = path.read_bytes()
        h.update(f"{path.relative_to(_PACKAGE)}\0{len(text)}\0".encode() + text)
    return h.hexdigest()[:16]


def cache_dir() -> Path:
    """Folder for everything that can be made again: `$TD_LOOP_CACHE`, else the user's cache folder."""
    if named := os.environ.get("TD_LOOP_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "td_loop"


def _kernel_cache() -> Path:
    folder = cache_dir() / f"kernels-{sources_hash()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:  # a read-only home must not stop a run; it only compiles again
        folder = Path(tempfile.gettempdir()) / f"td_loop-{os.getuid()}-kernels-{sources_hash()}"
        folder.mkdir(parents=True, exist_ok=True)
    else:
        _drop_old(folder)
    return folder


def _drop_old(used: Path) -> None:
    """Delete the siblings of `used` that nobody used for _KEPT_S; who still runs from one only compiles again."""
    with suppress(OSError):
        for sibling in used.parent.glob("kernels-*"):
            if sibling != used and sibling.stat().st_mtime < time.time() - _KEPT_S:
                shutil.rmtree(sibling, ignore_errors=True)


vars(config)["CACHE_DIR"] = str(_kernel_cache())


_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
_BORROWED = {**_OPTIONS, "_nrt": False}  # `_nrt`: numba counts who holds an array


def kernel(f: F) -> F:
    """Compile `f` in nopython mode, exact IEEE arithmetic (no fastmath), cached on disk, without the GIL.

    Its arrays are the caller's, and nobody counts who holds them: counting at every look at a field of a tuple
    took half the time of a search. So a kernel neither makes arrays (numba refuses it), nor calls a kernel that
    returns new ones (they would never be freed). See `allocating`.
    """
    return cast(F, numba.njit(**_BORROWED)(f))


def inlined(f: F) -> F:
    """Like `kernel`, for small helpers: LLVM is told to inline them into their callers."""
    return cast(F, numba.njit(**_BORROWED, forceinline=True)(f))


def allocating(f: F) -> F:
    """Like `kernel`, for those that make arrays or call a kernel that returns new ones."""
    counted = {**_OPTIONS, "_nrt": True}  # said aloud: else it is what the first caller has
    return cast(F, numba.njit(**counted)(f))


_TYPED = 0x0001 | 0x0002 | 0x0100 | 0x0400  # flags of an array that its type depends on: C, F, aligned, writeable


def layout(fields: Iterable[Any]) -> tuple[Any, ...]:
    """All that numba's types of arrays, or of numbers, depend on."""
    return tuple((a.dtype, a.ndim, a.flags.num & _TYPED) if isinstance(a, np.ndarray) else type(a) for a in fields)


def settled(f: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """The code of kernel `f` for arguments of exactly the types of `args` (they are not used otherwise).

    It does not look at what it is called with: arguments of any other type (see `layout`) are misread.
    """
    types = tuple(cast(Any, numba).typeof(a) for a in args)
    return cast(Callable[..., Any], cast(Any, f).compile(types))


@contextmanager
def compilations() -> Iterator[list[str]]:
    """A list that holds, after the block, the names of kernels compiled in it (and not loaded from the cache)."""
    names: list[str] = []
    with event.install_recorder("numba:compile") as recorder:
        try:
            yield names
        finally:
            names += [str(e.data["dispatcher"].py_func.__qualname__) for _, e in recorder.buffer if e.is_start]
