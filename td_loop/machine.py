"""What this machine offers: physical cores and free memory, inside the limits of a container."""

from __future__ import annotations

import os
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def physical_cores(cpuinfo: Path = _CPUINFO, cgroup: Path = _CGROUP) -> int:
    """Physical cores that this process may use (>= 1): hyperthreads of one core count once.

    Search is arithmetic on data in the cache: a second thread on a core adds little and slows the first, which a
    wall-clock budget turns into weaker decisions. A container's CPU quota is respected. Where the kernel does not
    tell which threads share a core, every usable thread counts.
    """
    usable = os.sched_getaffinity(0)
    cores = {core for cpu, core in _core_of_cpu(cpuinfo).items() if cpu in usable}
    return max(1, min(len(cores) or len(usable), _cpu_quota(cgroup, len(usable))))


def available_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Bytes that can still be allocated without swapping; None where the kernel does not tell."""
    limits = []
    for line in _lines(meminfo):
        if line.startswith("MemAvailable:"):
            limits.append(int(line.split()[1]) * 1024)
    limit, used = _first_word(cgroup / "memory.max"), _first_word(cgroup / "memory.current")
    if limit.isdigit() and used.isdigit():
        limits.append(max(0, int(limit) - int(used)))
    return min(limits, default=None)


def _core_of_cpu(cpuinfo: Path) -> dict[int, tuple[str, str]]:
    """(socket, core) of every logical CPU that names both."""
    cores: dict[int, tuple[str, str]] = {}
    cpu, socket = -1, "0"
    for line in _lines(cpuinfo):
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor" and value.isdigit():
            cpu = int(value)
        elif key == "physical id":
            socket = value
        elif key == "core id":
            cores[cpu] = (socket, value)
    return cores


def _cpu_quota(cgroup: Path, unlimited: int) -> int:
    """Whole CPUs that the container's quota allows; `unlimited` without one."""
    quota, _, period = " ".join(_lines(cgroup / "cpu.max")).partition(" ")
    if quota.isdigit() and period.isdigit() and int(period) > 0:
        return max(1, int(quota) // int(period))
    return unlimited


def _first_word(path: Path) -> str:
    return next(iter(_lines(path)), "").strip()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
