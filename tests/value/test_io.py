from __future__ import annotations

import errno
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import StorageError, WeightsError
from td_loop.npz import load_npz, save_npz
from td_loop.value.io import load_weights, save_weights
from td_loop.value.model import SplineValue
from tests.synthetic import value_function
from tests.value.strategies import values


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "weights.npz"
    save_weights(path, value_function(3, 5))
    return path


@given(values())
def test_what_is_saved_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, v: SplineValue) -> None:
    path = tmp_path_factory.mktemp("w") / "weights.npz"
    save_weights(path, v)
    back = load_weights(path, feature_names=v.feature_names)
    assert back.knots.tobytes() == v.knots.tobytes()
    assert back.coef.tobytes() == v.coef.tobytes()
    assert (back.feature_names, back.meta) == (v.feature_names, v.meta)


def test_equal_values_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save_weights(tmp_path / name, value_function(seed=3))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def tampered(path: Path, **changes: Any) -> Path:
    """Rewrite the file with arrays or meta entries replaced; None removes."""
    arrays, meta = load_npz(path)
    for key, value in changes.items():
        target: dict[str, Any] = meta if key in ("format_version", "gamma") else arrays
        target.pop(key, None)
        if value is not None:
            target[key] = value
    save_npz(path, arrays, meta)
    return path


def with_entry(array: np.ndarray, at: tuple[int, ...], x: float) -> np.ndarray:
    out = array.copy()
    out[at] = x
    return out


V = value_function(3, 5)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format_version": 3}, "unknown format version 3"),
        ({"format_version": None}, "unknown format version None"),
        ({"knots": None}, "has no knots"),
        ({"coef": None}, "has no coef"),
        ({"feature_names": None}, "has no feature_names"),
        ({"coef": with_entry(V.coef, (1, 2, 0), np.nan)}, r"'coef' holds nan at \[1, 2, 0\] \(feature_2\)"),
        ({"coef": with_entry(V.coef, (0, 0, 0), np.inf)}, "'coef' holds inf"),
        ({"knots": with_entry(V.knots, (1, 4), np.nan)}, r"'knots' holds nan at \[1, 4\] \(feature_1\)"),
        ({"knots": with_entry(V.knots, (1, 2), V.knots[1, 1])}, "knots of feature feature_1 do not increase"),
        ({"knots": V.knots.astype(np.float32)}, "'knots' is float32, must be float64"),
        ({"coef": V.coef.astype(np.float32)}, "'coef' is float32"),
        ({"coef": V.coef[:1]}, r"'coef' has shape \(1, 3, 5\)"),
        ({"coef": V.coef[:, :, :4]}, r"'coef' has shape \(2, 3, 4\)"),
        ({"knots": V.knots[0]}, r"'knots' has shape \(5,\)"),
        ({"knots": V.knots[:, :1]}, r"'knots' has shape \(3, 1\)"),
        ({"feature_names": np.array(["a", "b"])}, "must be 3 strings"),
        ({"feature_names": np.arange(3)}, "must be 3 strings"),
        ({"feature_names": np.array(["a", "b", "a"])}, "names a feature twice"),
        ({"gamma": None}, "'gamma' in its meta is None"),
        ({"gamma": 1.5}, "'gamma' in its meta is 1.5"),
        ({"gamma": "NaN"}, "'gamma' in its meta is 'NaN'"),
    ],
)
def test_a_faulty_file_is_refused_with_its_name_and_the_fault(
    saved: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(WeightsError, match=says) as e:
        load_weights(tampered(saved, **changes))
    assert str(saved) in str(e.value)


def test_other_features_are_refused_and_named(saved: Path) -> None:
    with pytest.raises(WeightsError, match=r"unknown: feature_2; missing: moon") as e:
        load_weights(saved, feature_names=("feature_0", "feature_1", "moon"))
    assert str(saved) in str(e.value)


def test_the_same_features_in_another_order_are_refused(saved: Path) -> None:
    with pytest.raises(WeightsError, match="in another order"):
        load_weights(saved, feature_names=("feature_1", "feature_0", "feature_2"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere\.npz: no such file"):
        load_weights(tmp_path / "nowhere.npz")


def test_what_could_not_be_read_back_is_not_saved(tmp_path: Path) -> None:
    broken = SplineValue(V.knots, V.coef * np.nan, V.feature_names, V.meta)
    with pytest.raises(WeightsError, match="nan"):
        save_weights(tmp_path / "weights.npz", broken)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_a_storage_error_and_leaves_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=r"weights\.npz"):
        save_weights(saved, value_function(3, 5, seed=9))
    assert saved.read_bytes() == before


def test_a_truncated_file_is_refused_at_every_length(saved: Path) -> None:
    whole = saved.read_bytes()
    for size in range(0, len(whole), 97):
        saved.write_bytes(whole[:size])
        with pytest.raises(WeightsError, match=r"weights\.npz"):
            load_weights(saved)


def test_a_flipped_byte_is_refused_wherever_it_is(saved: Path) -> None:
    save_weights(saved, value_function(1, 3))
    whole = saved.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        saved.write_bytes(bytes(damaged))
        with pytest.raises(WeightsError, match="damaged"):
            load_weights(saved)


def test_a_member_that_claims_to_be_encrypted_is_refused(saved: Path) -> None:
    with zipfile.ZipFile(saved, "a") as z:
        z.comment = b""  # as another tool writes it, without our digest
    damaged = bytearray(saved.read_bytes())
    damaged[damaged.index(b"PK\x01\x02") + 8] ^= 1  # bit 0 of the first entry's flags in the directory
    saved.write_bytes(bytes(damaged))
    with pytest.raises(WeightsError, match="encrypted"):
        load_weights(saved)


@given(st.integers(0, 7), st.data())
def test_a_flipped_bit_is_refused(tmp_path_factory: pytest.TempPathFactory, bit: int, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("w") / "weights.npz"
    save_weights(path, V)
    damaged = bytearray(path.read_bytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << bit
    path.write_bytes(bytes(damaged))
    with pytest.raises(WeightsError):
        load_weights(path)
