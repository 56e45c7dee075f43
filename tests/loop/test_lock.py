from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from td_loop import fence
from td_loop.errors import RunInUse, StorageError
from td_loop.files import write_bytes
from td_loop.loop.lock import run_lock

HOLD = """
import sys, time
from pathlib import Path
from td_loop.loop.lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_holder_is_told_who_holds_it_and_since_when(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    who = rf"in use by process {os.getpid()} on \S+ since \d{{4}}-\d\d-\d\d.*another --tag"
    with run_lock(path), pytest.raises(RunInUse, match=who) as e, run_lock(path):
        pass
    assert e.value.exit_code == 5


def test_the_lock_is_free_again_after_the_block(tmp_path: Path) -> None:
    for _ in range(2):
        with run_lock(tmp_path / ".lock"):
            pass


def test_a_lock_file_alone_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    with run_lock(path):
        pass


def test_every_holder_has_an_epoch_of_its_own_and_says_so_to_its_children(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    for number in (1, 2, 3):
        with run_lock(path):
            line = os.environ[fence.EPOCH]
            assert line.startswith(f"epoch {number}, process {os.getpid()} on ")
            assert os.environ[fence.EPOCH_FILE] == str(path)
            assert path.read_text() == line + "\n"
        assert fence.EPOCH not in os.environ
        assert fence.EPOCH_FILE not in os.environ


@pytest.mark.parametrize("content", [b"", b"\xff\x00 no line at all", b"epoch x, process 3 on h since now\n" * 9])
def test_a_lock_file_without_an_epoch_starts_at_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".lock"
    path.write_bytes(content)
    with run_lock(path):
        assert path.read_text().startswith(f"epoch 1, process {os.getpid()} on ")
        assert path.read_text().count("\n") == 1


def test_an_outer_runs_epoch_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fence.EPOCH, "epoch 7, process 1 on elsewhere since then")
    with run_lock(tmp_path / ".lock"):
        assert os.environ[fence.EPOCH].startswith("epoch 1, ")
    assert os.environ[fence.EPOCH] == "epoch 7, process 1 on elsewhere since then"
    assert fence.EPOCH_FILE not in os.environ


def test_a_holder_whose_lock_file_was_deleted_gives_way_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with run_lock(path):
        write_bytes(tmp_path / "a", b"first")
        path.unlink()
        with pytest.raises(RunInUse, match="moved or deleted under the driver"):
            write_bytes(tmp_path / "a", b"alone")
        with subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "held\n"
            with pytest.raises(
                RunInUse, match=rf"taken over by another driver \(epoch 1, process {second.pid} on "
            ):
                write_bytes(tmp_path / "a", b"late")
            second.kill()
    assert (tmp_path / "a").read_bytes() == b"first"


def test_a_killed_holder_leaves_the_lock_free(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunInUse, match=f"process {holder.pid} "), run_lock(path):
            pass
        holder.kill()
        holder.wait()
        with run_lock(path):
            pass


def test_a_child_that_outlives_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with run_lock(path):
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
    try:
        with run_lock(path):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_folder_that_is_not_there_is_an_error_and_no_lock(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), run_lock(tmp_path / "nowhere" / ".lock"):
        pass


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    # A file where the folder should be: even root, whom permissions do not stop, cannot write there.
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*/file/\.lock"), run_lock(tmp_path / "file" / ".lock"):
        pass
