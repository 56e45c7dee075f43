"""A driver that was killed: the next one starts at once, whoever still lives, and a late write is refused.

A stage is the driver's child, and the kernel kills it with the driver. Behind a shell script that is not the last
thing to die it lives on, as its workers would.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from td_loop.cli import main
from td_loop.files import sha256
from td_loop.loop.manifest import read_manifest
from tests.loop.fakes import write_bootstrap
from tests.loop.sessions import fake_command, session, stage_command, start, wait_until

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
    finish(words)
    wait_until(lambda: not session(driver.pid))
    assert (tmp_path / "code").read_text() == "143\n"


def test_what_an_orphan_writes_late_is_refused(words: list[str], wrapped: str, tmp_path: Path) -> None:
    """A program that is not ours, and so watches no lifeline, but writes through our files."""
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


LATE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from td_loop.files import write_bytes
from tests.loop.pausing import pause
pause(wait=True)
write_bytes(Path(sys.argv[sys.argv.index("--out") + 1]), b"late")
"""
