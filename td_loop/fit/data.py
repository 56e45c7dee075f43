"""The two files that fit reads, checked to the last number before the first step.

B rows, 4 seats, F features. A fault raises CacheError with the file, the key and the first bad row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import CacheError
from td_loop.npz import load_npz
from td_loop.value.io import describe_mismatch
from td_loop.value.model import SplineValue

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]

FORMAT_VERSION = 1
_SUM_ATOL = 1e-4
_REMEDY = "make the file again with `td-loop prepare`"


@dataclass(frozen=True)
class Targets:
    """States with one distribution over the seats each."""

    features: Floats  # [B, 4, F]
    n_players: npt.NDArray[np.int8]  # [B]
    alive: BoolArray  # [B, 4]
    target: Floats  # [B, 4]

    def __len__(self) -> int:
        return len(self.n_players)

    def take(self, rows: Array) -> Targets:
        """The rows of an index array or a mask."""
        return Targets(self.features[rows], self.n_players[rows], self.alive[rows], self.target[rows])


@dataclass(frozen=True)
class TrainingRows:
    """What a step draws from. A row has a TD target, an MC target, or both.

    Attributes:
        features: f32[N, 4, F].
        n_players: i8[N].
        alive: bool[N, 4].
        td_target: f32[N, 4]; None where the fit has no TD loss at all.
        mc_target: f32[N, 4], 0 where `has_mc` is False.
        has_mc: bool[N].
    """

    features: Floats
    n_players: npt.NDArray[np.int8]
    alive: BoolArray
    td_target: Floats | None
    mc_target: Floats
    has_mc: BoolArray


@dataclass(frozen=True)
class McRows:
    """States of whole games with the game's outcome as target.

    Attributes:
        train: rows of training games.
        val: the fixed validation rows.
        val_frame_id: i64, frame of every row of `val`.
        meta: as in the file.
    """

    train: Targets
    val: Targets
    val_frame_id: npt.NDArray[np.int64]
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class BranchRows:
    """Rows of both branches, R first.

    Attributes:
        td: inputs, with V_snap's value of the next state as target.
        is_agent: bool[B], the row is of Branch A.
        has_mc: bool[B], the row also carries the game's outcome.
        mc_target: f32[B, 4], that outcome; 0 where there is none.
        frame_id: i64[B].
        meta: as in the file.
    """

    td: Targets
    is_agent: BoolArray
    has_mc: BoolArray
    mc_target: Floats
    frame_id: npt.NDArray[np.int64]
    meta: Mapping[str, Any]


def load_mc_rows(path: Path, *, match: SplineValue | None = None) -> McRows:
    """Read and check an mc_rows npz; with `match`, its features, gamma and game must be those of that V.

    Raises:
        CacheError: missing, damaged or of another kind; a key, shape, type or number that cannot be; no
            training or no validation rows.
    """
    arrays, meta = load_npz(path, CacheError, maker=_REMEDY)
    _check_meta(path, meta, "mc_rows", match)
    n = _rows_of(path, arrays, "n_players")
    features = len(meta["feature_names"])
    schema: dict[str, tuple[type, tuple[int, ...]]] = {
        "features": (np.float32, (n, 4, features)),
        "n_players": (np.int8, (n,)),
        "alive": (np.bool_, (n, 4)),
        "outcome": (np.float32, (n, 4)),
        "frame_id": (np.int64, (n,)),
        "game": (np.int32, (n,)),
        "turn": (np.int16, (n,)),
        "is_validation": (np.bool_, (n,)),
    }
    _check_schema(path, arrays, schema)
    rows = Targets(arrays["features"], arrays["n_players"], arrays["alive"], arrays["outcome"])
    _check_targets(path, rows, features="features", alive="alive", target="outcome")
    held_out = arrays["is_validation"]
    for what, count in (("training", int((~held_out).sum())), ("validation", int(held_out.sum()))):
        if not count:
            raise CacheError(f"{path}: has no {what} rows; it takes at least 2 games with a known outcome")
    return McRows(
        train=rows.take(~held_out),
        val=rows.take(held_out),
        val_frame_id=arrays["frame_id"][held_out],
        meta=meta,
    )


def load_branch_data(path: Path, *, match: SplineValue) -> BranchRows:
    """Read and check a branch_data npz made for the features, gamma and game of `match`.

    Raises:
        CacheError: missing, damaged or of another kind; a key, shape, type or number that cannot be; no rows.
    """
    arrays, meta = load_npz(path, CacheError, maker=_REMEDY)
    _check_meta(path, meta, "branch_data", match)
    r, r_has, r_mc = _branch(path, arrays, "r", len(match.feature_names))
    a, a_has, a_mc = _branch(path, arrays, "a", len(match.feature_names))
    if len(r) + len(a) == 0:
        raise CacheError(f"{path}: holds no rows; {_REMEDY} and a larger --n")
    return BranchRows(
        td=Targets(
            np.concatenate((r.features, a.features)),
            np.concatenate((r.n_players, a.n_players)),
            np.concatenate((r.alive, a.alive)),
            np.concatenate((r.target, a.target)),
        ),
        is_agent=np.repeat([False, True], [len(r), len(a)]),
        has_mc=np.concatenate((r_has, a_has)),
        mc_target=np.concatenate((r_mc, a_mc)),
        frame_id=np.concatenate((arrays["branch_r_frame_id"], arrays["branch_a_frame_id"])),
        meta=meta,
    )


def _branch(path: Path, arrays: Mapping[str, Array], b: str, n_features: int) -> tuple[Targets, BoolArray, Floats]:
    """Rows of one branch, and whether and what they know of the game's outcome."""
    n = _rows_of(path, arrays, f"branch_{b}_n_players")
    x, alive, td, mc, has = (
        f"branch_{b}_features",
        f"alive_at_s_for_rows_{b}",
        f"branch_{b}_target",
        f"branch_{b}_mc_target",
        f"branch_{b}_has_mc",
    )
    schema: dict[str, tuple[type, tuple[int, ...]]] = {
        f"branch_{b}_frame_id": (np.int64, (n,)),
        f"branch_{b}_focal_seat": (np.int8, (n,)),
        f"branch_{b}_n_players": (np.int8, (n,)),
        x: (np.float32, (n, 4, n_features)),
        td: (np.float32, (n, 4)),
        alive: (np.bool_, (n, 4)),
        f"branch_{b}_is_partial": (np.bool_, (n,)),
        has: (np.bool_, (n,)),
        mc: (np.float32, (n, 4)),
    }
    _check_schema(path, arrays, schema)
    rows = Targets(arrays[x], arrays[f"branch_{b}_n_players"], arrays[alive], arrays[td])
    _check_targets(path, rows, features=x, alive=alive, target=td)
    outcome = np.where(arrays[has][:, None], arrays[mc], np.float32(0))
    with_outcome = Targets(rows.features, rows.n_players, rows.alive, outcome)
    _check_targets(path, with_outcome, features=x, alive=alive, target=mc, only=arrays[has])
    return rows, arrays[has], outcome


