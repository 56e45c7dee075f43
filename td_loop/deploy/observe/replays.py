"""Identical states, identical answers? A policy that answers one in two ways has its exploration noise on."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import numpy as np

from td_loop.games.served import Inputs

STATES = 20_000
"""States that are remembered, the oldest go first: about 3 MB."""


def key_of(inputs: Inputs) -> int:
    """A number that equal inputs share within this process (64 bits), and different ones as good as never."""
    return hash(b"".join(np.ascontiguousarray(x).tobytes() for x in inputs.values()))


class Replays:
    """The answers of one policy, by state. Its counters only rise, and add up over processes."""

    def __init__(self, states: int = STATES) -> None:
        self._states = states
        self._answers: dict[int, int] = {}
        self._lock = threading.Lock()
        self.replayed = 0
        """States that were asked for again."""
        self.differing = 0
        """Those of them that were answered in another way than the time before."""

    def add(self, key: int, answer: Hashable) -> bool:
        """Note the answer to a state; False if it is another one than the time before."""
        now = hash(answer)
        with self._lock:
            before = self._answers.pop(key, None)
            self._answers[key] = now
            if before is None:
                if len(self._answers) > self._states:
                    del self._answers[next(iter(self._answers))]
                return True
            self.replayed += 1
            self.differing += before != now
            return before == now
