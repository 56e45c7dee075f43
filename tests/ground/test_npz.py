"""npz.py: what is written is read back, and whatever was changed meanwhile is found."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import DataError, StorageError
from td_loop.files import sha256
from td_loop.npz import Array, load_npz, save_npz


def test_equal_arrays_make_equal_npz_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save_npz(tmp_path / name, {"x": np.arange(7.0)}, {"k": math.nan})
    assert sha256(tmp_path / "a.npz") == sha256(tmp_path / "b.npz")
    arrays, meta = load_npz(tmp_path / "a.npz")
    assert arrays["x"].tolist() == list(range(7))
    assert meta == {"k": "NaN"}


LARGE = np.arange(8192.0)
"""64 kB: zipfile reads in pieces, and knows the checksum of a small member before numpy sees its header."""


@pytest.fixture(scope="module")
def npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    save_npz(path, {"x": LARGE}, {"k": 1})
    return path


@given(st.data())
def test_a_flipped_bit_in_the_data_of_an_npz_is_found_when_it_is_loaded(npz: Path, data: st.DataObject) -> None:
    whole = npz.read_bytes()
    start = whole.find(LARGE.tobytes())
    at, bit = data.draw(st.integers(start, start + LARGE.nbytes - 1)), data.draw(st.integers(0, 7))
    with pytest.raises(DataError, match=r"b\.npz.*damaged"):
        load_flipped(npz, at, 1 << bit)


def test_any_flipped_bit_in_the_header_of_an_array_is_found(npz: Path) -> None:
    """The shape among them: one that asks for less must not pass for the whole array."""
    whole = npz.read_bytes()
    end = whole.find(LARGE.tobytes())
    start = whole.find(b"\x93NUMPY")
    assert 0 < start < end
    for at in range(start, end):
        for bit in range(8):
            with pytest.raises(DataError, match=r"b\.npz.*damaged"):
                load_flipped(npz, at, 1 << bit)


def test_any_flipped_byte_outside_of_the_data_is_found(npz: Path) -> None:
    """Also where a zip has no checksum: dates, the directory, the comment and its length."""
    whole = npz.read_bytes()
    data = whole.find(LARGE.tobytes())
    for at in [*range(whole.find(b"\x93NUMPY")), *range(data + LARGE.nbytes, len(whole))]:
        for flip in {1 << at % 8, 0xFF, whole[at]} - {0}:
            with pytest.raises(DataError, match=r"b\.npz.*damaged"):
                load_flipped(npz, at, flip)


def test_a_file_of_another_tool_is_read_and_its_flipped_bits_raise_nothing_but_our_error(tmp_path: Path) -> None:
    """Some bits mean nothing (a date); a load that succeeds must return what was saved."""
    npz = tmp_path / "a.npz"
    np.savez(npz, x=LARGE, meta=np.array('{"k": 1}'))
    whole = npz.read_bytes()
    data = whole.find(LARGE.tobytes())
    for at in [*range(whole.find(b"\x93NUMPY")), *range(data + LARGE.nbytes, len(whole))]:
        try:
            arrays, meta = load_flipped(npz, at, 1 << at % 8)
        except DataError:
            continue
        assert list(arrays) == ["x"]
        assert np.array_equal(arrays["x"], LARGE)
        assert meta == {"k": 1}


def load_flipped(npz: Path, at: int, flip: int) -> tuple[dict[str, Array], dict[str, object]]:
    raw = bytearray(npz.read_bytes())
    raw[at] ^= flip
    path = npz.with_name("b.npz")
    path.write_bytes(raw)
    return load_npz(path)


def test_chosen_members_are_read_alone_and_missed_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save_npz(path, {"x": np.arange(3), "y": np.arange(4)}, {"k": 1})
    arrays, meta = load_npz(path, names=("x",))
    assert (list(arrays), meta) == (["x"], {"k": 1})
    with pytest.raises(DataError, match=r"a\.npz: has no 'z'"):
        load_npz(path, names=("x", "z"))


def test_bytes_after_the_end_of_an_npz_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save_npz(path, {"x": np.arange(64.0)}, {})
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(DataError, match="damaged"):
        load_npz(path)


def test_a_full_disk_is_told_with_the_bytes_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=r"a\.npz: No space left on device \(it takes 8 MB, .* is free\)"):
        save_npz(tmp_path / "a.npz", {"x": np.zeros(1_000_000)}, {})


@pytest.mark.parametrize("keep", [0, 10, 100, -1])
def test_a_truncated_npz_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.npz"
    save_npz(path, {"x": np.arange(64.0)}, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"a\.npz"):
        load_npz(path)


def test_what_is_no_npz_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_npz(tmp_path / "none.npz")
    with pytest.raises(DataError, match="folder"):
        load_npz(tmp_path)
    np.savez(tmp_path / "foreign.npz", x=np.arange(3))
    with pytest.raises(DataError, match="meta"):
        load_npz(tmp_path / "foreign.npz")