def check_split(branch_path: Path, branch: BranchRows, mc_path: Path, mc: McRows) -> None:
    """Refuse a cache whose rows stand among the validation rows: val_mc_nll would flatter.

    Raises:
        CacheError: the files are of different replay sets, or share frames.
    """
    theirs, ours = branch.meta.get("replay_set_hash"), mc.meta.get("replay_set_hash")
    if theirs is not None and ours is not None and theirs != ours:
        raise CacheError(f"{branch_path} and {mc_path} come from different replay sets; {_REMEDY} from one set")
    shared = np.intersect1d(branch.frame_id, mc.val_frame_id)
    if len(shared):
        raise CacheError(
            f"{branch_path}: {len(shared)} of its frames (frame_id {shared[0]} first) are validation rows of "
            f"{mc_path}; draw training rows from training games only"
        )


def _check_meta(path: Path, meta: Mapping[str, Any], kind: str, match: SplineValue | None) -> None:
    if meta.get("kind") != kind:
        raise CacheError(f"{path}: is of kind {meta.get('kind')!r}, must be {kind!r}; give the right file")
    if meta.get("format_version") != FORMAT_VERSION:
        found = meta.get("format_version")
        raise CacheError(
            f"{path}: unknown format version {found!r}, this program reads {FORMAT_VERSION}; {_REMEDY}"
        )
    names = meta.get("feature_names")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise CacheError(f"{path}: its meta has no list of feature_names; {_REMEDY}")
    gamma = meta.get("gamma")
    if isinstance(gamma, bool) or not isinstance(gamma, int | float) or not 0 <= gamma <= 1:
        raise CacheError(f"{path}: gamma in its meta is {gamma!r}, must be a number in 0..1; {_REMEDY}")
    if match is None:
        return
    if tuple(names) != match.feature_names:
        raise CacheError(
            f"{path}: {describe_mismatch(tuple(names), match.feature_names)} than the weights; {_REMEDY}"
        )
    if gamma != match.gamma:
        raise CacheError(f"{path}: made with gamma {gamma:g}, the weights with {match.gamma:g}; {_REMEDY}")
    game, own = meta.get("game"), match.meta.get("game")
    if game is not None and own is not None and game != own:
        raise CacheError(f"{path}: made for the game {game!r}, the weights for {own!r}; {_REMEDY}")


