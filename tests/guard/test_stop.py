from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from td_loop.errors import RunInUse, UsageError
from td_loop.guard import stop as stopping
from td_loop.guard.children import FOLDER, Child
from td_loop.guard.stop import Family, adopting, end_left_over, stop
from tests.guard.processes import gone, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

READY = "import os, signal, subprocess, sys, time\nfrom pathlib import Path\n"
SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]


@pytest.fixture(autouse=True)
def _adopting() -> Iterator[None]:
    with adopting():
        yield


def started(folder: Path, code: str) -> tuple[Child, Family]:
    """A process that runs `code` and then writes `ready`, with the ids that it put into `pids`."""
    family = Family(folder)
    script = f"{READY}pids = []\n{code}\nPath('ready.tmp').write_text(' '.join(map(str, pids)))\n"
    script += "os.rename('ready.tmp', 'ready')\ntime.sleep(600)\n"
    script = f"import os; os.chdir({str(folder)!r})\n{script}"
    child = Child(
        [sys.executable, "-I", "-c", script], os.environ | {FOLDER: str(folder)}, folder / "log", echo=False
    )
    wait_until(lambda: (folder / "ready").exists() or child.ended)
    assert (folder / "ready").exists(), (folder / "log").read_text()
    return child, family


def ids(folder: Path) -> list[int]:
    return [int(word) for word in (folder / "ready").read_text().split()]


def finish(child: Child, family: Family, grace_s: float = 30.0) -> stopping.Proof:
    try:
        return stop(child, family, grace_s=grace_s, pump=child.output.copy)
    finally:
        child.close()


def test_a_worker_that_ends_when_asked_is_proven_gone(tmp_path: Path) -> None:
    child, family = started(tmp_path, "block = bytearray(50_000_000)")
    proof = finish(child, family)
    assert gone(child.pid)
    assert (proof.how, proof.exit_code, proof.processes) == ("SIGTERM", -signal.SIGTERM, (child.pid,))
    assert proof.memory_bytes > 50_000_000


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child, family = started(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    proof = finish(child, family, grace_s=0.05)
    assert (proof.how, proof.exit_code) == ("SIGKILL", -signal.SIGKILL)


def test_a_worker_has_time_to_save_and_its_words_are_kept(tmp_path: Path) -> None:
    code = """
def save(*_):
    Path("saved").touch()
    print("x" * 3_000_000 + "saved", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, save)
"""
    child, family = started(tmp_path, code)
    proof = finish(child, family)
    assert (proof.how, proof.exit_code) == ("SIGTERM", 7)
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "log").read_text().endswith("xsaved\n")


STRAYS = {
    "in the group": f"pids.append(subprocess.Popen({SLEEP!r}).pid)",
    "in a session of its own": f"pids.append(subprocess.Popen({SLEEP!r}, start_new_session=True).pid)",
    "whose parent has ended": f"""
line = "setsid \\"$@\\" >/dev/null 2>&1 & echo $!"
shell = subprocess.run(["sh", "-c", line, "sh", *{SLEEP!r}], capture_output=True)
pids.append(int(shell.stdout))
""",
    "without the environment": f"pids.append(subprocess.Popen({SLEEP!r}, start_new_session=True, env={{}}).pid)",
    "that ignores SIGTERM": """
pids.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal, time; "
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"],
    start_new_session=True, stdout=subprocess.PIPE).pid)
""",
}


@pytest.mark.parametrize("code", STRAYS.values(), ids=STRAYS.keys())
def test_what_a_worker_started_is_ended_with_it(tmp_path: Path, code: str) -> None:
    child, family = started(tmp_path, code)
    (stray,) = ids(tmp_path)
    assert not gone(stray)
    proof = finish(child, family, grace_s=0.3)
    assert gone(stray)
    assert {child.pid, stray} <= set(proof.processes)


