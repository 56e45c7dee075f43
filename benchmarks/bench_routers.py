"""What each router adds to the time of a request.

    python benchmarks/bench_routers.py

A server that does nothing (granian, RSGI: the stack of `td-loop deploy serve`) is asked directly, with the draw of
the embedded router in its handler, and through a real Envoy at 5 % with two such servers behind it. Requests come
at a fixed rate whatever became of those before (open loop), and the time of each counts from when it was due.
Rounds of the three alternate, so that what else the machine does falls on all of them. Istio is not measured: its
proxies are Envoys.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.deploy.names import EPISODE_HEADER, SUBSETS
from td_loop.deploy.routing.assign import subset_of
from td_loop.deploy.routing.embedded import EmbeddedRouter
from td_loop.deploy.routing.envoy import EnvoyRouter
from td_loop.deploy.routing.envoy_config import Plan, Upstream
from td_loop.deploy.routing.envoy_process import started
from td_loop.deploy.traffic import Traffic

FOLDER = "BENCH_ROUTERS_DIR"
"""Environment variable of a server: the folder of the split that it draws by; none for one that does nothing."""
BODY = b"x" * 5632
"""1,408 floats of 4 bytes: a state of 4 seats."""
CONNECTIONS = 8


class Nothing:
    """An RSGI application that answers at once."""

    def __init__(self) -> None:
        folder = os.environ.get(FOLDER)
        self._traffic = None if folder is None else Traffic.open(Path(folder))

    async def __call__(self, scope: Any, protocol: Any) -> None:
        await protocol()
        if self._traffic is not None:
            subset_of(scope.headers.get(EPISODE_HEADER, ""), "release", self._traffic.read().canary_weight_bp)
        protocol.response_bytes(200, [], b"{}")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def server(folder: Path | None = None) -> Iterator[int]:
    """The port of a server in a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "granian", "--interface", "rsgi", "--port", str(port), "--no-ws"]
    command += [
        "--log-level",
        "error",
        "--working-dir",
        str(Path(__file__).parent),
        "--factory",
        "bench_routers:Nothing",
    ]
    environment = {**os.environ, **({} if folder is None else {FOLDER: str(folder)})}
    process = subprocess.Popen(command, env=environment)
    try:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            if process.poll() is not None:
                raise SystemExit("granian does not start")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


async def ask(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], episode: int) -> None:
    reader, writer = streams
    head = f"POST /v1/decide HTTP/1.1\r\nhost: rl\r\n{EPISODE_HEADER}: {episode}\r\n"
    writer.write(f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if not answer.startswith("http/1.1 200"):
        raise SystemExit(f"answered with {answer.splitlines()[0]}")
    await reader.readexactly(int(answer.split("content-length: ")[1].split("\r\n")[0]))


async def load(port: int, rate: float, seconds: float) -> list[float]:
    """Seconds of each request from when it was due."""
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for n in range(CONNECTIONS):
        streams = await asyncio.open_connection("127.0.0.1", port)
        await ask(streams, n)
        free.put_nowait(streams)
    took: list[float] = []

    async def one(number: int, due: float) -> None:
        streams = await free.get()
        await ask(streams, number)
        took.append(time.perf_counter() - due)
        free.put_nowait(streams)

    begin = time.perf_counter()
    tasks = []
    for number in range(round(rate * seconds)):
        due = begin + number / rate
        await asyncio.sleep(due - time.perf_counter())
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    while not free.empty():
        free.get_nowait()[1].close()
    return took


def draw_ns(folder: Path, n: int = 200_000) -> float:
    """Nanoseconds of reading the split and drawing, in process."""
    traffic = Traffic.open(folder)
    begin = time.perf_counter_ns()
    for i in range(n):
        subset_of(str(i), "release", traffic.read().canary_weight_bp)
    return (time.perf_counter_ns() - begin) / n


def change_ms(router: EmbeddedRouter | EnvoyRouter, n: int = 50) -> list[float]:
    """Milliseconds of a change with its read back."""
    took = []
    for i in range(n):
        begin = time.perf_counter()
        router.set(5.0 + i % 2)
        took.append((time.perf_counter() - begin) * 1e3)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rate", type=float, nargs="+", default=[50.0, 200.0, 800.0], help="requests/s (50 200 800)"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round (3)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each (4)")
    args = parser.parse_args()

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        embedded = EmbeddedRouter(folder)
        embedded.set(5.0)
        direct, drawing, other = (stack.enter_context(server(f)) for f in (None, folder, None))
        upstreams = {s: Upstream("127.0.0.1", p) for s, p in zip(SUBSETS, (direct, other), strict=True)}
        envoy = stack.enter_context(started(folder / "envoy", Plan(upstreams)))
        router = EnvoyRouter(folder / "envoy")
        router.set(5.0)
        ports = {"direct": direct, "embedded": drawing, "Envoy": envoy.where.port}

        columns = ("p50 ms", "p99 ms", "added p50", "added p99", "ratio")
        print(f"{'requests/s':>10} {'':<9} " + " ".join(f"{name:>9}" for name in columns))
        for rate in args.rate:
            took: dict[str, list[float]] = {name: [] for name in ports}
            for _ in range(args.rounds):
                for name, port in ports.items():
                    took[name] += asyncio.run(load(port, rate, args.seconds))
            p = {name: np.percentile(np.array(times) * 1e3, [50, 99]) for name, times in took.items()}
            for name, (p50, p99) in p.items():
                added = p[name] - p["direct"]
                print(
                    f"{rate:>10g} {name:<9} {p50:>9.2f} {p99:>9.2f} {added[0]:>+9.2f} {added[1]:>+9.2f} "
                    f"{p50 / p['direct'][0]:>8.2f}x"
                )
        print(f"\nreading the split and drawing, in process: {draw_ns(folder) / 1e3:.2f} µs")
        for name, which in (("embedded", embedded), ("Envoy", router)):
            p50, p99 = np.percentile(change_ms(which), [50, 99])
            print(f"a change with its read back, {name}: {p50:.1f} ms, p99 {p99:.1f} ms")


if __name__ == "__main__":
    main()
