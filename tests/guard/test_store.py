from __future__ import annotations

import os
from pathlib import Path

import pytest

from td_loop.errors import DataError, StorageError
from td_loop.files import read_json
from td_loop.guard import payload
from td_loop.guard.snapshots import Snapshot
from td_loop.guard.store import Store


def saved(folder: Path, name: str, content: str = "weights") -> Path:
    """A checkpoint file in `folder`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def take(store: Store, path: Path, step: int, *, initial: bool = False) -> Snapshot:
    return store.take(path, step=step, attempt=0, initial=initial, when=1000.0 + step)


def stable(store: Store, step: int) -> Snapshot:
    """A stable snapshot."""
    return store.promote(take(store, saved(store.staging, f"{step}.zip", f"weights {step}"), step), 5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "guard")


def read(link: Path) -> str:
    return link.read_text()


def test_a_checkpoint_in_staging_is_moved_and_pending(store: Store) -> None:
    one = take(store, saved(store.staging, "model.zip"), 1200)
    place = store.folder / "snapshots" / "step_000001200_a0"
    assert store.path(one) == place / "model.zip"
    assert list(store.staging.iterdir()) == []
    said = read_json(place / "snapshot.json")
    assert (said["step"], said["attempt"], said["bytes"], said["time"]) == (1200, 0, 7, 2200.0)
    assert set(said["sha256"]) == {"model.zip"}
    assert said["promoted"] is None
    assert read(store.active) == "weights"
    assert not (store.folder / "stable_checkpoint_latest").is_symlink()
    assert Store(store.folder).all == (one,)


def test_a_checkpoint_elsewhere_is_copied_and_left_alone(store: Store, tmp_path: Path) -> None:
    own = saved(tmp_path / "own", "model.zip")
    own.chmod(0o640)
    one = take(store, own, 5)
    own.write_text("trained on")
    assert read(store.path(one)) == "weights"
    assert store.path(one).stat().st_mode & 0o777 == 0o640
    assert payload.damage(store.path(one).parent, one.sha256) is None


@pytest.mark.parametrize("inside", [True, False], ids=["moved", "copied"])
def test_a_folder_is_a_checkpoint_too(store: Store, tmp_path: Path, inside: bool) -> None:
    folder = (store.staging if inside else tmp_path) / "checkpoint"
    saved(folder / "deep", "a.bin", "a")
    saved(folder, "b.bin", "b")
    (folder / "empty").mkdir()
    (folder / "latest").symlink_to("deep/a.bin")
    one = take(store, folder, 5)
    kept = store.path(one)
    assert sorted(one.sha256) == ["checkpoint/b.bin", "checkpoint/deep/a.bin"]
    assert read(kept / "deep" / "a.bin") == read(kept / "latest") == "a"
    assert (kept / "empty").is_dir()
    assert read(store.active / "b.bin") == "b"
    assert folder.exists() != inside


def test_a_link_is_followed(store: Store, tmp_path: Path) -> None:
    saved(tmp_path, "step_5.zip", "five")
    (tmp_path / "latest.zip").symlink_to("step_5.zip")
    one = take(store, tmp_path / "latest.zip", 5)
    assert one.payload == "step_5.zip"
    assert read(store.active) == "five"


def test_the_same_name_in_staging_can_be_used_again_and_again(store: Store) -> None:
    for step in (10, 20, 20):
        take(store, saved(store.staging, "model.zip", f"{step}"), step)
    assert [s.name for s in store.all] == ["step_000000010_a0", "step_000000020_a0", "step_000000020_a0.2"]


def test_a_checkpoint_may_be_called_snapshot_json(store: Store) -> None:
    one = take(store, saved(store.staging, "snapshot.json", "mine"), 1)
    assert read(store.active) == "mine"
    assert payload.damage(store.path(one).parent, one.sha256) is None
    assert Store(store.folder).all == (one,)


def odd(folder: Path) -> dict[str, Path]:
    (folder / "empty").mkdir()
    (folder / "pipes").mkdir()
    os.mkfifo(folder / "pipes" / "pipe")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "circle").symlink_to("circle")
    names = {"null byte": "a\0b", "too long": "x" * 300, "far too long": "x" * 5000}
    return {name: folder / names.get(name, name) for name in ODD}


ODD = ["nothing", "empty", "pipes", "dangling", "circle", "null byte", "too long", "far too long"]


@pytest.mark.parametrize("which", ODD)
@pytest.mark.parametrize("inside", [True, False], ids=["staging", "elsewhere"])
def test_what_is_no_checkpoint_is_refused_and_nothing_has_changed(
    store: Store, tmp_path: Path, which: str, inside: bool
) -> None:
    one = stable(store, 1)
    place = odd(store.staging if inside else tmp_path)[which]
    with pytest.raises(DataError):
        take(store, place, 2)
    assert Store(store.folder).all == (one,)
    assert read(store.active) == "weights 1"
    if which in ("empty", "pipes"):
        assert place.exists()


def test_a_folder_above_the_guards_own_is_no_checkpoint(store: Store) -> None:
    for path in (store.folder, store.folder.parent, Path("/")):
        with pytest.raises(DataError, match="holds the guard's own folder"):
            take(store, path, 2)


@pytest.mark.parametrize("name", ["staging", "snapshots", "quarantine"])
def test_a_folder_of_the_guards_own_is_no_checkpoint(store: Store, name: str) -> None:
    one = stable(store, 1)
    saved(store.staging, "model", "weights 2")
    with pytest.raises(DataError, match="under a name of its own in"):
        take(store, store.folder / name, 2)
    assert Store(store.folder).all == (one,)
    assert read(store.staging / "model") == "weights 2"


def test_a_checkpoint_that_changes_while_it_is_copied_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = saved(tmp_path, "model.zip")

    def fsync(_fd: int) -> None:  # between the copy and the look at what it was made of
        with own.open("a") as f:
            f.write("more")

    monkeypatch.setattr(payload.os, "fsync", fsync)
    with pytest.raises(DataError, match=r"changed while it was being copied; save to \$TD_GUARD_STAGING"):
        take(store, own, 2)
    assert [p.name for p in (store.folder / "snapshots").iterdir()] == []


def test_promotion_moves_the_pointer_to_the_newest_stable(store: Store) -> None:
    stable(store, 1)
    two = stable(store, 2)
    assert two.promoted is not None
    assert two.promoted.healthy_steps == 5
    assert read(store.folder / "stable_checkpoint_latest") == "weights 2"
    assert store.promote(two, 9) == two


def test_pruning_keeps_what_pointers_name_and_what_is_pending(store: Store) -> None:
    for step in (1, 2, 3):
        stable(store, step)
    take(store, saved(store.staging, "new.zip"), 4)
    gone = store.prune(1)
    assert [s.step for s in gone] == [1, 2]
    assert [s.step for s in store.all] == [3, 4]
    assert sorted(p.name for p in (store.folder / "snapshots").iterdir()) == [s.name for s in store.all]


def test_a_rollback_leads_back_and_fences_off_without_deleting(store: Store) -> None:
    stable(store, 1)
    stable(store, 2)
    take(store, saved(store.staging, "late.zip", "diverging"), 3)
    saved(store.staging, "half.zip", "cut sh")
    back = store.rollback()
    assert back.target is not None
    assert back.target.step == 2
    assert read(store.active) == read(store.folder / "stable_checkpoint_latest") == "weights 2"
    quarantine = store.folder / "quarantine"
    assert back.fenced == ("step_000000003_a0", "staging_half.zip")
    assert read(quarantine / "step_000000003_a0" / "late.zip") == "diverging"
    assert read(quarantine / "staging_half.zip") == "cut sh"
    assert store.rollback().fenced == ()
    take(store, saved(store.staging, "late.zip", "again"), 3)
    assert store.rollback().fenced == ("step_000000003_a0.2",)


def test_without_a_stable_snapshot_a_rollback_is_an_error_and_changes_nothing(store: Store) -> None:
    take(store, saved(store.staging, "a.zip"), 1)
    with pytest.raises(DataError, match=r"no stable snapshot to roll back to.*guard reset"):
        store.rollback()
    assert read(store.active) == "weights"
    back = store.rollback(anew=True)
    assert back.target is None
    assert back.fenced == ("step_000000001_a0",)
    assert not store.active.is_symlink()


def test_a_damaged_stable_snapshot_is_fenced_off_and_the_one_before_is_taken(tmp_path: Path) -> None:
    faults: list[str] = []
    store = Store(tmp_path, faults.append)
    stable(store, 1)
    two = stable(store, 2)
    store.path(two).write_text("flipped")
    back = store.rollback()
    assert back.target is not None
    assert back.target.step == 1
    assert back.fenced == (two.name,)
    assert read(store.active) == read(tmp_path / "stable_checkpoint_latest") == "weights 1"
    assert len(faults) == 1
    assert "2.zip was changed since it was saved" in faults[0]


def test_settling_leads_to_the_newest_whole_one(tmp_path: Path) -> None:
    faults: list[str] = []
    store = Store(tmp_path, faults.append)
    assert store.settle() is None
    one = stable(store, 1)
    two = take(store, saved(store.staging, "2.zip"), 2)
    store.path(two).unlink()
    again = Store(tmp_path, faults.append)
    assert again.settle() == one
    assert read(again.active) == "weights 1"
    assert len(faults) == 1
    assert (tmp_path / "quarantine" / two.name / "snapshot.json").exists()


def test_what_is_no_snapshot_is_set_aside(tmp_path: Path) -> None:
    faults: list[str] = []
    store = Store(tmp_path)
    one = stable(store, 1)
    saved(tmp_path / "snapshots" / "step_x", "model.zip")
    saved(tmp_path / "snapshots", "file")
    again = Store(tmp_path, faults.append)
    assert again.all == (one,)
    assert sorted(p.name for p in (tmp_path / "quarantine").iterdir()) == ["file", "step_x"]
    assert len(faults) == 2


def test_a_lost_pointer_is_made_anew(store: Store) -> None:
    stable(store, 1)
    (store.folder / "stable_checkpoint_latest").unlink()
    store.active.unlink()
    Store(store.folder).settle()
    assert read(store.active) == read(store.folder / "stable_checkpoint_latest") == "weights 1"


def test_an_announcement_that_is_read_twice_makes_one_snapshot(store: Store) -> None:
    path = saved(store.staging, "a.zip")
    one = take(store, path, 1)
    assert take(Store(store.folder), path, 1) == one


def test_a_folder_in_whose_place_is_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "guard").touch()
    with pytest.raises(StorageError, match=r"cannot write .*guard"):
        Store(tmp_path / "guard")
