"""Files that `[audit]` of guard.toml declares, read with the greatest caution: they come from a job that broke."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import DataError
from td_loop.guard.audits import Buffer

_KEYS = {
    "rewards": ("rewards", "reward"),
    "observations": ("observations", "obs", "observation"),
    "steps": ("steps", "step"),
    "attempts": ("attempts", "attempt"),
}


def buffer(declared: str | None, base: Path) -> tuple[Buffer | None, str]:
    """The replay buffer of a file, or None and why there is none.

    Args:
        declared: its path, from `base` on.
        base: a folder.

    Raises:
        DataError: the file is there and is no replay buffer.
    """
    if declared is None:
        return None, "no replay buffer is declared"
    path = base / declared
    if not path.exists():
        return None, f"the declared replay buffer is not there: {path}"
    arrays = _arrays(path)
    found = {name: next((arrays[k] for k in keys if k in arrays), None) for name, keys in _KEYS.items()}
    rewards = found["rewards"]
    if rewards is None:
        raise DataError(f"{path}: has no rewards; it has {', '.join(arrays)}: save them as 'rewards'")
    n = len(rewards)
    for name, array in found.items():
        if array is not None and array.shape[:1] != (n,):
            raise DataError(f"{path}: '{name}' has shape {array.shape}, there are {n} rewards")
    one_each = {name: found[name] for name in ("steps", "attempts")}
    for name, array in {"rewards": rewards, **one_each}.items():
        if array is not None and (array.ndim != 1 or array.dtype.kind not in "fiub"):
            raise DataError(f"{path}: '{name}' is {array.dtype} of shape {array.shape}, must be one number a row")
    whole = {name: None if a is None else a.astype(np.int64) for name, a in one_each.items()}
    return Buffer(rewards.astype(np.float64), found["observations"], whole["steps"], whole["attempts"]), ""


def advantages(declared: str | None, base: Path) -> npt.NDArray[np.float64] | None:
    """The advantages of a file; None where none is declared or there.

    Raises:
        DataError: the file is there and holds no advantages.
    """
    if declared is None or not (path := base / declared).exists():
        return None
    arrays = _arrays(path)
    found = arrays.get("advantages", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if found is None or found.ndim not in (1, 2) or not found.size or found.dtype.kind not in "fiu":
        raise DataError(f"{path}: must be an npy of numbers, [batches, N] or [N], or an npz with 'advantages'")
    return found.astype(np.float64)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an npz, or the one of an npy under the name "rewards". Nothing is unpickled."""
    try:
        with path.open("rb") as f:  # numpy itself leaves a damaged file open
            loaded = np.load(f, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"rewards": loaded}
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as e:
        raise DataError(f"{path}: is no sound npz or npy ({e}); save it with numpy.savez") from e
