"""What the controller needs of its surroundings; tests have their own of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from td_loop.deploy.canary import store
from td_loop.deploy.canary.observation import Source
from td_loop.deploy.canary.serving import Serving
from td_loop.deploy.canary.webhook import Webhook
from td_loop.deploy.routing.contract import Router
from td_loop.errors import StorageError, TdLoopError

BREAK_S, LONGEST_BREAK_S = 0.5, 15.0
"""Seconds between tries of what has to succeed: at first, and at most."""


class Clock(Protocol):
    """Time."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class WallClock:
    """The machine's."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Voice(Protocol):
    """Whom events and progress are said to."""

    def say(self, line: str) -> None:
        """An event."""
        ...

    def progress(self, line: str) -> None:
        """Where the release stands."""
        ...


Postmortem = Callable[[Path, store.Line], None]
"""Writes what there is to say of a rollback: folder, and the line of the audit log with its evidence."""


@dataclass(frozen=True)
class World:
    """Everything outside of the controller.

    Attributes:
        folder: of the releases; locked by whoever runs the controller.
        router, source, serving, webhook, clock, voice, postmortem: see there.
        config: the file that the settings came from; a change of it is noticed, and waits for the next release.
    """

    folder: Path
    router: Router
    source: Source
    serving: Serving
    webhook: Webhook
    clock: Clock
    voice: Voice
    postmortem: Postmortem
    config: Path | None = None


def insist(world: World, what: str, action: Callable[[], object], kind: type[TdLoopError] = StorageError) -> int:
    """Do what has to be done, for as long as it takes, and loudly; return how many tries it took."""
    pause, tries = BREAK_S, 0
    while True:
        tries += 1
        try:
            action()
        except kind as e:
            world.voice.say(f"CANNOT {what} (try {tries}): {e}; trying again in {pause:g} s")
            world.clock.sleep(pause)
            pause = min(2 * pause, LONGEST_BREAK_S)
        else:
            return tries
