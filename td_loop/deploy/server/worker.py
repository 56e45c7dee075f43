"""One server process: `python -m td_loop.deploy.server.worker`, started by `serve` with its settings as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, cast

from td_loop.deploy.server.control import Control
from td_loop.deploy.server.counters import Counters
from td_loop.deploy.server.follower import Follower, load_all
from td_loop.deploy.server.http import App
from td_loop.deploy.server.loading import Loading
from td_loop.deploy.server.policies import read_policies
from td_loop.deploy.server.service import Service
from td_loop.deploy.server.watched import Watched
from td_loop.errors import DataError, TdLoopError, UsageError
from td_loop.files import dumps_json
from td_loop.policy.runtimes import Runtime

TICK_S, MEASURE_S = 0.25, 1.0
BACKLOG = 1024
SWITCH_S = 0.001
"""Seconds after which a thread lets go of the interpreter if another one waits. By default it is 5 ms: while a
canary is being read every request would be late by so much, and the deadline of a policy, too."""


@dataclass(frozen=True)
class Settings:
    """Of one process.

    Attributes:
        dir: the server's folder.
        host, port: where to listen, together with the others.
        process, processes: which of them this is.
        deadline_ms: that a policy has.
        runtime: see `open_runner`.
        threads: that compute for each policy.
        behind_proxy: see `ServeSettings`.
        goes_on: see `load_all`.
    """

    dir: str
    host: str
    port: int
    process: int
    processes: int
    deadline_ms: float
    runtime: str
    threads: int
    behind_proxy: bool = False
    goes_on: bool = False

    def as_json(self) -> str:
        """What `from_json` takes back."""
        return dumps_json(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `as_json`."""
        import orjson

        return cls(**orjson.loads(text))


def make_server(app: Any, host: str, port: int) -> Any:
    """granian's server for `app`, to be run on the loop of this process.

    Raises:
        UsageError: the package is not installed.
    """
    try:
        from granian.constants import HTTPModes, Interfaces
        from granian.server.embed import Server
    except ImportError as e:
        raise UsageError("serving takes the package granian; pip install 'td-loop[deploy]'") from e
    return Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        log_enabled=False,
    )


async def run(settings: Settings, loading: Loading) -> None:
    """Load, warm up, listen, and answer until SIGTERM; what is under way then is still answered.

    Raises:
        Refused, DataError, UsageError: a policy cannot be loaded.
    """
    folder = Path(settings.dir)
    policies = read_policies(folder)
    if policies is None:
        raise DataError(f"{folder}: names no policies; give --stable")
    serving = await asyncio.to_thread(load_all, policies, loading, goes_on=settings.goes_on)
    counters = Counters(folder, settings.processes, settings.process)
    watched = Watched(folder, counters, settings.processes, settings.process)
    service = Service(
        folder,
        serving.stable.game,
        serving,
        counters,
        watched,
        process=settings.process,
        processes=settings.processes,
        deadline_s=settings.deadline_ms / 1000.0,
    )
    await asyncio.to_thread(service.warm_up)
    # What is there now stays. Python would look through all of it for garbage now and then (compiled kernels alone
    # are 300,000 objects), which takes a tenth of a second and more, and nobody is answered meanwhile.
    gc.collect()
    gc.freeze()
    follower = Follower(folder, service, loading)
    service.on_revision = follower.wake
    control = Control(folder, service.traffic, counters.ready, follower.prepare, settings.behind_proxy)
    app = App(service, control, behind_proxy=settings.behind_proxy)
    server = make_server(app, settings.host, settings.port)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    tasks = [asyncio.create_task(work) for work in (follower.watch(), _tick(service), _measure(watched))]
    served = asyncio.create_task(server.serve())
    try:
        await _until_listening(settings.host, settings.port, served)
        service.serve(serving)  # from now on the others count on this process
        await served
    finally:
        counters.set_ready(0)
        for task in tasks:
            task.cancel()
        await service.settle()
        service.tick()
        service.close()
        watched.close()
        counters.close()


async def _until_listening(host: str, port: int, served: asyncio.Task[None]) -> None:
    """Wait until somebody answers at the port. With several processes that may be another one: then this one is
    about to, and nobody waits for it in vain."""
    while not served.done():
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(0.005)


async def _tick(service: Service) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        service.tick()


async def _measure(watched: Watched) -> None:
    while True:
        await asyncio.to_thread(watched.measure)
        await asyncio.sleep(MEASURE_S)


def main(argv: list[str]) -> int:
    """Run one process; its exit code."""
    settings = Settings.from_json(argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to the whole terminal; the parent passes on SIGTERM
    sys.setswitchinterval(SWITCH_S)
    loading = Loading(Path(settings.dir), cast(Runtime, settings.runtime), settings.threads)
    began = time.monotonic()
    try:
        asyncio.run(run(settings, loading))
    except TdLoopError as e:
        seconds = time.monotonic() - began
        print(f"error: {e} (server process {settings.process}, after {seconds:.1f} s)", file=sys.stderr)  # noqa: T201
        return e.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
