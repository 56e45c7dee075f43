"""A guard that is told to end, or is killed, and the one that goes on after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from td_loop.guard.breaker_log import read_log
from td_loop.lock import locked
from tests.guard.guarded import DIVERGING, HEALTHY, Moves, guard, started, steps
from tests.guard.processes import gone, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def worker(here: Path) -> int:
    """The worker's id, once it has touched `here`."""
    wait_until(here.exists)
    return int(here.read_text())


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_passed_on_and_the_same_command_goes_on_where_it_stopped(
    tmp_path: Path, signum: int, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    here, folder = tmp_path / "here", tmp_path / "g"
    plan: Moves = [["on_term", 9, True], *HEALTHY, ["save"], ["train", 3], ["touch", str(here)], ["wait"]]
    with started(folder, plan) as process:
        pid = worker(here)
        process.send_signal(signum)
        _, err = process.communicate()
    assert process.returncode == code
    assert f"error: interrupted by {signal.Signals(signum).name}" in err
    assert gone(pid)
    assert (folder / "active").read_text() == "23"  # what it saved when it was told to end
    assert guard(folder, [["train", 2], ["save"]]) == 0
    assert "goes on from the snapshot of step 23" in capfd.readouterr().err
    # The three healthy steps before the interruption and the two after it make the five that step 20 needed.
    assert steps(folder)["snapshots"] == [(0, True), (10, True), (20, True), (23, False), (25, False)]


def test_a_worker_that_ignores_the_signal_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    here = tmp_path / "here"
    plan: Moves = [["ignore", signal.SIGINT], ["ignore", signal.SIGTERM], ["touch", str(here)], ["wait"]]
    with started(tmp_path / "g", plan, flags=["--grace", "0.2"]) as process:
        pid = worker(here)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert gone(pid)


def test_detectors_remember_what_they_saw_before_an_interruption(tmp_path: Path) -> None:
    here, folder = tmp_path / "here", tmp_path / "g"
    first: Moves = [*HEALTHY, ["diverge", 2], ["touch", str(here)], ["wait"]]
    plans = (first, [["diverge", 1], ["wait"]], HEALTHY)
    with started(folder, *plans) as process:
        worker(here)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert guard(folder, *plans) == 0
    resumed, trip = read_log(folder / "breaker.jsonl")[:2]
    assert (resumed.event, resumed.attempt, resumed.step) == ("resumed", 1, 10)
    assert trip.reason.startswith("kl: ")
    assert "step 3 in a row" in trip.reason


def test_a_killed_guard_takes_its_worker_along_and_the_next_ends_what_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here, folder = tmp_path / "here", tmp_path / "g"
    plan: Moves = [["stray", str(here)], *HEALTHY, ["touch", f"{here}.worker"], ["wait"]]
    with started(folder, plan) as process:
        pid = worker(tmp_path / "here.worker")
        stray = worker(here)
        process.kill()
        process.communicate()
    wait_until(lambda: gone(pid))
    assert not gone(stray)
    assert guard(folder, HEALTHY) == 0
    assert gone(stray)
    assert "ended 1 process that an earlier guard of this folder left behind" in capfd.readouterr().err
    assert (folder / "stable_checkpoint_latest").read_text() == "20"


def test_what_a_killed_guard_had_not_read_is_read_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "g"
    here = tmp_path / "here"
    with started(folder, [*HEALTHY, ["touch", str(here)], ["wait"]]) as process:
        worker(here)
        process.kill()
        process.communicate()
    with (folder / "telemetry.a0.jsonl").open("a") as f:
        for step in range(21, 25):
            f.write(json.dumps({"step": step, "kl": 0.9}) + "\n")
    assert guard(folder, [["wait"]], HEALTHY) == 0
    assert read_log(folder / "breaker.jsonl")[0].step == 23
    assert (folder / "worker.a1.log").read_text() == "attempt 1 from 10\n"


def test_a_second_guard_in_a_folder_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "g").mkdir()
    with locked(tmp_path / "g" / "lock", "") as lock:
        lock.sign()
        assert guard(tmp_path / "g", HEALTHY) == 5
    err = capfd.readouterr().err
    assert f"in use by process {os.getpid()} on " in err
    assert "use another --dir" in err
    assert not (tmp_path / "g" / "snapshots").exists()


def test_a_signal_while_the_purge_command_runs_ends_both(tmp_path: Path) -> None:
    here = tmp_path / "here"
    script = f"import os, time; open({str(here)!r} + '.tmp', 'w').write(str(os.getpid())); "
    script += f"os.rename({str(here)!r} + '.tmp', {str(here)!r}); time.sleep(600)"
    text = f"[purge]\ncommand = {json.dumps([sys.executable, '-I', '-S', '-c', script])}\n"
    (tmp_path / "guard.toml").write_text(text)
    with started(tmp_path / "g", DIVERGING, flags=["--config", str(tmp_path / "guard.toml")]) as process:
        pid = worker(here)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert gone(pid)


def test_output_that_nobody_reads_stops_neither_guard_nor_worker(tmp_path: Path) -> None:
    """A pipe that is full, as under a terminal that was stopped with Ctrl-S."""
    there = tmp_path / "there"
    plan: Moves = [["chatter", 3_000_000], *HEALTHY, ["touch", str(there)]]
    with started(tmp_path / "g", plan) as process:
        wait_until(there.exists)  # though nobody has read a byte
        wait_until((tmp_path / "g" / "worker.a0.log").exists)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr is not None
        process.stderr.close()
    assert (tmp_path / "g" / "worker.a0.log").stat().st_size > 3_000_000


def test_two_folders_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    here = tmp_path / "here"
    with started(tmp_path / "a", [["touch", str(here)], ["wait"]]) as process:
        pid = worker(here)
        assert guard(tmp_path / "b", HEALTHY) == 0
        assert not gone(pid)
        assert subprocess.Popen.poll(process) is None
