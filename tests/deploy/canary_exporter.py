"""A small server of metrics, whose counters a test sets, and a real Prometheus that scrapes it."""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

from td_loop.deploy.canary.observation import Counts, SourceError
from td_loop.deploy.names import FALLBACK_REASONS, LATENCY_BUCKETS, SUBSETS, Subset
from td_loop.deploy.server import counters, exposition

T = TypeVar("T")
PROMETHEUS = shutil.which("prometheus")
HINT = "needs Prometheus: apt-get install prometheus"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Exporter:
    """Serves what the server's own text format makes of counters."""

    def __init__(self, port: int = 0) -> None:
        self.reset()
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = exporter.body(exporter.text())
                self.send_response(200)
                self.send_header("Content-Type", exposition.CONTENT_TYPE)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def reset(self) -> None:
        """Count as at the beginning."""
        self.values: dict[str, float] = {}
        self.drift: dict[str, float] = {}
        self.sha256 = "a" * 64
        self.body: Callable[[bytes], bytes] = lambda content: content

    def text(self) -> bytes:
        totals = [0.0] * counters.SIZE
        for subset, factor in (("stable", 10.0), ("canary", 1.0)):
            cells = counters.CELLS[subset]
            n = self.values.get("n", 100.0) * factor
            for place, value in (
                (cells.requests, n),
                (cells.fallbacks["timeout"], n / 500),
                (cells.errors, n * self.values.get(f"errors of {subset}", 0.01)),
                (cells.episodes, n / 10),
                (cells.seconds.buckets, n),
                (cells.reward_count, n / 2),
                (cells.reward_positive, self.values.get("positive", n)),
                (cells.reward_negative, n / 4),
                (cells.reward_squares, 3 * n),
                (cells.entropy_sum, 1.2 * n),
                (cells.entropy_count, n),
                (cells.replayed, n / 5),
                (cells.differing, n / 5000),
            ):
                totals[place] = value
        totals[counters.ENGINE.cpu] = 12.5
        artefacts = dict.fromkeys(SUBSETS, self.sha256)
        entropies: dict[Subset, float] = {"canary": 1.5, "stable": math.nan}
        drift: dict[Subset, dict[str, float]] = {"canary": self.drift, "stable": {}}
        return exposition.exposition(totals, {}, artefacts, entropies, drift)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def prometheus(folder: Path, ports: list[int], port: int = 0) -> Iterator[str]:
    """A Prometheus that scrapes servers every second; its URL."""
    assert PROMETHEUS is not None
    port = port or free_port()
    targets = [f"127.0.0.1:{p}" for p in ports]
    job = {"job_name": "policy", "static_configs": [{"targets": targets}]}
    config = folder / "prometheus.yml"
    settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "900ms"}, "scrape_configs": [job]}
    config.write_text(json.dumps(settings))  # JSON is YAML
    arguments = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [PROMETHEUS, *arguments, f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await_(lambda: urllib.request.urlopen(f"{url}/-/ready", timeout=5).close(), OSError)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def await_(what: Callable[[], T], kind: type[Exception] = SourceError, patience_s: float = 30.0) -> T:
    """What `what` comes to once it raises no more."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return what()
        except kind:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def expected(n: float, sha256: str = "a" * 64) -> Counts:
    """What a source makes of an exporter's counters after n requests of a subset."""
    return Counts(
        n,
        {reason: n / 500 if reason == "timeout" else 0.0 for reason in FALLBACK_REASONS},
        n / 100,
        n / 10,
        n / 2,
        n,
        n / 4,
        3 * n,
        tuple((bound, n) for bound in (*LATENCY_BUCKETS, float("inf"))),
        1.2 * n,
        n,
        n / 5,
        n / 5000,
        sha256=sha256,
    )