def _rows_of(path: Path, arrays: Mapping[str, Array], key: str) -> int:
    if key not in arrays:
        raise CacheError(f"{path}: has no '{key}'; {_REMEDY}")
    return int(arrays[key].shape[0]) if arrays[key].ndim else 0


def _check_schema(
    path: Path, arrays: Mapping[str, Array], schema: Mapping[str, tuple[type, tuple[int, ...]]]
) -> None:
    for key, (dtype, shape) in schema.items():
        if key not in arrays:
            raise CacheError(f"{path}: has no '{key}'; {_REMEDY}")
        if arrays[key].dtype != dtype or arrays[key].shape != shape:
            found, wanted = arrays[key], np.dtype(dtype)
            raise CacheError(f"{path}: '{key}' is {found.dtype}{list(found.shape)}, must be {wanted}{list(shape)}")


def _check_targets(
    path: Path, rows: Targets, *, features: str, alive: str, target: str, only: BoolArray | None = None
) -> None:
    """Check the numbers; the target only in rows `only`, where given."""
    players = rows.n_players.astype(np.int64)
    judged = np.ones(len(rows), np.bool_) if only is None else only
    beyond = np.arange(4) >= players[:, None]
    outside = ~np.isfinite(rows.target) | (rows.target < 0)
    total = rows.target.sum(axis=1, dtype=np.float64)
    faults: tuple[tuple[str, str, Any], ...] = (
        ("n_players", "is not in 2..4", (players < 2) | (players > 4)),
        (alive, "has nobody alive", ~rows.alive.any(axis=1)),
        (alive, "has a seat alive that does not exist", (rows.alive & beyond).any(axis=1)),
        (features, "is not finite", ~np.isfinite(rows.features).all(axis=(1, 2))),
        (target, "is not finite or is negative", outside.any(axis=1) & judged),
        (
            target,
            "gives a seat that is not alive a chance",
            ((rows.target > 0) & ~rows.alive).any(axis=1) & judged,
        ),
        (target, "does not sum to 1", ~(np.abs(total - 1) <= _SUM_ATOL) & judged),
    )
    for key, fault, bad in faults:
        if bad.any():
            where = (
                f"row {int(np.argmax(bad))}, and {int(bad.sum()) - 1} more"
                if bad.sum() > 1
                else f"row {np.argmax(bad)}"
            )
            raise CacheError(f"{path}: '{key}' {fault} ({where}); {_REMEDY}")
