from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.errors import CacheError
from td_loop.fit.data import check_split, load_branch_data, load_mc_rows
from td_loop.npz import save_npz
from tests.synthetic import branch_data, games, mc_rows, value_function

G = games(3, 20, 6)
V = value_function(3)
Arrays = dict[str, np.ndarray]
Change = Callable[[Arrays, dict[str, Any]], None]


def written(path: Path, made: tuple[Arrays, dict[str, Any]], change: Change | None = None) -> Path:
    """Write arrays and meta after `change` has been made to copies of them."""
    arrays, meta = {k: a.copy() for k, a in made[0].items()}, dict(made[1])
    if change is not None:
        change(arrays, meta)
    save_npz(path, arrays, meta)
    return path


def put(key: str, at: Any, x: Any) -> Change:
    """Set an entry of an array."""

    def change(arrays: Arrays, meta: dict[str, Any]) -> None:
        arrays[key][at] = x

    return change


def drop(key: str) -> Change:
    """Leave an array out."""
    return lambda arrays, meta: arrays.__delitem__(key)


def cast(key: str, dtype: type) -> Change:
    """Change an array's type."""
    return lambda arrays, meta: arrays.__setitem__(key, arrays[key].astype(dtype))


def cut(key: str) -> Change:
    """Drop an array's last row."""
    return lambda arrays, meta: arrays.__setitem__(key, arrays[key][:-1])


def said(key: str, value: Any) -> Change:
    """Change a meta entry."""
    return lambda arrays, meta: meta.__setitem__(key, value)


def test_rows_are_split_as_the_file_says(tmp_path: Path) -> None:
    mc = load_mc_rows(written(tmp_path / "mc.npz", mc_rows(G)), match=V)
    assert len(mc.train) + len(mc.val) == len(G.turn)
    assert (mc.val.features == G.features[G.is_validation]).all()
    assert (mc.val_frame_id == G.frame_id[G.is_validation]).all()


def test_branches_are_joined_r_first(tmp_path: Path) -> None:
    made = branch_data(G, V, n=50)
    rows = load_branch_data(written(tmp_path / "b.npz", made), match=V)
    n_r = made[1]["n_r"]
    assert rows.is_agent.tolist() == [False] * n_r + [True] * made[1]["n_a"]
    assert (rows.td.target[:n_r] == made[0]["branch_r_target"]).all()
    assert (rows.td.alive[n_r:] == made[0]["alive_at_s_for_rows_a"]).all()
    assert (rows.mc_target[~rows.has_mc] == 0).all()


@pytest.mark.parametrize("k", [0.0, 1.0])
def test_a_branch_may_be_empty(tmp_path: Path, k: float) -> None:
    rows = load_branch_data(written(tmp_path / "b.npz", branch_data(G, V, n=20, k=k)), match=V)
    assert rows.is_agent.tolist() == [bool(k)] * 20


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (drop("outcome"), "has no 'outcome'"),
        (drop("n_players"), "has no 'n_players'"),
        (cast("features", np.float64), r"'features' is float64\["),
        (cut("alive"), r"'alive' is bool\[119, 4\], must be bool\[120, 4\]"),
        (put("features", (7, 1, 2), np.nan), r"'features' is not finite \(row 7\)"),
        (put("outcome", (5, 0), np.inf), r"'outcome' is not finite or is negative \(row 5\)"),
        (put("outcome", (5, slice(None)), 0.5), r"'outcome'"),
        (put("outcome", (5, slice(None)), 0.0), r"'outcome' does not sum to 1 \(row 5\)"),
        (put("n_players", 3, 5), r"'n_players' is not in 2..4 \(row 3\)"),
        (put("alive", (3, slice(None)), False), r"'alive' has nobody alive \(row 3\)"),
        (put("alive", (0, 3), True), r"'alive' has a seat alive that does not exist \(row 0\)"),
        (put("is_validation", slice(None), True), "has no training rows"),
        (put("is_validation", slice(None), False), "has no validation rows"),
        (said("kind", "branch_data"), "is of kind 'branch_data', must be 'mc_rows'"),
        (said("format_version", 2), "unknown format version 2"),
        (said("gamma", 0.5), r"made with gamma 0\.5, the weights with 0\.97"),
        (said("gamma", None), "gamma in its meta is None"),
        (said("game", "chess"), "made for the game 'chess', the weights for 'toy'"),
        (said("feature_names", ["feature_0", "feature_1", "moon"]), "unknown: moon; missing: feature_2"),
        (said("feature_names", "abc"), "no list of feature_names"),
    ],
)
def test_a_faulty_mc_rows_file_is_refused_with_its_name_and_the_fault(
    tmp_path: Path, change: Change, says: str
) -> None:
    path = written(tmp_path / "mc.npz", mc_rows(G), change)
    with pytest.raises(CacheError, match=says) as e:
        load_mc_rows(path, match=V)
    assert str(path) in str(e.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (drop("branch_a_has_mc"), "has no 'branch_a_has_mc'"),
        (drop("alive_at_s_for_rows_r"), "has no 'alive_at_s_for_rows_r'"),
        (cut("branch_r_mc_target"), "'branch_r_mc_target' is"),
        (cast("branch_a_frame_id", np.int32), "'branch_a_frame_id' is int32"),
        (put("branch_a_features", (2, 0, 0), np.inf), r"'branch_a_features' is not finite \(row 2\)"),
        (put("branch_r_target", (1, 0), np.nan), r"'branch_r_target' is not finite"),
        (
            put("branch_r_target", (1, slice(None)), [3, -2, 0, 0]),
            r"'branch_r_target' is not finite or is negative",
        ),
        (
            put("branch_r_target", (slice(2, 5), slice(None)), 0),
            r"'branch_r_target' does not sum to 1 \(row 2, and 2 more\)",
        ),
        (said("kind", None), "is of kind None"),
        (said("gamma", 0.9), r"made with gamma 0\.9"),
    ],
)
def test_a_faulty_branch_data_file_is_refused_with_its_name_and_the_fault(
    tmp_path: Path, change: Change, says: str
) -> None:
    path = written(tmp_path / "b.npz", branch_data(G, V, n=60), change)
    with pytest.raises(CacheError, match=says) as e:
        load_branch_data(path, match=V)
    assert str(path) in str(e.value)


