"""files.py: atomic writes, links, JSON that keeps non-finite numbers."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop import files
from td_loop.errors import DataError, StorageError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(a: object, b: object) -> bool:
    """Equality in which a non-finite float equals the string that stands for it."""
    if isinstance(a, float) and not math.isfinite(a):
        return isinstance(b, str) and (files.as_float(b) == a or (math.isnan(a) and math.isnan(files.as_float(b))))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@given(JSON)
def test_json_keeps_every_value_and_spells_non_finite_numbers(value: object) -> None:
    import orjson

    assert same(value, orjson.loads(files.dumps_json(value)))


@pytest.mark.parametrize("value", [True, None, "nan", [], "1.0"])
def test_as_float_refuses_what_is_no_number(value: object) -> None:
    with pytest.raises(DataError, match="expected a number"):
        files.as_float(value)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), files.atomic_file(path) as f:
        f.write(b"half")
        raise RuntimeError
    assert files.read_json(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_is_a_storage_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    path = tmp_path / "a.json"
    files.write_json(path, 1)
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=r"a\.json"):
        files.write_json(path, 2)
    monkeypatch.undo()
    assert files.read_json(path) == 1
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_written_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_bytes(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_link_that_exists_is_moved(tmp_path: Path) -> None:
    link = tmp_path / "latest.npz"
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        files.point(link, name)
        assert link.read_text() == name
        assert files.pointed(link) == name
    assert sorted(os.listdir(tmp_path)) == ["latest.npz", "one", "two"]
    files.unpoint(link)
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_there_are_no_symlinks_a_pointer_file_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    link = tmp_path / "latest.npz"
    files.write_bytes(tmp_path / "iter1" / "w.npz", b"x")
    with monkeypatch.context() as m:
        m.setattr(os, "symlink", refuse)
        for name in ("iter0/w.npz", "iter1/w.npz"):
            files.point(link, name)
            assert files.pointed(link) == name
        assert sorted(os.listdir(tmp_path)) == ["iter1", "latest.txt"]
        assert files.follow(link) == tmp_path / "iter1" / "w.npz"
    files.point(link, "iter1/w.npz")  # on a file system that has them again
    assert sorted(os.listdir(tmp_path)) == ["iter1", "latest.npz"] or files.pointed(link) == "iter1/w.npz"
    files.point(link, "iter2/w.npz")
    assert sorted(os.listdir(tmp_path)) == ["iter1", "latest.npz"]
    assert files.follow(link) == link


def test_temporaries_of_files_that_are_named_are_swept_and_no_others(tmp_path: Path) -> None:
    with files.atomic_file(tmp_path / "a.npz") as f:
        f.write(b"x")
        (left,) = os.listdir(tmp_path)
        (tmp_path / "copy").write_bytes(b"x")
        os.link(tmp_path / left, tmp_path / left.replace("a.npz", "b.npz"))
    (tmp_path / left).write_bytes(b"x")
    files.sweep_temporaries(tmp_path, ["a.npz"])
    assert sorted(os.listdir(tmp_path)) == sorted([left.replace("a.npz", "b.npz"), "a.npz", "copy"])


def test_a_path_that_cannot_be_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path in (
        tmp_path / "file" / "a",
        tmp_path / "file" / "b" / "a",
        tmp_path / "folder",
        tmp_path / ("a" * 300),
    ):
        with pytest.raises(StorageError, match="cannot write") as e:
            files.write_bytes(path, b"x")
        assert "free space" not in str(e.value)  # which would help nobody here
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
