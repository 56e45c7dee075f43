"""A driver that was killed: the next one starts at once and ends what still lives, and a late write is refused.

A stage is the driver's child, and the kernel kills it with the driver. Behind a shell script that is not the last
thing to die it lives on, as its workers would.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from td_loop.cli import main
from td_loop.fence import EPOCH, EPOCH_FILE
from td_loop.files import sha256
from td_loop.loop.lock import run_lock
from td_loop.loop.manifest import read_manifest
from td_loop.loop.orphans import end_orphans
from tests.loop.fakes import write_bootstrap
from tests.loop.sessions import ROOT, fake_command, session, stage_command, start, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

WRAPPER = """
# A child of this shell's child: nothing tells it when the driver dies.
sh -c '"$@" 2>"$PAUSE_FOLDER/errors"; echo $? >"$PAUSE_FOLDER/code"' sh "$@"
exit $?
"""


@pytest.fixture
def wrapped(tmp_path: Path) -> str:
    """Puts a stage behind a shell script that outlives the driver."""
    script = tmp_path / "wrapper.sh"
    script.write_text(WRAPPER)
    return f"sh {script} "


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    flags = {
        "--tag": "t",
        "--iters": "1",
        "--n": "20",
        "--seg-uniform-tau": "1",
        "--runs-dir": str(tmp_path / "runs"),
        "--bootstrap": str(write_bootstrap(tmp_path / "bootstrap.npz")),
        "--fit-cmd": fake_command("fit"),
    }
    return [word for pair in flags.items() for word in pair]


def killed(words: list[str], prepare: str, folder: Path) -> subprocess.Popen[str]:
    """A driver that was killed while its prepare stands where it says so; that prepare lives on."""
    with start("", [*words, "--prepare-cmd", prepare], folder) as driver:
        wait_until((folder / "here").exists, driver)
        stages = session(driver.pid) - {driver.pid}
    # Leaving the block has killed it.
    assert len(stages) >= 3  # the wrapper, its shell, the stage
    return driver


def finish(words: list[str]) -> None:
    assert main(["run", *words, "--prepare-cmd", fake_command("prepare")]) == 0


def test_an_orphaned_stage_notices_and_ends(words: list[str], wrapped: str, tmp_path: Path) -> None:
    # Where it stands does not matter: the lifeline is watched from the start.
    prepare = wrapped + stage_command("prepare", "import td_loop.prepare.run")
    driver = killed(words, prepare, tmp_path)
    wait_until(lambda: not session(driver.pid))
    finish(words)
    assert (tmp_path / "code").read_text() == "143\n"


def test_what_an_orphan_writes_late_is_refused(
    words: list[str], wrapped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is not ours, and so watches no lifeline, but writes through our files.

    The next driver is on another machine, say, and does not see it.
    """
    monkeypatch.setattr("td_loop.loop.lock.end_orphans", lambda *_: 0)
    late = [sys.executable, "-c", LATE, str(Path(__file__).parents[2])]
    driver = killed(words, wrapped + shlex.join(late), tmp_path)
    run = tmp_path / "runs" / "td_loop_t"
    finish(words)
    assert session(driver.pid)
    before = {path: sha256(path) for path in sorted(run.rglob("*")) if path.is_file()}
    (tmp_path / "go").touch()
    wait_until(lambda: not session(driver.pid))
    assert {path: sha256(path) for path in sorted(run.rglob("*")) if path.is_file()} == before
    said = (tmp_path / "errors").read_text()
    assert f"{run} was taken over by another driver (epoch 2, process {os.getpid()} on " in said
    assert f"worked for an earlier one (epoch 1, process {driver.pid} on " in said
    assert (tmp_path / "code").read_text() == "1\n"
    manifest = read_manifest(run)
    assert manifest is not None
    assert [r.status.value for r in manifest.iters] == ["promoted"]


