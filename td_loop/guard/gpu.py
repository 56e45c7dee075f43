"""GPU memory of processes, as `nvidia-smi` tells it, where there is one."""

from __future__ import annotations

import shutil
import subprocess

_WAIT_S = 10.0
_QUERY = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]


def used_mib() -> dict[int, int] | None:
    """GPU memory by process id, MiB; None where nothing can be asked.

    A process whose memory the driver does not tell has 0.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *_QUERY], capture_output=True, text=True, timeout=_WAIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found: dict[int, int] = {}
    for line in done.stdout.splitlines():
        pid, _, mib = (part.strip() for part in line.partition(","))
        if pid.isdigit():
            found[int(pid)] = found.get(int(pid), 0) + (int(mib) if mib.isdigit() else 0)
    return found