def test_what_a_worker_leaves_behind_when_it_ends_by_itself_is_ended(tmp_path: Path) -> None:
    child, family = started(tmp_path, STRAYS["in a session of its own"] + "\nos.close(1)\nos.close(2)")
    (stray,) = ids(tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: child.ended)
    proof = finish(child, family)
    assert gone(stray)
    assert proof.exit_code == -signal.SIGKILL


def test_our_own_other_children_are_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP) as other:
        try:
            child, family = started(tmp_path, "")
            finish(child, family)
            assert other.poll() is None
        finally:
            other.kill()


def test_a_process_that_does_not_go_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child, family = started(tmp_path, "")
    monkeypatch.setattr(stopping, "KILL_S", 0.1)
    monkeypatch.setattr(stopping, "kill_group", lambda *_: None)
    with pytest.raises(RunInUse, match=rf"cannot be ended \({child.pid}\); end them"):
        stop(child, family, grace_s=0.0, pump=child.output.copy)
    monkeypatch.undo()
    finish(child, family)


SMI = """#!/bin/sh
# A driver that takes a moment to notice that a process has gone.
echo "$@" >>{folder}/asked
cat {folder}/used
if [ -f {folder}/slow ] && [ "$(wc -l <{folder}/asked)" -ge 4 ]; then : >{folder}/used; fi
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake nvidia-smi that says what stands in `used`."""
    folder = tmp_path / "smi"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(SMI.format(folder=folder))
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_gpu_memory_is_waited_for(tmp_path: Path, smi: Path) -> None:
    child, family = started(tmp_path, "")
    (smi / "used").write_text(f"{child.pid}, 1200\n{child.pid}, 34\n1, 500\n1, [N/A]\n")
    (smi / "slow").touch()
    proof = finish(child, family)
    assert proof.gpu_mib == 1234
    assert "--query-compute-apps=pid,used_memory" in (smi / "asked").read_text()
    assert (smi / "used").read_text() == ""


def test_gpu_memory_that_is_not_given_back_is_an_error(
    tmp_path: Path, smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "GPU_S", 0.1)
    child, family = started(tmp_path, "")
    (smi / "used").write_text(f"{child.pid}, 1200\n")
    with pytest.raises(RunInUse, match=rf"still shows GPU memory of it \({child.pid}: 1200 MiB\)"):
        finish(child, family)
    assert gone(child.pid)


def test_where_nobody_can_be_asked_of_gpu_memory_nothing_is_claimed(tmp_path: Path, smi: Path) -> None:
    (smi / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    child, family = started(tmp_path, "")
    assert finish(child, family).gpu_mib is None


def test_left_over_processes_are_known_by_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("a")
    line = [sys.executable, "-I", "-S", "-c", "print(flush=True); import time; time.sleep(600)"]
    ours, other = (
        subprocess.Popen(line, env={FOLDER: str(tmp_path / name)}, stdout=subprocess.PIPE, start_new_session=True)
        for name in ("link", "b")
    )
    try:
        for process in (ours, other):
            assert process.stdout is not None
            process.stdout.readline()
        assert end_left_over(tmp_path / "a") == 1
        assert (ours.wait(), other.poll()) == (-signal.SIGKILL, None)
        assert end_left_over(tmp_path / "a") == 0
    finally:
        for process in (ours, other):
            process.kill()
            process.communicate()


def test_a_command_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot start '\./nothing': No such file.*behind --"):
        Child(["./nothing"], os.environ, tmp_path / "log", echo=False)


def test_a_log_that_cannot_be_written_costs_the_worker_nothing(tmp_path: Path) -> None:
    child = Child(
        [sys.executable, "-I", "-c", "print('x' * 1_000_000)"], os.environ, tmp_path / "no" / "log", echo=False
    )
    family = Family(tmp_path)
    wait_until(lambda: child.output.copy() or child.ended)
    assert child.output.log_fault is not None
    assert "no/log: what the process says is not kept: No such file" in child.output.log_fault
    assert finish(child, family).exit_code == 0
