"""Everything that a release of Orbit Wars needs, as processes of their own: a server, an Envoy in front of it, a
Prometheus that watches it, and clients that play game after game."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td_loop.deploy.canary import store
from td_loop.deploy.canary.observation import Counts
from td_loop.deploy.canary.window import Window
from tests.deploy.canary_exporter import prometheus
from tests.deploy.serving import PATIENCE_S, ROOT, Server, started, wait_until

SETTINGS: dict[str, dict[str, Any]] = {
    # The canary gets half of the games at once: few are played here.
    "stages": {
        "shadow_s": 0.0,
        "canary_percent": 50.0,
        "canary_s": 4.0,
        "ramp_s": 6.0,
        "ramp_to": 80.0,
        "step_s": 2.0,
    },
    # A busy machine is slow to play, and slow to answer.
    "watch": {"poll_s": 0.5, "quiet_s": 300.0, "reward_quiet_s": 300.0, "requests": 100, "rewards": 10},
    "limits": {"settle_s": 8.0, "p99_ms": 1000.0},
}
MAPS = 40
RELEASE_S = 400.0
"""Seconds within which a release ends even on a machine that has much else to do."""


def run_command(*words: object, **options: Any) -> subprocess.Popen[str]:
    """`td-loop` with these words, in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "td_loop", *map(str, words)], cwd=ROOT, env=env, text=True, **options
    )


@contextlib.contextmanager
def running(output: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A command that works in the background, with its words in a file, until the block ends."""
    with output.open("w") as out:
        process = run_command(*words, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@dataclass
class Street:
    """What is there.

    Attributes:
        server: of decisions.
        envoy: URL of the router in front, where clients ask.
        prometheus: URL.
        said: what the clients say.
    """

    server: Server
    envoy: str
    prometheus: str
    said: Path

    def release(self, artefact: Path, settings: dict[str, dict[str, Any]]) -> subprocess.CompletedProcess[str]:
        """`td-loop deploy canary`, to its end."""
        config = artefact.with_suffix(".toml")
        merged = {table: {**SETTINGS[table], **settings.get(table, {})} for table in SETTINGS}
        config.write_text(
            "\n".join(
                f"[{table}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())
                for table, keys in merged.items()
            )
        )
        process = run_command(
            *("deploy", "canary", artefact, "--dir", self.server.folder, "--config", config),
            *("--router", "envoy", "--prometheus", self.prometheus),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = process.communicate(timeout=RELEASE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=PATIENCE_S)
            raise AssertionError(f"the release did not end:\n{output}\n{self.log()}") from None
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def history(self) -> list[store.Line]:
        """The audit log's lines of the newest release."""
        lines = store.read_audit(self.server.folder)
        return [line for line in lines if line.release.number == lines[-1].release.number]

    def log(self) -> str:
        """The same for people."""
        return "\n".join(f"{x.event} {x.release.stage} {x.release.weight:g} %: {x.reason}" for x in self.history())

    def counts(self) -> tuple[Counts, Counts]:
        """What the server has counted: stable, canary."""
        found = Window(lambda: self.server.url).observe()
        return found.stable, found.canary

    def policies(self) -> dict[str, Any]:
        """Which policies the server has."""
        with self.server.client() as client:
            return client.policies()

    def failures(self) -> str:
        """Requests of clients that failed."""
        return "\n".join(line for line in self.said.read_text().splitlines() if line.startswith("failed"))


@contextlib.contextmanager
def street(folder: Path, stable: Path) -> Iterator[Street]:
    """All of it, with clients at play, until the block ends."""
    with contextlib.ExitStack() as stack:
        options = ("--stable", stable, "--processes", 2, "--deadline-ms", 5000, "--behind-proxy")
        server = stack.enter_context(started(folder / "serving", *options))
        said = folder / "envoy.out"
        where = ("--dir", server.folder, "--stable", server.url, "--canary", server.url, "--port", 0)
        envoy = stack.enter_context(running(said, "deploy", "envoy", *where))
        wait_until(lambda: "http://" in said.read_text() or envoy.poll() is not None)
        found = re.search(r"http://[\d.]+:\d+", said.read_text())
        assert found, said.read_text()
        (folder / "prometheus").mkdir()
        watched = stack.enter_context(prometheus(folder / "prometheus", [int(server.url.rpartition(":")[2])]))
        said = folder / "clients.out"
        played = ("--url", found[0], "--episodes", 10**6, "--clients", 4, "--maps", MAPS, "--packed")
        clients = stack.enter_context(running(said, "deploy", "simulate", *played))
        yield Street(server, found[0], watched, said)
        assert clients.poll() is None, said.read_text()
