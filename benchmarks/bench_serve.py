"""What the server makes of its time: latency over HTTP, calls that stall, and a canary that is loaded meanwhile.

    python benchmarks/bench_serve.py

Orbit Wars, 4 seats and 300 fleets, a policy that has learnt nothing. Beside the server stands a handler that does
nothing on the same stack, which reads the same body and answers as many bytes. Requests come from another process
at a fixed rate whatever became of those before (open loop), and the time of each counts from when it was due, so
that a server that stops for a while pays for all who came meanwhile. Rounds of the servers alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.serve_stalling import GAME as STALLING
from td_loop.deploy.admission.record import keep_record
from td_loop.deploy.admission.verify import verify
from td_loop.deploy.client import Client
from td_loop.deploy.server.worker import make_server
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.observe import observation
from td_loop.policy.export import export_untrained

ROOT = Path(__file__).parents[1]
CONNECTIONS = 32
STALL_MS, STALLED_SHARE = 200.0, 0.01
BYTES_OF_AN_ANSWER = 400
BINARY = "application/octet-stream"
PARTS = ("latency", "stalls", "loads")


# --- servers -------------------------------------------------------------------------------------------------


class Nothing:
    """An RSGI application that reads the body and answers at once."""

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        await proto()
        proto.response_bytes(200, [("content-type", "application/json")], b" " * BYTES_OF_AN_ANSWER)


def serve_nothing(port: int) -> None:
    asyncio.run(make_server(Nothing(), "127.0.0.1", port).serve())


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@contextlib.contextmanager
def nothing() -> Iterator[str]:
    """The address of a server that does nothing."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = int(s.getsockname()[1])
    process = subprocess.Popen([sys.executable, __file__, "--nothing", str(port)], env=environment())
    try:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def server(folder: Path, *options: object) -> Iterator[str]:
    """The address of `td-loop deploy serve`, when it is warm."""
    words = ["deploy", "serve", "--dir", folder, "--port", 0, *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "td_loop", *map(str, words)],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (folder / "server.json").exists():
            if process.poll() is not None:
                raise SystemExit("the server does not start")
            time.sleep(0.05)
        yield json.loads((folder / "server.json").read_text())["url"]
    finally:
        process.terminate()
        process.wait()


# --- load, in a process of its own ---------------------------------------------------------------------------


def bodies(kind: str, stalled: bool) -> list[bytes]:
    """Requests of games of four, of 300 fleets each; if asked for, one of a hundred stalls."""
    rng = np.random.default_rng(0)
    made = []
    for k in range(100):
        position = crowded(int(rng.integers(20)), 300, rng)
        if kind == "json":
            shown = observation(position, k % 4)
            shown["next_fleet_id"] = 7 if stalled and k == 50 else 0
            made.append(orjson.dumps({"episode": f"e{k}", "observation": shown}))
        else:
            made.append(GAME.pack(position, k % 4))
    return made


def crowded(seed: int, fleets: int, rng: np.random.Generator) -> Any:
    """A position of four seats in which so many fleets fly."""
    shown = observation(GAME.initial(seed, 4), 0)
    n = len(shown["planets"])
    for row in shown["planets"]:
        row[1], row[5] = int(rng.integers(-1, 4)), int(rng.integers(0, 150))
    shown["fleets"] = [
        [k, int(rng.integers(4)), *rng.uniform(0, 100, 2).tolist(), float(rng.uniform(-3, 3)),
         int(rng.integers(n)), int(rng.integers(1, 80))]
        for k in range(fleets)
    ]  # fmt: skip
    return GAME.read_observation({**shown, "step": 200, "n_players": 4})[0]


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(streams: Streams, body: bytes, head: str) -> bytes:
    reader, writer = streams
    writer.write(
        f"POST /v1/decide HTTP/1.1\r\nhost: rl\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body
    )
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if not answer.startswith("http/1.1 200"):
        raise SystemExit(f"answered with {answer.splitlines()[0]}")
    return await reader.readexactly(int(answer.split("content-length: ")[1].split("\r\n")[0]))


async def load(url: str, rate: float, seconds: float, kind: str, stalled: bool) -> dict[str, Any]:
    """Of each request: milliseconds from when it was due, whether it stalls, and whether the rule answered."""
    host, port = url.removeprefix("http://").split(":")
    free: asyncio.LifoQueue[Streams] = asyncio.LifoQueue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection(host, int(port)))
    all_bodies = bodies(kind, stalled)
    found: list[tuple[float, bool, bool]] = []

    async def one(number: int, due: float) -> None:
        k = number % len(all_bodies)
        head = "content-type: application/json\r\n"
        if kind == "binary":
            head = f"content-type: {BINARY}\r\naccept: {BINARY}\r\nx-episode-id: e{k}\r\n"
        streams = await free.get()
        answer = await ask(streams, all_bodies[k], head)
        took = time.perf_counter() - due
        free.put_nowait(streams)
        found.append((took * 1e3, stalled and k == 50, b'"fallback":true' in answer))

    for number in range(50):
        await one(number, time.perf_counter())
    found.clear()
    begin, tasks = time.perf_counter() + 0.1, []
    for number in range(round(rate * seconds)):
        due = begin + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    while not free.empty():
        free.get_nowait()[1].close()
    return {"ms": [f[0] for f in found], "stalls": [f[1] for f in found], "rule": [f[2] for f in found]}


