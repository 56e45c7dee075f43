"""How many workers make sense here: the physical cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def physical_cores(topology: Path = _TOPOLOGY) -> int:
    """Physical cores among the CPUs that this process may run on; at least 1.

    Two threads of one core share its arithmetic units, so a worker on each gains little. Where the kernel does not
    tell which CPUs are threads of one core, every CPU counts.
    """
    # Only Linux can restrict a process to some CPUs (and lets Python ask which).
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in cpus:
        folder = topology / f"cpu{cpu}" / "topology"
        try:
            cores.add((folder.joinpath("physical_package_id").read_text(), folder.joinpath("core_id").read_text()))
        except OSError:
            cores.add((str(cpu), ""))
    return max(1, len(cores))
