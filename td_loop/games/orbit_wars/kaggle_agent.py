"""The agent of a Kaggle submission: `td-loop export` writes this file out as `main.py`.

It imports nothing but the standard library. A child process (`search_worker`) imports numba, compiles or loads the
kernels and searches; this side keeps the clock. Whatever the child does, the answer is given in time: when it is
not ready, late, dead, or refuses the observation, a fast rule plays. The official environment keeps 60 s of
overage a game for all that goes beyond `actTimeout`: what starting the child takes is paid from it.

The official loader executes the source without `__file__` and takes the last callable that it defines: `agent`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

_BEGAN = time.monotonic()

LATENCY = 0.12
"""Seconds of every turn that are not planned for: what the environment and the way to it take."""
RESERVE = 15.0
"""Seconds of overage kept for hiccups: waiting for the child leaves them; plans shrink when they are touched."""
LEAST = 0.03
"""Seconds below which a search is not worth asking for."""
AFTER_WAIT = 0.3
"""Seconds of search on a turn that was spent waiting for the child."""
STARTS = 4
"""How often the child is started in one game."""
STUCK = 10.0
"""Seconds past its time after which a child that does not answer is replaced."""

_WORKER = "td_loop.games.orbit_wars.search_worker"


def _folder() -> Path:
    """The folder of the submission."""
    named = globals().get("__file__") or _folder.__code__.co_filename
    for folder in (Path(named).resolve().parent, Path("/kaggle_simulations/agent"), *map(Path, sys.path), Path()):
        if (folder / "fast_rule.py").is_file():
            return folder.resolve()
    return Path().resolve()


HERE = _folder()


def _load_rule() -> Any:
    """`fast_rule.decide`, loaded by path: the packages around it must not be imported."""
    spec = importlib.util.spec_from_file_location("_orbit_wars_fast_rule", HERE / "fast_rule.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.decide


class Late(Exception):
    """The child has not answered in time."""


class Searcher:
    """The child process. Messages are lines of JSON; requests and replies carry a number."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._ready = False
        self._number = 0
        self._owed: float | None = None  # when the answer that has not come yet was due
        self.starts = 0  # in this game
        self._end: Callable[[], Any] = lambda: None

    def start(self) -> None:
        """Start the child if there is none.

        Raises:
            OSError: it cannot be started.
            EOFError: it was started too often.
        """
        if self._child is not None:
            return
        if self.starts >= STARTS:
            raise EOFError("the search ended too often")
        self.starts += 1
        env = {
            "HOME": tempfile.gettempdir(),  # for the kernel cache, where there is no home
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in (str(HERE), os.environ.get("PYTHONPATH")) if p),
            # What a kernel cache that was made elsewhere can be used with. Costs no speed that could be measured.
            "NUMBA_CPU_NAME": "generic",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._child = subprocess.Popen(
            [sys.executable or "python3", "-m", _WORKER, str(HERE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=HERE, env=env,
        )  # fmt: skip
        assert self._child.stdin is not None
        os.set_blocking(self._child.stdin.fileno(), False)
        # The child ends with its agent. What is called then must not refer to this module, which holds the agent.
        steps = ExitStack()
        steps.callback(self._child.__exit__, None, None, None)
        steps.callback(self._child.kill)
        self._end = weakref.finalize(self, steps.close)
        self._unread, self._ready, self._owed = b"", False, None

    @property
    def ready(self) -> bool:
        """Whether the child has said that its kernels are warm."""
        return self._ready

    def wait_ready(self, until: float) -> None:
        """Wait for the child to get ready.

        Raises:
            Late: it is not ready at `until` (a time of `time.monotonic`).
            EOFError: it has ended.
        """
        while not self._ready:
            self._ready = bool(self._receive(until).get("ready"))

    def ask(self, request: dict[str, Any], late: float) -> dict[str, Any]:
        """The reply to a request, from a child that is ready.

        Raises:
            Late: it has not come at `late`.
            EOFError: the child has ended.
        """
        while self._owed is not None:  # the answer to an earlier turn, which nobody wants any more
            self._receive_answer(late)
        self._number += 1
        self._send(json.dumps({**request, "number": self._number}).encode() + b"\n", late)
        self._owed = late
        return self._receive_answer(late)

    def close(self) -> None:
        """End the child."""
        self._child, self._ready = None, False
        self._end()

    def _receive_answer(self, late: float) -> dict[str, Any]:
        while True:
            try:
                reply = self._receive(late)
            except Late:
                if self._owed is not None and time.monotonic() > self._owed + STUCK:
                    self.close()
                raise
            if reply.get("number") == self._number:
                self._owed = None
                return reply

    def _receive(self, until: float) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdout is not None
        fd = self._child.stdout.fileno()
        while b"\n" not in self._unread:
            self._wait_for(fd, select.POLLIN, until)
            some = os.read(fd, 1 << 16)
            if not some:
                raise self._ended()
            self._unread += some
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _send(self, data: bytes, until: float) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        fd = self._child.stdin.fileno()
        while data:
            self._wait_for(fd, select.POLLOUT, until)
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._ended() from None

    def _wait_for(self, fd: int, what: int, until: float) -> None:
        poll = select.poll()
        poll.register(fd, what)
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000.0):
            raise Late("the search is not ready" if not self._ready else "the search is late")

    def _ended(self) -> EOFError:
        self.close()
        return EOFError("the search has ended")


def _number(x: Any, default: float, low: float, high: float) -> float:
    """`x` if it is a number in low..high, else `default`."""
    is_number = isinstance(x, int | float) and not isinstance(x, bool) and low <= x <= high
    return float(x) if is_number else default


def planned(act_timeout: float, overage: float, turns_left: int) -> float:
    """Seconds that a turn may take: what is free, and its share of the overage beyond the reserve.

    When the reserve is touched the plan shrinks with it, to nothing when nothing is left.
    """
    free = act_timeout - min(LATENCY, 0.5 * act_timeout)
    if overage >= RESERVE:
        return free + (overage - RESERVE) / max(1, turns_left)
    return free * overage / RESERVE


class Player:
    """One seat of one game after another."""

    def __init__(self) -> None:
        self.searcher = Searcher()
        self._rule = _load_rule()
        self._loading = time.monotonic() - _BEGAN  # the environment counts it for the first move
        self._step = -1
        self._n_players = 2
        self._overage = 60.0

    def move(self, obs: Any, config: Any) -> list[list[Any]]:
        """The moves of this turn. Never raises."""
        began = time.monotonic() - self._loading
        self._loading = 0.0
        try:
            moves = self._search(obs, config if isinstance(config, dict) else {}, began)
        except Exception as e:
            print(f"the rule plays: {e}"[:300], file=sys.stderr)  # noqa: T201  (the log of the episode)
            moves = None
        try:
            legal = _legal(self._rule(obs, self._episode_steps(config)) if moves is None else moves, obs)
        except Exception as e:
            print(f"no move: {type(e).__name__}: {e}"[:300], file=sys.stderr)  # noqa: T201
            legal = []
        return legal

    def _search(self, obs: Any, config: dict[str, Any], began: float) -> list[Any]:
        """What the search decides.

        Raises:
            Exception: there is no decision, for the reason that it tells.
        """
        steps = self._episode_steps(config)
        if not isinstance(obs, dict):
            self.searcher.start()
            raise TypeError(f"the observation is of type {type(obs).__name__}")
        step = int(_number(obs.get("step"), self._step + 1, 0, 1e6))
        if step <= self._step:  # another game
            self._n_players, self._overage, self.searcher.starts = 2, 60.0, 0
        self._step = step
        act = _number(config.get("actTimeout"), 1.0, 0.0, 3600.0)
        overage = _number(obs.get("remainingOverageTime"), self._overage, -1e6, 3600.0)
        try:
            return self._ask(obs, config, step, steps, began, act, max(0.0, overage))
        finally:
            self._overage = overage - max(0.0, time.monotonic() - began - act)
            if step >= steps - 2:
                self.searcher.close()  # no turn comes after this one

    def _ask(
        self, obs: dict[str, Any], config: dict[str, Any], step: int, steps: int,
        began: float, act: float, overage: float,
    ) -> list[Any]:  # fmt: skip
        plan = planned(act, overage, steps - 1 - step)
        until = began + plan
        self.searcher.start()
        if not self.searcher.ready:
            wait = max(plan, act - LATENCY + overage - RESERVE) - min(AFTER_WAIT, 0.3 * plan)
            self.searcher.wait_ready(began + wait)
            until = max(until, time.monotonic() + min(AFTER_WAIT, 0.3 * plan))
        if until - time.monotonic() < LEAST:
            raise Late("the clock runs short")
        self._n_players = max(self._n_players, _seats_seen(obs))
        request = {
            "obs": {**obs, "step": step},
            "config": {"episodeSteps": steps, "shipSpeed": _number(config.get("shipSpeed"), 6.0, 1.0, 1e3)},
            "n_players": self._n_players,
            "until": until,
        }
        # A search that was not given the processor in time may still be worth some overage, and the rule is weak.
        reply = self.searcher.ask(request, until + min(2.0, 0.1 * overage))
        if "error" in reply:
            raise ValueError(reply["error"])
        if reply.get("compiled"):
            print(f"compiled late: {', '.join(reply['compiled'])}"[:300], file=sys.stderr)  # noqa: T201
        moves: list[Any] = reply["moves"]
        return moves

    @staticmethod
    def _episode_steps(config: Any) -> int:
        named = config.get("episodeSteps") if isinstance(config, dict) else None
        return int(_number(named, 500.0, 2.0, 1e5))


def _seats_seen(obs: dict[str, Any]) -> int:
    owners = [obs.get("player"), *(row[1] for key in ("planets", "fleets") for row in obs.get(key) or ())]
    return 4 if any(isinstance(owner, int | float) and owner > 1 for owner in owners) else 2


def _legal(moves: list[Any], obs: Any) -> list[list[Any]]:
    """The moves that are a launch from a planet of one's own, with ships that it has."""
    garrison = {row[0]: int(row[5]) for row in obs["planets"] if row[1] == obs["player"]}
    legal: list[list[Any]] = []
    for planet, angle, ships in moves:
        if math.isfinite(angle) and 0 < int(ships) <= garrison.get(planet, 0):
            garrison[planet] -= int(ships)
            legal.append([planet, float(angle), int(ships)])
    return legal


_PLAYER = Player()


def agent(observation: Any, configuration: Any = None) -> list[list[Any]]:
    """The moves `[planet id, angle, ships]` of the seat that the observation is of."""
    return _PLAYER.move(observation, configuration)