def test_an_orphan_that_knows_nothing_of_us_is_ended(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """sh -> sh -> a program that uses no td_loop, and has its hands on what will be promoted."""
    (tmp_path / "late_writer").write_text(FOREIGN)
    inner = shlex.join([sys.executable, "-S", str(tmp_path / "late_writer")]) + ' "$@"; exit $?'
    outer = shlex.join(["sh", "-c", inner, "sh"]) + ' "$@"; exit $?'
    driver = killed(words, shlex.join(["sh", "-c", outer, "sh"]), tmp_path)
    wait_until(lambda: len(session(driver.pid)) <= 2)  # the first shell was the driver's child, and dies with it
    assert len(session(driver.pid)) == 2
    finish(words)
    assert not session(driver.pid)
    assert "ended 2 processes that an earlier driver of this run left behind" in capfd.readouterr().err
    run = tmp_path / "runs" / "td_loop_t"
    before = {path: sha256(path) for path in sorted(run.rglob("*")) if path.is_file()}
    (tmp_path / "go").touch()
    time.sleep(0.1)
    assert {path: sha256(path) for path in sorted(run.rglob("*")) if path.is_file()} == before


def test_only_processes_of_earlier_drivers_of_this_run_are_ended(tmp_path: Path) -> None:
    lock, other = tmp_path / ".lock", tmp_path / "other"
    other.touch()
    (tmp_path / "link").symlink_to(tmp_path)
    environments = {
        "earlier": {EPOCH: "epoch 1, of the past", EPOCH_FILE: str(lock)},
        "by a link": {EPOCH: "epoch 1, of the past", EPOCH_FILE: str(tmp_path / "link" / ".lock")},
        "other run": {EPOCH: "epoch 1, of the past", EPOCH_FILE: str(other)},
        "no run": {},
    }
    sleep = [sys.executable, "-I", "-S", "-c", "print('up', flush=True); import time; time.sleep(600)"]
    processes = {
        name: subprocess.Popen(sleep, env=os.environ | env, stdout=subprocess.PIPE)
        for name, env in environments.items()
    }
    try:
        for process in processes.values():
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
        with run_lock(lock) as ended:
            assert ended == 2
            child = processes["our own"] = subprocess.Popen(sleep, stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            assert end_orphans(os.environ[EPOCH], lock) == 0
        assert {name for name, p in processes.items() if p.poll() is None} == {"other run", "no run", "our own"}
        with run_lock(lock) as ended:
            assert ended == 1
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def test_a_driver_whose_earlier_epoch_is_in_its_own_lineage_ends_neither(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.write_text("epoch 1, of the past\n")
    take = [sys.executable, "-c", TAKE, str(lock)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), EPOCH: "epoch 1, of the past", EPOCH_FILE: str(lock)}
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    done = subprocess.run([*shell, *take], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.parametrize("moment", ["rundir:start_attempt", "attempt:stage3", "driver:write_manifest"])
def test_a_run_directory_that_is_moved_under_its_driver_is_not_made_anew(
    words: list[str], tmp_path: Path, moment: str
) -> None:
    prepare = fake_command("prepare")
    run = tmp_path / "runs" / "td_loop_t"
    with start(f"call td_loop.loop.{moment}", [*words, "--prepare-cmd", prepare], tmp_path) as driver:
        wait_until((tmp_path / "here").exists, driver)
        run.rename(tmp_path / "moved")
        (tmp_path / "go").touch()
        assert driver.stderr is not None
        said = driver.stderr.read()
        assert driver.wait() == 5, said
    assert f"{run} was moved or deleted under the driver" in said
    assert not run.exists()


FOREIGN = """
import os, sys, time
folder = os.environ["PAUSE_FOLDER"]
open(folder + "/here", "w").close()
while not os.path.exists(folder + "/go"):
    time.sleep(0.005)
with open(sys.argv[sys.argv.index("--out") + 1], "wb") as f:
    f.write(b"late")
"""

TAKE = """
import sys
from pathlib import Path
from td_loop.loop.lock import run_lock
with run_lock(Path(sys.argv[1])) as ended:
    print(ended)
"""

LATE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from td_loop.files import write_bytes
from tests.loop.pausing import pause
pause(wait=True)
write_bytes(Path(sys.argv[sys.argv.index("--out") + 1]), b"late")
"""