def loaded(url: str, rate: float, seconds: float, kind: str = "json", stalled: bool = False) -> dict[str, Any]:
    """`load`, in another process."""
    words = [sys.executable, __file__, "--load", json.dumps([url, rate, seconds, kind, stalled])]
    done = subprocess.run(words, env=environment(), stdout=subprocess.PIPE, check=True)
    found = orjson.loads(done.stdout)
    return {name: np.array(values) for name, values in found.items()}


# --- tables --------------------------------------------------------------------------------------------------


def percentiles(ms: Any) -> tuple[float, float]:
    p50, p99 = np.percentile(ms, [50, 99])
    return float(p50), float(p99)


def latency(addresses: dict[str, tuple[str, str]], rates: list[float], seconds: float, rounds: int) -> None:
    print(f"{'requests/s':>10} {'':<16} {'p50 ms':>8} {'p99 ms':>8} {'ratio p50':>9} {'ratio p99':>9} {'n':>6}")
    for rate in rates:
        took: dict[str, list[float]] = {name: [] for name in addresses}
        for _ in range(rounds):
            for name, (url, kind) in addresses.items():
                took[name] += loaded(url, rate, seconds, kind)["ms"].tolist()
        base = percentiles(took["does nothing"])
        for name, ms in took.items():
            p50, p99 = percentiles(ms)
            ratios = f"{p50 / base[0]:>9.1f} {p99 / base[1]:>9.1f}"
            print(f"{rate:>10g} {name:<16} {p50:>8.2f} {p99:>8.2f} {ratios} {len(ms):>6}", flush=True)


def stalls(folder: Path, artefact: Path, seconds: float, rounds: int) -> None:
    """1 % of the calls of the policy take 200 ms."""
    print(f"\n200 requests/s, {STALLED_SHARE:.0%} of the calls stalled for {STALL_MS:g} ms, deadline 50 ms")
    with server(folder, "--stable", artefact) as url:
        parts = [loaded(url, 200.0, seconds, stalled=True) for _ in range(rounds)]
    ms, hung, rule = (np.concatenate([p[name] for p in parts]) for name in ("ms", "stalls", "rule"))
    for name, which in (("stalled", hung), ("all others", ~hung)):
        p50, p99 = percentiles(ms[which])
        late = int((ms[which] > 50.0).sum())
        print(
            f"  {name:<11} {which.sum():>6} requests, p50 {p50:.2f} ms, p99 {p99:.2f} ms, over 50 ms: {late}, "
            f"answered by the rule: {int(rule[which].sum())}"
        )


def loads(folder: Path, stable: Path, canary: Path, seconds: float, rounds: int) -> None:
    """The latency of the stable policy while canaries are loaded one after the other."""
    print("\n200 requests/s to the stable policy")
    with server(folder, "--stable", stable) as url:
        figures = {}
        for name in ("alone", "while a canary loads"):
            took, n = [], 0
            for _ in range(rounds):
                stop = threading.Event()
                worker = threading.Thread(target=lambda: None)
                count: list[float] = []
                if name != "alone":
                    worker = threading.Thread(target=load_again_and_again, args=(folder, canary, stop, count))
                worker.start()
                took += loaded(url, 200.0, seconds)["ms"].tolist()
                stop.set()
                worker.join()
                n += len(count)
            figures[name] = percentiles(took)
            times = f", {n} times" if n else ""
            print(f"  {name + times:<32} p50 {figures[name][0]:.2f} ms, p99 {figures[name][1]:.2f} ms")
        before, after = (figures[name][1] for name in figures)
        print(f"  ratio of p99: {after / before:.2f}")


def load_again_and_again(folder: Path, canary: Path, stop: threading.Event, count: list[float]) -> None:
    with Client.of_folder(folder, 60.0) as client:
        while not stop.is_set():
            began = time.perf_counter()
            client.set_canary(str(canary))
            count.append(time.perf_counter() - began)
            client.set_canary(None)
            stop.wait(0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rate", type=float, nargs="+", default=[50.0, 200.0, 800.0], help="requests/s (50 200 800)"
    )
    parser.add_argument("--processes", type=int, default=1, help="of the server (1)")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="what to measure (all)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round (3)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (3)")
    parser.add_argument("--nothing", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.nothing is not None:
        serve_nothing(args.nothing)
        return
    if args.load is not None:
        sys.stdout.buffer.write(orjson.dumps(asyncio.run(load(*json.loads(args.load)))))
        return

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {}
        for k, (what, game) in enumerate((("stable", GAME), ("canary", GAME), ("stalling", STALLING))):
            artefact = export_untrained(folder / f"{what}.onnx", game, seed=k)
            keep_record(verify(artefact, game, sla_ms=50.0))
            paths[what] = artefact.path
        processes = ("--processes", args.processes)
        if "latency" in args.part:
            with nothing() as bare, server(folder / "one", "--stable", paths["stable"], *processes) as url:
                addresses = {
                    "does nothing": (bare, "json"),
                    "server, JSON": (url, "json"),
                    "server, binary": (url, "binary"),
                }
                latency(addresses, args.rate, args.seconds, args.rounds)
        if "stalls" in args.part:
            stalls(folder / "two", paths["stalling"], args.seconds, args.rounds)
        if "loads" in args.part:
            loads(folder / "three", paths["stable"], paths["canary"], args.seconds, args.rounds)


if __name__ == "__main__":
    main()
