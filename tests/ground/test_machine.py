"""machine: cores and memory, read from what the kernel tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from td_loop.machine import available_memory, physical_cores


def cpuinfo(path: Path, cores: list[tuple[int, int]]) -> Path:
    lines = [f"processor\t: {i}\nphysical id\t: {s}\ncore id\t\t: {c}\n" for i, (s, c) in enumerate(cores)]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.usefixtures("eight")
def test_hyperthreads_of_a_core_count_once(tmp_path: Path) -> None:
    info = cpuinfo(tmp_path / "cpuinfo", [(s, c) for s in (0, 1) for c in (0, 1)] * 2)
    assert physical_cores(info, tmp_path) == 4


@pytest.mark.usefixtures("eight")
def test_cores_that_this_process_may_not_use_do_not_count(tmp_path: Path) -> None:
    assert physical_cores(cpuinfo(tmp_path / "cpuinfo", [(0, c) for c in range(16)]), tmp_path) == 8


@pytest.mark.usefixtures("eight")
def test_without_topology_every_thread_counts(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: of a kind that tells nothing\n")
    assert physical_cores(tmp_path / "cpuinfo", tmp_path) == 8
    assert physical_cores(tmp_path / "missing", tmp_path) == 8


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("quota", "cores"), [("300000 100000", 3), ("50000 100000", 1), ("max 100000", 8)])
def test_a_quota_of_the_container_is_respected(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert physical_cores(tmp_path / "missing", tmp_path) == cores


def test_memory_is_the_least_of_machine_and_container(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  9 kB\nMemAvailable:   2000 kB\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 2000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 4000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path / "meminfo", tmp_path) == 2000 * 1024
    assert available_memory(tmp_path / "missing", tmp_path) is None
