"""An agent of another program, in a process of its own, under the official clock.

What it does to its process costs it the game: `SeatLost` says why, and nothing else happens.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

from td_loop.arena.agent_process import CRASHED, INVALID
from td_loop.channel import Channel, wait_for
from td_loop.errors import UsageError
from td_loop.pool import ending, module_paths

LATE_S = 5.0
"""How long an answer may be on its way beyond the agent's time: it is the agent's own clock that counts."""

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from td_loop.arena.agent_process import main; main()"
)


class Fault(StrEnum):
    """Why a seat lost its game by itself."""

    TIMEOUT = "timeout"
    CRASH = "crash"
    INVALID = "invalid"


class SeatLost(Exception):
    """The agent of a seat gave no usable answer; its game is lost."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


@dataclass(frozen=True)
class Limits:
    """What an outside agent may use. The defaults of the clock are the official ones.

    Attributes:
        act_timeout_s: seconds a move that cost nothing.
        overage_s: seconds a game beyond those, for all moves together.
        memory_mb: megabytes of data of its process.

    Raises:
        UsageError: out of range.
    """

    act_timeout_s: float = 1.0
    overage_s: float = 60.0
    memory_mb: int = 4096

    def __post_init__(self) -> None:
        if not 0 < self.act_timeout_s < math.inf or not 0 <= self.overage_s < math.inf:
            raise UsageError("an agent's seconds a move must be above 0, its extra seconds a game 0 or more")
        if self.memory_mb < 64:
            raise UsageError(f"an agent needs at least 64 MB of memory, not {self.memory_mb}")


class OutsideAgent:
    """One agent for one game: a new process each time, for agents keep what they know in global variables.

    Attributes:
        overage_s: extra seconds that it has left.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._limits = limits
        self.overage_s = limits.overage_s
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _PROGRAM, json.dumps(module_paths())),
                    *(str(theirs.fileno()), str(os.getpid()), str(path.resolve()), str(limits.memory_mb << 20)),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._channel = Channel(ours)

    def __enter__(self) -> OutsideAgent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, obs: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[Any, float]:
        """Its answer, and the seconds that it took by its own clock; `overage_s` is charged.

        Raises:
            SeatLost: it was too slow, raised, died, or answered what cannot be sent.
        """
        patience = self._limits.act_timeout_s + self.overage_s
        try:
            self._channel.send((dict(obs), dict(config)))
            kind, answer, seconds = self._receive(patience)
        except (EOFError, OSError):
            raise SeatLost(Fault.CRASH, f"its process ended ({self._ending()})") from None
        except (SeatLost, MemoryError):
            raise
        except Exception as e:  # it wrote something of its own into the socket
            raise SeatLost(Fault.INVALID, f"its answer cannot be read ({type(e).__name__}: {e})"[:500]) from None
        if kind == CRASHED:
            raise SeatLost(Fault.CRASH, answer)
        if seconds > patience:
            raise SeatLost(Fault.TIMEOUT, f"took {seconds:.2f} s, had {patience:.2f} s")
        self.overage_s -= max(0.0, seconds - self._limits.act_timeout_s)
        if kind == INVALID:
            raise SeatLost(Fault.INVALID, answer)
        return answer, seconds

    def _receive(self, patience: float) -> tuple[str, Any, float]:
        """Its next message; nothing that its process does, or leaves half done, can make this wait for longer."""
        until = time.monotonic() + patience + LATE_S
        while (left := until - time.monotonic()) > 0:
            wait_for([self._channel], left)
            self._channel.flush()
            for message in self._channel.receive():
                kind, answer, seconds = message
                return kind, answer, seconds
        raise SeatLost(Fault.TIMEOUT, f"no answer within {patience:.1f} s")

    def _ending(self) -> str:
        try:
            return ending(self._process.wait(LATE_S))
        except subprocess.TimeoutExpired:
            return "it closed its connection"

    def close(self) -> None:
        """Kill the process, and those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session, and a group, of its own
        self._process.wait()
        self._channel.close()
