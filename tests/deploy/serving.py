"""Server processes for tests: artefacts with a record, and `td-loop deploy serve` on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td_loop.deploy.admission.record import FORMAT_VERSION, record_path
from td_loop.deploy.client import Client
from td_loop.files import write_json
from td_loop.policy.artefact import Artefact

PATIENCE_S = 120.0
ROOT = Path(__file__).parents[2]


def with_record(artefact: Artefact) -> Artefact:
    """The artefact, as if it had passed its admission."""
    record = {"format_version": FORMAT_VERSION, "sha256": artefact.sha256, "verified": True}
    write_json(record_path(artefact.path), record)
    return artefact


def observation(turn: int = 0, troops: int = 8) -> dict[str, Any]:
    """A state of the toy game, seat 0 of 2."""
    return {"player": 0, "n": 2, "turn": turn, "land": [4, 5, 0, 0], "troops": [troops, 10, 0, 0]}


@dataclass
class Server:
    """One that runs.

    Attributes:
        process: that was started; the others are its children.
        folder: of the server.
        output: where standard output and error go.
    """

    process: subprocess.Popen[bytes]
    folder: Path
    output: Path

    @property
    def url(self) -> str:
        url: str = json.loads((self.folder / "server.json").read_text())["url"]
        return url

    def client(self) -> Client:
        return Client.of_folder(self.folder, 30.0)

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """The exit code after a signal."""
        if self.process.poll() is None:
            self.process.send_signal(signum)
        return self.process.wait(PATIENCE_S)


def command(folder: Path, *options: object) -> list[str]:
    """The command line."""
    words = ["deploy", "serve", "--dir", folder, "--port", 0, *options]
    return [sys.executable, "-m", "td_loop", *map(str, words)]


@contextlib.contextmanager
def started(folder: Path, *options: object) -> Iterator[Server]:
    """A server that is ready, until the block ends."""
    output = folder.with_suffix(".out")
    with output.open("ab") as out:
        process = subprocess.Popen(
            command(folder, *options),
            stdout=out,
            stderr=out,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        )
    server = Server(process, folder, output)
    try:
        wait_until(lambda: (folder / "server.json").exists() or process.poll() is not None)
        assert process.poll() is None, output.read_text()
        yield server
    finally:
        server.stop()


def wait_until(condition: Any) -> None:
    """Wait for what must come to pass."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
