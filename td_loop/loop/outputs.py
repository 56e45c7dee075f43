"""Whether a stage's output is what its contract says. A stage that exits 0 without a valid output has failed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import CacheError, DataError, WeightsError
from td_loop.files import read_json, sha256
from td_loop.npz import load_npz

Array = npt.NDArray[Any]

FORMAT_VERSION = 1
WEIGHTS_VERSION = 2
"""Version of td_loop's own weights files, as in `td_loop.value.model`, which the loop does not know."""
# Name (with the branch in it) -> kinds of dtype, shape after the row; -1 is any length.
_ROW_ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    "branch_{}_frame_id": ("i", ()),
    "branch_{}_focal_seat": ("iu", ()),
    "branch_{}_n_players": ("iu", ()),
    "branch_{}_features": ("f", (4, -1)),
    "branch_{}_target": ("f", (4,)),
    "alive_at_s_for_rows_{}": ("b", (4,)),
    "branch_{}_is_partial": ("b", ()),
    "branch_{}_has_mc": ("b", ()),
    "branch_{}_mc_target": ("f", (4,)),
}
_PRIOR = ("branch_r_frame_id", "branch_r_focal_seat", "branch_r_target")


def read_branch_data(
    path: Path, *, v_snap_sha256: str, asked: Mapping[str, Any] | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and meta of a `branch_data.npz`, all of them read, in the contract's shapes and ranges.

    What S3.1 to S3.3 judge (the targets) is left to them.

    Args:
        path: the file.
        v_snap_sha256: of the weights that it must be made from.
        asked: settings that its meta must agree with, where it has them: a file of another day has others.

    Raises:
        CacheError: missing, damaged, of another kind or version, made from other weights or with other settings,
            or malformed.
    """
    arrays, meta = load_npz(path, CacheError)
    if (meta.get("kind"), meta.get("format_version")) != ("branch_data", FORMAT_VERSION):
        raise CacheError(
            f"{path}: its meta says kind {meta.get('kind')!r}, format_version {meta.get('format_version')!r}; "
            f"expected 'branch_data', {FORMAT_VERSION}"
        )
    if meta.get("v_snap_sha256") != v_snap_sha256:
        raise CacheError(
            f"{path}: its meta says v_snap_sha256 {meta.get('v_snap_sha256')!r}, but this iteration's V_snap has "
            f"{v_snap_sha256!r}; it was made from other weights"
        )
    for key, value in (asked or {}).items():
        if key in meta and meta[key] != value:
            raise CacheError(f"{path}: its meta says {key} {meta[key]!r}, this attempt asked for {value!r}")
    for b in ("r", "a"):
        _check_branch(path, arrays, b)
    if arrays["branch_r_features"].shape[2] != arrays["branch_a_features"].shape[2]:
        raise CacheError(f"{path}: branch_r_features and branch_a_features differ in the number of features")
    return arrays, meta


def _check_branch(path: Path, arrays: dict[str, Array], b: str) -> None:
    spec = {name.format(b): want for name, want in _ROW_ARRAYS.items()}
    if b == "a":
        spec["branch_a_engine_fallback"] = ("b", ())
    for name, (kinds, tail) in spec.items():
        if name not in arrays:
            raise CacheError(f"{path}: has no '{name}'")
        array = arrays[name]
        fits = array.ndim == 1 + len(tail) and all(
            t in (-1, s) for t, s in zip(tail, array.shape[1:], strict=True)
        )
        if array.dtype.kind not in kinds or not fits:
            raise CacheError(f"{path}: '{name}' is {array.dtype}{list(array.shape)}, which is not its contract")
        if len(array) != len(arrays[f"branch_{b}_frame_id"]):
            raise CacheError(f"{path}: '{name}' has {len(array)} rows, 'branch_{b}_frame_id' has others")
    players, focal = arrays[f"branch_{b}_n_players"], arrays[f"branch_{b}_focal_seat"]
    alive = arrays[f"alive_at_s_for_rows_{b}"]
    rows = np.arange(len(players))
    in_range = (players >= 2) & (players <= 4) & (focal >= 0) & (focal < players)
    faults = {
        "n_players must be 2..4 and focal_seat below it": ~in_range,
        "the focal seat must be alive (I4)": in_range & ~alive[rows, np.where(in_range, focal, 0)],
        "no seat beyond n_players can be alive (I3)": (alive & (np.arange(4) >= players[:, None])).any(axis=1),
        "a feature is not finite (I6)": ~np.isfinite(arrays[f"branch_{b}_features"]).all(axis=(1, 2)),
        "an outcome is not finite": arrays[f"branch_{b}_has_mc"]
        & ~np.isfinite(arrays[f"branch_{b}_mc_target"]).all(axis=1),
    }
    for fault, bad in faults.items():
        if bad.any():
            raise CacheError(f"{path}: Branch {b.upper()} row {int(np.flatnonzero(bad)[0])}: {fault}")


def read_prior_targets(path: Path) -> dict[str, Array]:
    """What S3.7 needs of the iteration before. Three arrays: the rest of the file may be ten times as large.

    Raises:
        CacheError: the file is gone or cannot be read any more.
    """
    return load_npz(path, CacheError, names=_PRIOR)[0]


def read_training(path: Path) -> dict[str, Any]:
    """The parsed `weights.training.json`.

    Raises:
        DataError: missing, or not a JSON object.
    """
    training = read_json(path)
    if not isinstance(training, dict):
        raise DataError(f"{path}: is not a JSON object")
    return training


def check_report(training: Mapping[str, Any], path: Path, weights: Path, *, branch_data_sha256: str) -> None:
    """Check that a report is about these weights and this `branch_data.npz`, as far as it says.

    Raises:
        DataError: it is about others.
    """
    inputs = training.get("inputs") or {}
    cache = inputs.get("td_cache") if isinstance(inputs, Mapping) else inputs
    told = {"output": training.get("output"), "inputs.td_cache": cache}
    found = {"output": sha256(weights) if weights.is_file() else None, "inputs.td_cache": branch_data_sha256}
    for key, entry in told.items():
        if entry is None:
            continue
        digest = entry.get("sha256") if isinstance(entry, Mapping) else entry
        if digest != found[key]:
            raise DataError(
                f"{path}: its {key}.sha256 is {digest!r}, the file has {found[key]}: it is the report of another "
                "fit"
            )


def require_file(path: Path) -> None:
    """Check that an output is a file of its own: what a link leads to can change without the run.

    Raises:
        DataError: it is a link.
    """
    if path.is_symlink():
        raise DataError(f"{path}: is a link to {path.readlink()}, not a file of its own; write or copy it there")


def check_weights(path: Path, like: Path | None = None) -> None:
    """Check a weights npz without knowing the model: it reads whole, and every number in it is finite.

    Args:
        path: the file.
        like: its V_snap; the arrays must have the same names and shapes.

    Raises:
        WeightsError: it is not so.
    """
    arrays, _ = load_npz(path, WeightsError)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise WeightsError(f"{path}: '{name}' holds values that are not finite")
    if not arrays:
        raise WeightsError(f"{path}: holds no arrays")
    if like is not None:
        before, _ = load_npz(like, WeightsError)
        now, then = ({k: a.shape for k, a in z.items()} for z in (arrays, before))
        if now != then:
            raise WeightsError(f"{path}: its arrays are {now}, those of its V_snap {like} are {then}")


def check_bootstrap(path: Path) -> None:
    """Check weights that a run is to start from: `check_weights`, and the format version of a spline.

    A model of another kind, which the user's own stages know, has no knots and is not asked for its version.

    Raises:
        WeightsError: it is not so.
    """
    check_weights(path)
    arrays, meta = load_npz(path, WeightsError)
    version = meta.get("format_version")
    if "knots" in arrays and version != WEIGHTS_VERSION:
        raise WeightsError(
            f"{path}: unknown format version {version!r}, this program reads {WEIGHTS_VERSION}; give another "
            "--bootstrap, or fit one with `td-loop fit` without --resume"
        )


def n_features(weights: Path, default: int = 32) -> int:
    """Number of features of a spline, to forecast disk use; `default` for a model of another kind."""
    arrays, _ = load_npz(weights, WeightsError)
    return int(arrays["knots"].shape[0]) if "knots" in arrays else default
