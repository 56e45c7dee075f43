"""Runs scripts under fault injection, each in a forked process: `python -m tests.guard.crashing MODULE`.

One request a line on standard input, the exit code and what it said on standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from tests.crash.faults import Faults, Kind, Plan

ROOT = Path(__file__).parents[2]


class Server:
    """A process that has imported everything and forks.

    Args:
        module: where the scripts are, and `run`, which runs one and gives its exit code.
    """

    def __init__(self, module: str = "tests.guard.scripts") -> None:
        self._module = module

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.guard.crashing", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(
        self, script: str, folder: Path, kind: Kind | None = None, changes: Path | None = None, point: int = 0
    ) -> tuple[int, str]:
        """Exit code (minus the signal) and what was said. Without a kind nothing is spoiled, or counted."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"script": script, "run": str(folder), "kind": kind, "changes": str(changes), "point": point}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code, said = json.loads(self._process.stdout.readline())
        return code, said


def main() -> None:
    scripts = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(_forked(scripts, json.loads(line))), flush=True)  # noqa: T201


def _forked(scripts: ModuleType, request: dict[str, Any]) -> tuple[int, str]:
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            os.setsid()  # a kill is one to everything in the session
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            script = getattr(scripts, request.pop("script"))
            if request["kind"] is not None:
                Faults(Plan(**request | {"kind": Kind(request["kind"])})).install("guard")
            code: int = scripts.run(script, Path(request["run"]))
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read().decode()


if __name__ == "__main__":
    main()
