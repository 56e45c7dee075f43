"""Saturation of the process: what the kernel tells is read, what it does not tell is unknown."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from td_loop.deploy.observe.engine import EngineMeter


@pytest.fixture
def kernel(tmp_path: Path) -> tuple[Path, Path]:
    """A /proc and a /sys."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    write(proc / "self/task/10/schedstat", "100 2000000000 7\n")
    write(proc / "self/task/11/schedstat", "100 500000000 7\n")
    write(proc / "self/cgroup", "0::/service\n")
    write(proc / "stat", "cpu  1 2 3 4 5 6 7 250 0 0\ncpu0 1\n")
    write(sys / "fs/cgroup/service/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000\n")
    for core, (speed, slowed) in enumerate([("3000000", "4"), ("1200000", "5")]):
        write(sys / f"devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{speed}\n")
        write(sys / f"devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count", f"{slowed}\n")
    return proc, sys


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_the_kernel_tells_is_read(kernel: tuple[Path, Path]) -> None:
    found = EngineMeter(*kernel).read()
    assert found.threads == 2
    assert found.run_queue_s == pytest.approx(2.5)
    assert found.throttled_s == pytest.approx(1.5)
    assert found.steal_s == pytest.approx(2.5)
    assert found.thermal == 9
    assert found.megahertz == 1200


def test_the_older_control_groups_are_read_too(kernel: tuple[Path, Path]) -> None:
    proc, sys = kernel
    write(proc / "self/cgroup", "4:cpuacct,cpu:/old\n1:name=systemd:/\n")
    write(sys / "fs/cgroup/cpuacct,cpu/old/cpu.stat", "nr_periods 9\nthrottled_time 3000000000\n")
    assert EngineMeter(proc, sys).read().throttled_s == pytest.approx(3.0)


def test_what_the_kernel_does_not_tell_is_unknown_and_not_zero(tmp_path: Path) -> None:
    found = EngineMeter(tmp_path, tmp_path).read()
    assert found.cpu_s > 0
    unknown = ("threads", "run_queue_s", "throttled_s", "steal_s", "thermal", "megahertz")
    assert [getattr(found, name) for name in unknown] == [None] * 6


def test_waits_of_threads_that_ended_are_kept(kernel: tuple[Path, Path]) -> None:
    proc, sys = kernel
    meter = EngineMeter(proc, sys)
    assert meter.read().run_queue_s == pytest.approx(2.5)
    (proc / "self/task/11/schedstat").unlink()
    (proc / "self/task/11").rmdir()
    assert meter.read().run_queue_s == pytest.approx(2.5)
    write(proc / "self/task/11/schedstat", "100 200000000 7\n")  # another thread that got the number
    write(proc / "self/task/10/schedstat", "100 2300000000 7\n")
    assert meter.read().run_queue_s == pytest.approx(2.5 + 0.2 + 0.3)


def test_work_of_this_process_shows() -> None:
    meter = EngineMeter()
    before = meter.read()
    waiting = threading.Event()
    for _ in range(20):
        waiting.wait(0.001)
    sum(range(2_000_000))
    after = meter.read()
    assert after.cpu_s > before.cpu_s
    assert after.voluntary > before.voluntary
    assert after.t >= before.t
