"""Keeps a process's policies those that `policies.json` names, without holding up a request."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from td_loop.deploy.server.loading import Loaded, Loading, load
from td_loop.deploy.server.policies import Named, Policies, read_policies
from td_loop.deploy.server.service import Service, Serving
from td_loop.errors import TdLoopError

CHECK_S = 0.05
"""Seconds between two looks at the revision, where no request comes that would look."""
RETRY_S = 1.0
"""Seconds after which an artefact that could not be loaded is tried again."""


def load_all(policies: Policies, how: Loading, *, goes_on: bool = False) -> Serving:
    """What a process that starts serves.

    Args:
        policies: which.
        how: see `Loading`.
        goes_on: it takes the place of a process that died, or of a server that was stopped. A canary that has been
            rolled back meanwhile, or has gone, is then no reason for the stable policy not to answer.

    Raises:
        Refused, DataError, UsageError: see `load`.
    """
    stable, canary = load(policies.stable, how), None
    if policies.canary is not None:
        try:
            canary = load(policies.canary, how, stable.game)
        except TdLoopError as e:
            if not goes_on:
                raise
            print(f"error: going on without a canary: {e}", file=sys.stderr, flush=True)  # noqa: T201
    return Serving(policies.revision, stable, canary, policies.shadow)


class Follower:
    """Loads in threads, swaps on the event loop. What was prepared or is served is not loaded again."""

    def __init__(
        self, folder: Path, service: Service, how: Loading, say: Callable[[str], None] | None = None
    ) -> None:
        """`say` gets what went wrong; standard error by default."""
        self._folder, self._service, self._how = folder, service, how
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
        self._prepared: dict[str, Loaded] = {}
        self._fault = ""
        self._lock = threading.Lock()
        self._task: asyncio.Task[None] | None = None

    def prepare(self, named: Named) -> Loaded:
        """The policy, loaded and warm; call this from a thread.

        Raises:
            Refused, DataError, UsageError: see `load`.
        """
        with self._lock:  # one at a time: two loads at once delay the requests twice as much
            for policy in (self._service.serving.stable, self._service.serving.canary):
                if policy is not None and policy.named.sha256 == named.sha256:
                    return policy
            if named.sha256 not in self._prepared:
                self._prepared = {named.sha256: load(named, self._how, self._service.game)}
            return self._prepared[named.sha256]

    def wake(self) -> None:
        """There may be a new revision: look at it soon."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def watch(self) -> None:
        """Follow for ever."""
        while True:
            if self._service.traffic.read().revision != self._service.serving.revision:
                self.wake()
            await asyncio.sleep(CHECK_S)

    async def _follow(self) -> None:
        try:
            policies = read_policies(self._folder)
            if policies is None:
                return
            stable = await asyncio.to_thread(self.prepare, policies.stable)
            canary = None if policies.canary is None else await asyncio.to_thread(self.prepare, policies.canary)
        except TdLoopError as e:
            if str(e) != self._fault:  # once, however often it is tried again
                self._say(f"error: the policies cannot be followed: {e}")
            self._fault = str(e)
            await asyncio.sleep(RETRY_S)
            return
        before = self._service.serving
        self._service.serve(Serving(policies.revision, stable, canary, policies.shadow))
        self._prepared = {}
        for policy in (before.stable, before.canary):
            if policy is not None and policy is not stable and policy is not canary:
                policy.pool.close()
