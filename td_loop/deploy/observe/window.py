"""Counts over the most recent events, in blocks: bounded memory, and a sum that is there at any time."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

BLOCKS = 8


class Window:
    """Counts of the last `events` events, give or take an eighth. The caller sees to it that one thread adds."""

    def __init__(self, size: int, events: int) -> None:
        """`size` counts; `events` >= BLOCKS that are remembered."""
        self._block = max(1, events // BLOCKS)
        self._blocks: deque[Counts] = deque([np.zeros(size, np.int64)], maxlen=BLOCKS)
        self._sum = np.zeros(size, np.int64)
        self._filled = 0

    @property
    def counts(self) -> Counts:
        """i64[size]: the sum over the window."""
        return self._sum.copy()

    def add(self, counts: Counts) -> None:
        """Add those of one more event. The oldest block may go now."""
        if self._filled == self._block:
            if len(self._blocks) == BLOCKS:
                self._sum -= self._blocks[0]
            self._blocks.append(np.zeros_like(self._sum))
            self._filled = 0
        self._filled += 1
        self._blocks[-1] += counts
        self._sum += counts
