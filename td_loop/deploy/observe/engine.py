"""How busy this process and its machine are: processor time, context switches, waits for a core, throttling.

A small model has little to compute, so many context switches mean threads that contend, and time in the run queue
means a machine with too few cores for what runs on it. Where the kernel does not tell a figure it is None: not
known is not zero.

Sources: proc(5) (schedstat, cgroup, stat); Documentation/scheduler/sched-stats.rst, Documentation/admin-guide/
cgroup-v2.rst (cpu.stat) and Documentation/admin-guide/pm/cpufreq.rst of Linux.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC, SYS = Path("/proc"), Path("/sys")
_NS, _US = 1e-9, 1e-6


@dataclass(frozen=True, slots=True)
class Engine:
    """Figures of one process. All but `t`, `megahertz` and `threads` only rise.

    Attributes:
        t: Unix seconds.
        cpu_s: processor time of the process.
        voluntary, involuntary: context switches of the process.
        threads: of the process, now.
        run_queue_s: time that its runnable threads waited for a core.
        throttled_s: time that its control group was throttled.
        steal_s: time that a hypervisor gave cores of this machine to others.
        thermal: times that cores of this machine were slowed down because they were hot.
        megahertz: of the slowest core, now.
    """

    t: float
    cpu_s: float
    voluntary: float
    involuntary: float
    threads: float | None = None
    run_queue_s: float | None = None
    throttled_s: float | None = None
    steal_s: float | None = None
    thermal: float | None = None
    megahertz: float | None = None


class EngineMeter:
    """Reads the figures of this process; some hundred microseconds, so once a second and not once a request."""

    def __init__(self, proc: Path = PROC, sys: Path = SYS) -> None:
        self._proc, self._sys = proc, sys
        self._group = _group_files(proc, sys)
        self._cores = sorted((sys / "devices/system/cpu").glob("cpu[0-9]*"))
        self._waited: dict[str, float] = {}
        self._run_queue_s: float | None = None
        self._lock = threading.Lock()

    def read(self) -> Engine:
        """The figures now."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        tasks = _names(self._proc / "self/task")
        with self._lock:
            self._run_queue_s = self._add_waits(tasks)
        speeds = _numbers(core / "cpufreq/scaling_cur_freq" for core in self._cores)
        slowed = _numbers(core / "thermal_throttle/core_throttle_count" for core in self._cores)
        return Engine(
            t=time.time(),
            cpu_s=used.ru_utime + used.ru_stime,
            voluntary=used.ru_nvcsw,
            involuntary=used.ru_nivcsw,
            threads=len(tasks) or None,
            run_queue_s=self._run_queue_s,
            throttled_s=self._throttled(),
            steal_s=self._stolen(),
            thermal=sum(slowed) if slowed else None,
            megahertz=min(speeds) / 1e3 if speeds else None,
        )

    def _add_waits(self, tasks: list[str]) -> float | None:
        """Add what each thread waited since it was last looked at: a thread that ended takes its count with it."""
        waited: dict[str, float] = {}
        for task in tasks:
            words = _text(self._proc / "self/task" / task / "schedstat").split()
            if len(words) >= 2:
                waited[task] = int(words[1]) * _NS
        if not waited:
            return self._run_queue_s
        # A number that fell is another thread under the number of one that ended.
        added = sum(
            x - (then if (then := self._waited.get(task, 0.0)) <= x else 0.0) for task, x in waited.items()
        )
        self._waited = waited
        return (self._run_queue_s or 0.0) + added

    def _throttled(self) -> float | None:
        for path in self._group:
            for line in _text(path).splitlines():
                key, _, value = line.partition(" ")
                if key in ("throttled_usec", "throttled_time") and value.isdigit():
                    return int(value) * (_US if key == "throttled_usec" else _NS)
        return None

    def _stolen(self) -> float | None:
        words = _text(self._proc / "stat").partition("\n")[0].split()
        if len(words) < 9 or words[0] != "cpu":
            return None
        return int(words[8]) / os.sysconf("SC_CLK_TCK")


def _group_files(proc: Path, sys: Path) -> list[Path]:
    """Where cpu.stat of this process's control group may be, version 2 first."""
    root = sys / "fs/cgroup"
    found: list[Path] = []
    for line in _text(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found.insert(0, root / path.lstrip("/") / "cpu.stat")
        elif "cpu" in controllers.split(","):
            found.append(root / controllers / path.lstrip("/") / "cpu.stat")
            found.append(root / "cpu" / path.lstrip("/") / "cpu.stat")
    return [*found, root / "cpu.stat"]  # inside a container its own group is the root


def _numbers(paths: Iterable[Path]) -> list[float]:
    return [float(text) for path in paths if (text := _text(path).strip()).isdigit()]


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _text(path: Path) -> str:
    """What stands there; nothing where it cannot be read: a thread may have ended, or the kernel does not tell."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
