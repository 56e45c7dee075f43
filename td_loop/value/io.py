"""The weights npz: `knots` f64[F, K], `coef` f64[S, F, K], `feature_names`, `meta`.

A file is refused, with its name, the fault and the remedy, rather than half believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import WeightsError
from td_loop.files import follow
from td_loop.npz import load_npz, save_npz
from td_loop.value.model import FORMAT_VERSION, SEGMENT_PLAYERS, SplineValue

MAX_KNOTS = 32
"""Knots a feature can have: what fits the searched lookup and the int8 knot index of fit."""

_REMEDY = "use another file, or make one with `td-loop fit`"


def save_weights(path: Path, v: SplineValue) -> None:
    """Write `v` to `path`, atomically. Equal values give equal bytes.

    Raises:
        WeightsError: `v` is not a value function that `load_weights` would take back.
        StorageError: the disk is full, read-only or failing.
    """
    meta = {"format_version": FORMAT_VERSION, **v.meta}
    names = np.array(v.feature_names, dtype=np.str_)
    arrays = {"knots": v.knots, "coef": v.coef, "feature_names": names}
    _check(path, arrays, meta)
    save_npz(path, arrays, meta)


def load_weights(path: Path, *, feature_names: tuple[str, ...] | None = None) -> SplineValue:
    """Read and check a weights npz.

    Args:
        path: the file, or where its pointer file leads (see `td_loop.files.point`).
        feature_names: what the game (or the cache) calls its features, in order; None: take what is there.

    Raises:
        WeightsError: missing, damaged, of an unknown version, not finite, of wrong shape or type, with knots that
            do not increase, or made for other features.
    """
    path = follow(path)
    arrays, meta = load_npz(path, WeightsError, maker=_REMEDY)
    _check(path, arrays, meta)
    names = tuple(str(name) for name in arrays["feature_names"])
    if feature_names is not None and names != tuple(feature_names):
        raise WeightsError(f"{path}: {describe_mismatch(names, feature_names)}; {_REMEDY}")
    return SplineValue(knots=arrays["knots"], coef=arrays["coef"], feature_names=names, meta=meta)


def describe_mismatch(found: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """One sentence on how two feature lists differ."""
    unknown = [n for n in found if n not in wanted]
    missing = [n for n in wanted if n not in found]
    if not unknown and not missing:
        return "made for the same features in another order"
    parts = [f"unknown: {', '.join(unknown)}"] if unknown else []
    parts += [f"missing: {', '.join(missing)}"] if missing else []
    return f"made for other features ({'; '.join(parts)})"


def _check(path: Path, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
    """Raise WeightsError at the first fault, cheapest and most telling first."""

    def refuse(fault: str) -> WeightsError:
        return WeightsError(f"{path}: {fault}; {_REMEDY}")

    # The keys come first: a cache of another kind has a version too, and "no knots" says more about it.
    missing = [key for key in ("knots", "coef", "feature_names") if key not in arrays]
    if missing:
        kind = f" (its kind is {meta['kind']!r})" if "kind" in meta else ""
        raise refuse(f"not a weights file{kind}: has no {', '.join(missing)}")
    version = meta.get("format_version")
    if version != FORMAT_VERSION:
        raise refuse(f"unknown format version {version!r}, this program reads {FORMAT_VERSION}")
    knots, coef, names = arrays["knots"], arrays["coef"], arrays["feature_names"]
    for name, array in (("knots", knots), ("coef", coef)):
        if array.dtype != np.float64:
            raise refuse(f"'{name}' is {array.dtype}, must be float64")
    if knots.ndim != 2 or knots.shape[0] < 1 or not 2 <= knots.shape[1] <= MAX_KNOTS:
        raise refuse(f"'knots' has shape {knots.shape}, must be [features >= 1, 2 <= knots <= {MAX_KNOTS}]")
    if coef.shape != (len(SEGMENT_PLAYERS), *knots.shape):
        raise refuse(f"'coef' has shape {coef.shape}, must be {(len(SEGMENT_PLAYERS), *knots.shape)}")
    if names.dtype.kind != "U" or names.shape != knots.shape[:1]:
        raise refuse(f"'feature_names' is {names.dtype}{list(names.shape)}, must be {knots.shape[0]} strings")
    if len(set(names.tolist())) != len(names):
        raise refuse("'feature_names' names a feature twice")
    for name, array in (("knots", knots), ("coef", coef)):
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            raise refuse(f"'{name}' holds {array[tuple(bad[0])]} at {bad[0].tolist()} ({names[bad[0][-2]]})")
    rows = np.flatnonzero((np.diff(knots, axis=1) <= 0).any(axis=1))
    if len(rows):
        raise refuse(f"the knots of feature {names[rows[0]]} do not increase")
    gamma = meta.get("gamma")
    if isinstance(gamma, bool) or not isinstance(gamma, int | float) or not (0 <= gamma <= 1):
        raise refuse(f"'gamma' in its meta is {gamma!r}, must be a number in 0..1")
