"""A guarded run whose telemetry goes through a socket or a server, by the client that programs use."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from td_loop.cli import main
from tests.guard.guarded import ROOT, steps

PROGRAM = """
import os, sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from td_loop.guard import Telemetry, environment

telemetry, active = Telemetry(), environment.resume_path()
step = int(active.read_text()) if active else 0

def save(initial=False):
    path = environment.staging() / f"model_{{step}}.txt"
    path.write_text(str(step))
    telemetry.checkpoint(step, path, initial)

if not active:
    save(initial=True)
for _ in range(30):
    step += 1
    telemetry.log(step, kl=0.01 * environment.multiplier(), entropy=1.0)
    if step == 20:
        save()
if environment.multiplier() == 1:
    for _ in range(5):
        step += 1
        telemetry.log(step, kl=0.9, entropy=1.0)
    time.sleep(600)
telemetry.close()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a Redis server that keeps nothing on disk."""
    pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on this machine (apt-get install redis-server)")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    line = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}/0"
        process.kill()


def run(folder: Path, address: str) -> int:
    flags = ["--promote-after", "5", "--trial-steps", "5", "--telemetry", address]
    program = [sys.executable, "-c", PROGRAM.format(root=str(ROOT))]
    return main(["guard", "run", "--dir", str(folder), *flags, "--", *program])


@pytest.mark.parametrize("address", ["file", "unix:", "unix:{folder}/a.sock"])
def test_the_client_is_heard_through_each_transport(tmp_path: Path, address: str) -> None:
    assert run(tmp_path / "g", address.format(folder=tmp_path)) == 0
    assert steps(tmp_path / "g")["snapshots"] == [(0, True), (20, True)]
    assert (tmp_path / "g" / "active").read_text() == "20"
    kept = (tmp_path / "g" / "telemetry.a0.jsonl").read_text().splitlines()  # for the postmortem
    assert sum('"kl":0.9' in line for line in kept) >= 3


def test_two_guards_at_one_redis_server_do_not_hear_each_other(tmp_path: Path, server: str) -> None:
    for name in ("a", "b"):
        assert run(tmp_path / name, server) == 0
        assert steps(tmp_path / name)["snapshots"] == [(0, True), (20, True)]


def test_a_server_that_is_not_there_is_a_usage_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("redis")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    assert run(tmp_path, f"redis://127.0.0.1:{port}/0") == 64
    assert str(port) in capfd.readouterr().err
