"""`td-loop deploy serve`: the process that starts the server's processes, and starts those anew that die.

It binds the port before anything else and keeps it, without listening, so that nobody else can take it while the
others load; they listen at it together (SO_REUSEPORT), and the kernel deals connections out among them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from td_loop.deploy.admission.record import is_verified
from td_loop.deploy.canary.store import check_not_refused
from td_loop.deploy.names import FULL_BP, SERVER_FILE
from td_loop.deploy.server.control import folder_token
from td_loop.deploy.server.counters import Counters
from td_loop.deploy.server.decision_id import folder_key
from td_loop.deploy.server.episodes import Episodes
from td_loop.deploy.server.ledger import MOST_PROCESSES, Ledger
from td_loop.deploy.server.policies import Named, Policies, publish, read_policies
from td_loop.deploy.server.watched import Watched
from td_loop.deploy.server.worker import Settings
from td_loop.deploy.traffic import Traffic
from td_loop.errors import Refused, TdLoopError, UsageError
from td_loop.files import make_dir, remove, write_json
from td_loop.lock import locked
from td_loop.policy.runtimes import RUNTIMES
from td_loop.signals import Signals, die_with

LOCK = "server.lock"
GRACE_S = 10.0
"""Seconds that requests under way have after SIGTERM."""
CALM_S = 10.0
"""Seconds that a process has to live for the next one in its place to be started at once."""
_POLL_S = 0.02


@dataclass(frozen=True)
class ServeSettings:
    """What a server is started with.

    Attributes:
        stable: the artefact; None: what the folder's server had last.
        canary: another one, or None.
        canary_percent: of new episodes that it gets.
        folder: see `--dir`.
        host, port: where to listen; port 0 is any that is free.
        processes: that answer.
        deadline_ms: that a policy has before the rule answers.
        runtime: see `open_runner`.
        threads: that compute for each policy, in each process.
        behind_proxy: a router in front says which subset answers; only it can reach the server.

    Raises:
        UsageError: a value is out of range.
    """

    stable: Path | None
    canary: Path | None = None
    canary_percent: float = 0.0
    folder: Path = Path("deploy")
    host: str = "127.0.0.1"
    port: int = 8080
    processes: int = 1
    deadline_ms: float = 50.0
    runtime: str = "onnxruntime"
    threads: int = 4
    behind_proxy: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.canary_percent <= 100.0:
            raise UsageError(f"--canary-percent is 0..100, not {self.canary_percent:g}")
        if self.canary_percent and self.canary is None:
            raise UsageError("--canary-percent without --canary: there is nobody to get the traffic")
        if self.canary is not None and self.stable is None:
            raise UsageError("--canary without --stable; without both the folder's policies go on")
        if not 0 <= self.port < 65536:
            raise UsageError(f"--port is 0..65535, not {self.port}")
        if not 1 <= self.processes <= MOST_PROCESSES:
            raise UsageError(f"--processes is 1..{MOST_PROCESSES}, not {self.processes}")
        if not 1.0 <= self.deadline_ms <= 60_000.0:
            raise UsageError(f"--deadline-ms is 1..60000, not {self.deadline_ms:g}")
        if not 1 <= self.threads <= 64:
            raise UsageError(f"--threads is 1..64, not {self.threads}")
        if self.runtime not in RUNTIMES:
            raise UsageError(f"--runtime is one of {', '.join(RUNTIMES)}, not {self.runtime!r}")


def serve(settings: ServeSettings, say: Callable[[str], None]) -> None:
    """Serve until a signal; `say` gets a line when everything is ready, and of what happens to processes.

    Raises:
        Interrupted: a signal came; requests under way have been answered.
        UsageError: the port is in use, or there is no stable policy.
        RunInUse: another server works in the folder.
        Refused, DataError: a policy cannot be served.
    """
    folder = settings.folder
    make_dir(folder)
    with (
        locked(folder / LOCK, "stop it, or give another --dir") as lock,
        _reserved(settings.host, settings.port) as port,
        Signals() as signals,
    ):
        lock.sign()
        _prepare(settings)
        counters = Counters(folder, settings.processes)
        team = _Team(settings, port, counters, signals, say)
        try:
            say("loading the policies; kernels that this machine has not run yet are compiled, for a minute or so")
            team.start()
            policies = read_policies(folder)
            url = f"http://{_in_url(settings.host)}:{port}"
            write_json(folder / SERVER_FILE, {"url": url, "pid": os.getpid(), "processes": settings.processes})
            assert policies is not None
            of = f"stable {policies.stable.sha256[:12]}"
            if policies.canary is not None:
                of += f", canary {policies.canary.sha256[:12]}"
            of += f"; {settings.processes} process{'es' if settings.processes > 1 else ''}"
            say(f"serving at {url} ({of})")
            team.watch()
        finally:
            team.stop()
            counters.close()
            remove(folder / SERVER_FILE)
        signals.check()


def _prepare(settings: ServeSettings) -> None:
    """Make what the processes share, and say what they are to serve."""
    folder = settings.folder
    folder_key(folder)
    folder_token(folder)
    counters = Counters(folder, settings.processes, fresh=True)
    Watched(folder, counters, settings.processes, 0, fresh=True).close()
    counters.close()
    Ledger(folder, settings.processes).close()
    Episodes(folder).close()
    with contextlib.closing(Traffic.open(folder)) as traffic:
        if settings.stable is None:
            policies = read_policies(folder)
            if policies is None:
                raise UsageError(f"{folder} has served nothing yet: give --stable ARTEFACT")
            check_not_refused(folder, policies.stable.sha256)
            if policies.revision != traffic.read().revision:  # a kill between the two
                publish(folder, traffic, policies, 0)
            return
        # Before the folder remembers it: a server that is started without --stable serves what it remembers.
        stable = _admitted(settings.stable, folder)
        canary = None if settings.canary is None else _admitted(settings.canary, folder)
        weight = round(settings.canary_percent * FULL_BP / 100)
        publish(folder, traffic, Policies(0, stable, canary), weight)


def _admitted(path: Path, folder: Path) -> Named:
    """An artefact that was verified, and not rolled back.

    Raises:
        Refused, DataError: it was not, it was, or it is not there.
    """
    named = Named.of(path)
    if not is_verified(path) and not is_verified(path, folder):
        raise Refused(
            f"{path}: has not been verified, or has changed since; run `td-loop deploy verify {path}` first"
        )
    check_not_refused(folder, named.sha256)
    return named


@contextlib.contextmanager
def _reserved(host: str, port: int) -> Iterator[int]:
    """A port that is ours while the block runs.

    Raises:
        UsageError: it cannot be had.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Whoever listens already shows when it is asked for alone; what is asked for next shares the port.
        with socket.socket(family, socket.SOCK_STREAM) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
            port = alone.getsockname()[1]
        shared = socket.socket(family, socket.SOCK_STREAM)
        try:
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            shared.bind((address[0], port, *address[2:]))
        except OSError:
            shared.close()
            raise
    except OSError as e:
        raise UsageError(
            f"{host}:{port} cannot be listened at: {e.strerror}; stop what listens there, or give another --port"
        ) from e
    with shared:
        yield port


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Team:
    """The processes that answer."""

    def __init__(
        self, settings: ServeSettings, port: int, counters: Counters, signals: Signals, say: Callable[[str], None]
    ) -> None:
        self._settings, self._counters, self._signals, self._say = settings, counters, signals, say
        self._one = Settings(
            dir=str(settings.folder.resolve()),
            host=settings.host,
            port=port,
            process=0,
            processes=settings.processes,
            deadline_ms=settings.deadline_ms,
            runtime=settings.runtime,
            threads=settings.threads,
            behind_proxy=settings.behind_proxy,
        )
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started: dict[int, float] = {}

    def start(self) -> None:
        """Start all, and wait until they are ready: the first one alone, since it compiles what is not compiled.

        Raises:
            TdLoopError: one ended; it has said why.
            Interrupted: a signal came.
        """
        for which in ([0], range(1, self._settings.processes)):
            for k in which:
                self._start(k, goes_on=self._settings.stable is None)
            while not all(self._counters.ready()[k] for k in which):
                self._signals.check()
                for k in which:
                    code = self._processes[k].poll()
                    if code is not None:
                        raise _Ended(f"server process {k} ended before it was ready", code)
                time.sleep(_POLL_S)

    def watch(self) -> None:
        """Start those anew that die, until a signal comes."""
        due: dict[int, float] = {}
        while self._signals.received is None:
            now = time.monotonic()
            for k, process in self._processes.items():
                code = process.poll()
                if code is None:
                    continue
                if k not in due:
                    # One that does not live long is not started over and over.
                    calm = now - self._started[k] >= CALM_S
                    due[k] = now if calm else self._started[k] + CALM_S
                    self._counters.bury(k)
                    how = f"by signal {-code}" if code < 0 else f"with code {code}"
                    self._say(f"server process {k} ended {how}; it is started anew in {due[k] - now:.0f} s")
            for k in [k for k, at in due.items() if at <= now]:
                del due[k]
                self._start(k, goes_on=True)
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Let all answer what is under way, then end; those that do not are killed."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + GRACE_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, k: int, *, goes_on: bool) -> None:
        settings = replace(self._one, process=k, goes_on=goes_on)
        self._started[k] = time.monotonic()
        # Its own session: a Ctrl-C is ours to pass on, in the order of `stop`.
        self._processes[k] = subprocess.Popen(
            [sys.executable, "-m", "td_loop.deploy.server.worker", settings.as_json()],
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  (this process has one thread)
            start_new_session=True,
        )


class _Ended(TdLoopError):
    """A process ended with a code that is this command's, too."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code if code > 0 else 1