def test_target_mass_on_a_dead_seat_is_refused(tmp_path: Path) -> None:
    made = branch_data(G, V, n=60)
    row = int(np.flatnonzero(made[0]["branch_r_n_players"] == 2)[0])
    path = written(tmp_path / "b.npz", made, put("branch_r_target", (row, slice(None)), [0, 0, 1, 0]))
    with pytest.raises(CacheError, match=rf"gives a seat that is not alive a chance \(row {row}\)"):
        load_branch_data(path, match=V)


def test_an_outcome_that_no_row_claims_to_have_is_not_judged(tmp_path: Path) -> None:
    made = branch_data(G, V, n=60)
    row = int(np.flatnonzero(~made[0]["branch_r_has_mc"])[0])
    path = written(tmp_path / "b.npz", made, put("branch_r_mc_target", (row, slice(None)), np.nan))
    assert (load_branch_data(path, match=V).mc_target[row] == 0).all()


def test_no_rows_at_all_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "b.npz", branch_data(G, V, n=0))
    with pytest.raises(CacheError, match="holds no rows"):
        load_branch_data(path, match=V)


def test_rows_of_validation_games_are_refused(tmp_path: Path) -> None:
    leak = put("branch_r_frame_id", 4, G.frame_id[G.is_validation][0])
    branch_path = written(tmp_path / "b.npz", branch_data(G, V, n=60), leak)
    mc_path = written(tmp_path / "mc.npz", mc_rows(G))
    with pytest.raises(CacheError, match=r"1 of its frames .* are validation rows"):
        check_split(branch_path, load_branch_data(branch_path, match=V), mc_path, load_mc_rows(mc_path))


def test_files_of_different_replay_sets_are_refused(tmp_path: Path) -> None:
    branch_path = written(tmp_path / "b.npz", branch_data(G, V, n=60), said("replay_set_hash", "6" * 64))
    mc_path = written(tmp_path / "mc.npz", mc_rows(G))
    with pytest.raises(CacheError, match="different replay sets"):
        check_split(branch_path, load_branch_data(branch_path, match=V), mc_path, load_mc_rows(mc_path))


@pytest.mark.parametrize("size", [0, 10, 1000, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    path = written(tmp_path / "b.npz", branch_data(G, V, n=60))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CacheError, match=r"b\.npz"):
        load_branch_data(path, match=V)


def test_a_flipped_byte_in_any_array_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "b.npz", branch_data(G, V, n=60))
    whole = path.read_bytes()
    arrays = branch_data(G, V, n=60)[0]
    for array in arrays.values():
        data = array.tobytes()
        at = whole.find(data) if len(data) > 8 else -1
        if at < 0 or not np.any(array):
            continue  # too plain to be found again in the file
        damaged = bytearray(whole)
        damaged[at + len(data) // 2] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(CacheError, match=r"b\.npz.*damaged"):
            load_branch_data(path, match=V)
