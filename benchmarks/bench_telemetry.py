"""What reporting a batch costs a training process.

    python benchmarks/bench_telemetry.py

Eight metrics a line, one line a call. Each call is timed by itself; between bursts of calls there is a pause, as a
training step would be, in which readers read. References of the same run: `os.write` of a line that is ready, and
Python's own `logging.FileHandler` with a JSON message.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from td_loop.guard import Telemetry
from td_loop.guard.sources import Source, open_source

METRICS = {
    "kl": 0.0123456789,
    "entropy": 1.3234567,
    "value_loss": 0.4812345,
    "reward": 21.37654,
    "grad_norm": 0.71234567,
    "lr": 3e-4,
    "td_loss": 0.5123456,
    "mc_loss": 1.0234567,
}

Report = Callable[[int], object]


def timed(report: Report, calls: int, burst: int, pause: float, read: Callable[[], object]) -> list[int]:
    """Nanoseconds of each call."""
    clock = time.perf_counter_ns
    for step in range(burst):  # imports, threads, connections
        report(step)
    took = []
    for step in range(calls):
        if step % burst == 0:
            time.sleep(pause)
            read()
        began = clock()
        report(step)
        took.append(clock() - began)
    return took


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str | None]:
    """The address of a server that keeps nothing on disk; None where there is none to start."""
    program = shutil.which("redis-server")
    try:
        import redis
    except ImportError:
        program = None
    if program is None:
        yield None
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(redis.ConnectionError):
                redis.Redis(port=port).ping()
                break
            time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}/0?stream=bench"
    finally:
        server.terminate()
        server.wait()


def bare(folder: Path) -> Iterator[tuple[str, Report]]:
    """The references."""
    fd = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    line = json.dumps({"step": 123456, **METRICS}).encode() + b"\n"
    yield "os.write of a line that is ready", lambda _: os.write(fd, line)
    os.close(fd)
    logger = logging.getLogger("bench")
    logger.propagate = False
    handler = logging.FileHandler(folder / "logging.jsonl")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield "logging.FileHandler, json.dumps", lambda step: logger.info(json.dumps({"step": step, **METRICS}))
    handler.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="calls of each kind (20000)")
    parser.add_argument("--burst", type=int, default=50, help="calls between two pauses (50)")
    parser.add_argument("--pause-ms", type=float, default=2.0, help="length of a pause (2)")
    args = parser.parse_args()

    rows: list[tuple[str, list[int], str]] = []

    def measure(name: str, report: Report, read: Callable[[], object] = lambda: None) -> None:
        rows.append((name, timed(report, args.calls, args.burst, args.pause_ms / 1000, read), ""))

    def through(name: str, where: str, source: Source | None = None) -> None:
        received = 0

        def read() -> None:
            nonlocal received
            while source is not None:
                poll = source.poll()
                received += len(poll.records)
                if not poll.more:
                    return

        telemetry = Telemetry(where, attempt=0)
        measure(name, lambda step: telemetry.log(step, **METRICS), read)
        telemetry.close()
        for _ in range(100):  # the last lines are on their way
            read()
            time.sleep(0.01)
        note = f"{received} of {args.calls + args.burst} read, {telemetry.lost} lost" if source is not None else ""
        rows[-1] = (*rows[-1][:2], note)
        if source is not None:
            source.close()

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, report in bare(folder):
            measure(name, report)
        through("Telemetry, off", "")
        path = folder / "telemetry.jsonl"
        through("Telemetry, file", str(path), open_source(path))
        through("Telemetry, full disk (/dev/full)", "/dev/full")
        source = open_source("unix:")
        through("Telemetry, Unix socket", source.address(), source)
        through("Telemetry, Unix socket, nobody there", "unix:/nobody/there")
        with redis_server(folder) as where:
            if where is None:
                print("no redis-server, or no package redis: that row is left out", file=sys.stderr)
            else:
                through("Telemetry, Redis Streams", where, open_source(where))

    reference = float(np.median(rows[0][1]))
    print(f"{len(METRICS)} metrics a line, {args.calls} calls of each kind, Python {sys.version.split()[0]}\n")
    print(f"{'':<38} {'median µs':>9} {'p99 µs':>7} {'to os.write':>11}")
    for name, took, note in rows:
        median, p99 = np.median(took), np.percentile(took, 99)
        print(f"{name:<38} {median / 1e3:>9.2f} {p99 / 1e3:>7.1f} {median / reference:>10.2f}x  {note}".rstrip())


if __name__ == "__main__":
    main()
