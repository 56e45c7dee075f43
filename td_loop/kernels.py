"""The numba decorator of all kernels, with a disk cache that yesterday's rules cannot survive in.

numba decides whether a cached function is stale by the file that it stands in, not by the kernels that it calls in
other files. So the cache folder is named by a hash of every kernel source: touch one, and all compile anew.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

# Where Intel's vector library is installed, numba would take sin and cos in loops from it. They differ from the C
# library's in the last bit, and a game would differ from the official one. numba reads this when it is imported.
os.environ["NUMBA_DISABLE_INTEL_SVML"] = "1"

import numba
from numba.core import config, event

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parent


@cache
def sources_hash() -> str:
    """Hash of numba's version and of every file of the package that holds kernels."""
    h = hashlib.sha256(numba.__version__.encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_bytes()
        if b"td_loop.kernels import" in text or path.name == "kernels.py":
            h.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + text)
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
    except OSError:  # a read-only home must not stop a run; it only compiles again
        folder = Path(tempfile.gettempdir()) / f"td_loop-{os.getuid()}-kernels-{sources_hash()}"
        folder.mkdir(parents=True, exist_ok=True)
    return folder


vars(config)["CACHE_DIR"] = str(_kernel_cache())


def kernel(f: F) -> F:
    """Compile `f` in nopython mode, exact IEEE arithmetic (no fastmath), cached on disk, without the GIL."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(f))


def inlined(f: F) -> F:
    """Like `kernel`, for small helpers: LLVM is told to inline them into their callers."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(f))


@contextmanager
def compilations() -> Iterator[list[str]]:
    """A list that holds, after the block, the names of kernels compiled in it (and not loaded from the cache)."""
    names: list[str] = []
    with event.install_recorder("numba:compile") as recorder:
        try:
            yield names
        finally:
            names += [str(e.data["dispatcher"].py_func.__qualname__) for _, e in recorder.buffer if e.is_start]
