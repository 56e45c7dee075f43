"""fence: a process of an earlier driver changes nothing any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from td_loop import fence
from td_loop.errors import RunInUse
from td_loop.files import atomic_folder, make_dir, move, point, remove, write_bytes

OURS = "epoch 3, process 10 on here since noon"
THEIRS = "epoch 4, process 11 on here since one"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock file of a run that we work for."""
    path = tmp_path / ".lock"
    path.write_text(f"{OURS}\n")
    monkeypatch.setenv(fence.EPOCH, OURS)
    monkeypatch.setenv(fence.EPOCH_FILE, str(path))
    return path


def new_folder(folder: Path) -> None:
    with atomic_folder(folder / "new") as f:
        (f / "file").touch()


CHANGES: dict[str, Callable[[Path], object]] = {
    "replace a file": lambda d: write_bytes(d / "old", b"late"),
    "write a file": lambda d: write_bytes(d / "new", b"late"),
    "make a folder": new_folder,
    "move": lambda d: move(d / "old", d / "new"),
    "point a link": lambda d: point(d / "link", "new"),
    "remove": lambda d: remove(d / "old"),
}


def state(folder: Path) -> dict[str, str]:
    return {p.name: str(p.readlink()) if p.is_symlink() else p.read_text() for p in folder.iterdir()}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_refused_once_another_driver_has_taken_over(
    lock: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "old").write_text("old")
    (folder / "link").symlink_to("old")
    before = state(folder)
    lock.write_text(f"{THEIRS}\n")
    with pytest.raises(RunInUse, match=r"taken over by another driver \(epoch 4, .*\(epoch 3, ") as e:
        change(folder)
    assert e.value.exit_code == 5
    assert state(folder) == before
    lock.write_text(f"{OURS}\n")
    change(folder)
    assert not (folder / "new").is_dir() or (folder / "new" / "file").exists()


def test_a_lock_file_that_is_being_written_is_another_drivers(lock: Path) -> None:
    lock.write_bytes(b"")
    with pytest.raises(RunInUse, match="just starting"):
        fence.check()


def test_only_the_first_line_counts(lock: Path) -> None:
    lock.write_text(f"{OURS}\nof a longer line\n")
    fence.check()


@pytest.mark.parametrize("gone", [".lock", "file/.lock"])
def test_a_run_directory_that_was_moved_or_deleted_is_not_made_anew(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    lock.unlink()
    (tmp_path / "file").touch()
    monkeypatch.setenv(fence.EPOCH_FILE, str(tmp_path / gone))
    for change in (lambda d: write_bytes(d / "a", b"late"), new_folder, make_dir):
        with pytest.raises(RunInUse, match="was moved or deleted under the driver"):
            change(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", [fence.EPOCH, fence.EPOCH_FILE])
def test_who_works_for_no_driver_is_never_refused(lock: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lock.write_text(f"{THEIRS}\n")
    monkeypatch.delenv(name)
    fence.check()
    lock.unlink()
    fence.check()
