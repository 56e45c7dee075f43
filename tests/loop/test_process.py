from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from td_loop.errors import Interrupted, UsageError
from td_loop.loop import process
from td_loop.loop.process import last_error, run_stage
from td_loop.signals import Signals

PYTHON = [sys.executable, "-I", "-S", "-c"]


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has reaped yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def signal_when(path: Path, *signums: int) -> threading.Thread:
    """Send ourselves signals, one after the other, once `path` exists."""

    def send() -> None:
        wait_until(path.exists)
        for signum in signums:
            os.kill(os.getpid(), signum)
            time.sleep(0.05)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("code", [0, 1, 2, 64])
def test_the_exit_code_is_the_programs(tmp_path: Path, code: int) -> None:
    with Signals() as signals:
        assert run_stage([*PYTHON, f"raise SystemExit({code})"], tmp_path / "log", signals) == code


def test_a_killed_program_returns_minus_its_signal(tmp_path: Path) -> None:
    with Signals() as signals:
        code = run_stage([*PYTHON, "import os; os.kill(os.getpid(), 9)"], tmp_path / "log", signals)
    assert code == -signal.SIGKILL


def test_output_goes_to_the_log_and_errors_there_and_to_ours(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "stage.log"
    stage = (
        "import sys; print('result', flush=True); sys.stderr.write('trouble\\n' * 20000)"  # more than a pipe holds
    )
    with Signals() as signals:
        for _ in range(2):
            run_stage([*PYTHON, stage], log, signals)
    trouble = "trouble\n" * 20000
    assert log.read_text() == f"result\n{trouble}result\n{trouble}"
    assert capfd.readouterr() == ("", 2 * trouble)


BAR = """
import sys
from td_loop.progress import progress
sys.stderr.write("a warning\\n")
with progress("counting", 3) as advance:
    advance(3)
sys.exit("error: the end")
"""


def test_a_stage_draws_its_bar_on_the_terminal_and_nowhere_else(tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    driver = f"""
import sys
from pathlib import Path
from td_loop.loop.process import run_stage
from td_loop.signals import Signals
with Signals() as signals:
    run_stage([sys.executable, "-c", {BAR!r}], Path({str(log)!r}), signals)
"""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", driver], stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # Linux's word for the end of a terminal
            while piece := os.read(ours, 4096):
                seen += piece
        process.wait()
    os.close(ours)
    for text in (b"a warning", b"counting", b"3/3", b"error: the end"):
        assert text in seen
    assert log.read_text() == "a warning\nerror: the end\n"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("prepare: 3 rows\nerror: a.npz: gone; make it again\n", "a.npz: gone; make it again"),
        ("error: first\nerror: last\n", "last"),
        ("Usage: fit\n\nError: No such option: --x\n", "No such option: --x"),
        ("error: no start:\n  File x\nKeyError: 3\n\n", "no start: ... KeyError: 3"),
        ("all is well\n", None),
    ],
)
def test_the_last_error_of_a_log_is_one_line(tmp_path: Path, log: str, error: str | None) -> None:
    (tmp_path / "stage.log").write_text(log)
    assert last_error(tmp_path / "stage.log") == error
    assert last_error(tmp_path / "none.log") is None


def test_a_program_that_cannot_be_started_is_a_usage_error(tmp_path: Path) -> None:
    with Signals() as signals, pytest.raises(UsageError, match=r"cannot start '\./nothing'"):
        run_stage(["./nothing"], tmp_path / "log", signals)


def test_a_signal_is_passed_on_and_ends_the_whole_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    # A stage that ends on SIGTERM and leaves a worker behind that does not.
    stage = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with open({str(pids)!r} + ".tmp", "w") as f:
    f.write(f"{{os.getpid()}} {{worker.pid}}")
os.rename({str(pids)!r} + ".tmp", {str(pids)!r})
time.sleep(600)
"""
    with Signals() as signals:
        thread = signal_when(pids, signal.SIGTERM)
        with pytest.raises(Interrupted) as e:
            run_stage([*PYTHON, stage], tmp_path / "log", signals)
        thread.join()
    assert e.value.exit_code == 143
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: gone(int(pid)))


def _stubborn(ready: Path) -> list[str]:
    code = f"""
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
open({str(ready)!r}, "w").close()
time.sleep(600)
"""
    return [*PYTHON, code]


def test_a_stage_that_ignores_the_signal_is_killed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    with Signals() as signals:
        thread = signal_when(tmp_path / "ready", signal.SIGINT)
        with pytest.raises(Interrupted) as e:
            run_stage(_stubborn(tmp_path / "ready"), tmp_path / "log", signals)
        thread.join()
    assert e.value.exit_code == 130


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with Signals() as signals:
        thread = signal_when(tmp_path / "ready", signal.SIGINT, signal.SIGINT)
        with pytest.raises(Interrupted):
            run_stage(_stubborn(tmp_path / "ready"), tmp_path / "log", signals)
        thread.join()


def test_workers_left_behind_by_a_stage_that_ended_well_are_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    stage = f"""
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
open({str(pid)!r}, "w").write(str(worker.pid))
"""
    with Signals() as signals:
        assert run_stage([*PYTHON, stage], tmp_path / "log", signals) == 0
    wait_until(lambda: gone(int(pid.read_text())))


def test_no_stage_starts_after_a_signal(tmp_path: Path) -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            run_stage([*PYTHON, f"open({str(tmp_path / 'ran')!r}, 'w')"], tmp_path / "log", signals)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_stage_dies_with_a_driver_that_was_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    stage = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    driver = f"""
import sys
from pathlib import Path
from td_loop.loop.process import run_stage
from td_loop.signals import Signals
with Signals() as signals:
    run_stage([*{PYTHON!r}, {stage!r}], Path({str(tmp_path / "log")!r}), signals)
"""
    with subprocess.Popen([sys.executable, "-c", driver]) as parent:
        wait_until(lambda: pid.exists() and pid.read_text() != "")
        parent.kill()
    wait_until(lambda: gone(int(pid.read_text())))
