"""Rows in chunks: which to hand out next, and what becomes of those that were lost with their worker."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from td_loop.errors import TdLoopError
from td_loop.games.base import BoolArray, Budget
from td_loop.prepare.compute import Chunk
from td_loop.prepare.config import WorkerPolicy
from td_loop.prepare.rows import Rows

REPLAY_CHUNK = 256
"""Most replay rows of a chunk: some tens of milliseconds, far above the cost of handing it out."""

AGENT_CHUNK = 32
AGENT_CHUNK_S = 1.0
AGENT_CHUNK_EVALS = 20_000
"""Most agent rows of a chunk, and the budget that they may add up to: a lost chunk must cost little."""

SHARES = 4
"""A chunk takes at most 1 / (SHARES * workers) of what is left, so chunks shrink to single rows at the end."""


class ChunkQueue:
    """Hands out agent rows first: the quick replay rows then fill the gaps while the last searches end."""

    def __init__(self, rows: Rows, budget: Budget, workers: int, policy: WorkerPolicy) -> None:
        self._rows, self._budget, self._workers, self._policy = rows, budget, workers, policy
        self._agent, self._replay = np.flatnonzero(rows.agent), np.flatnonzero(~rows.agent)
        # Neighbours go together: what a game computes once a board (and the disk once a page) is then at hand.
        self._replay = self._replay[np.lexsort((rows.turn[self._replay], rows.game[self._replay]))]
        self._again: deque[Chunk] = deque()
        self._most_agent = max(1, min(AGENT_CHUNK, self._rows_of_budget()))
        self._searched = self._lost = 0
        self.gave_up = False
        """True once so many searches were lost that the rest is not searched."""

    def skip(self, done: BoolArray, searched: BoolArray) -> None:
        """Leave out what an earlier prepare did, before the first row is taken.

        Args:
            done: bool[n], rows that are done.
            searched: bool[n], of the agent rows among them those that were searched, not given up.
        """
        self._agent, self._replay = self._agent[~done[self._agent]], self._replay[~done[self._replay]]
        agent = self._rows.agent & done
        self._searched, self._lost = int((agent & searched).sum()), int((agent & ~searched).sum())
        self._judge()

    def take(self) -> Chunk | None:
        """The next chunk, if there is one now."""
        if self._again:
            chunk = self._again.popleft()
            return chunk._replace(search=chunk.search and not self.gave_up)
        if len(self._agent):
            self._agent, part = self._cut(self._agent, self._most_agent)
        elif len(self._replay):
            self._replay, part = self._cut(self._replay, REPLAY_CHUNK)
        else:
            return None
        return self._chunk(part, search=not self.gave_up, attempt=0)

    def limit_s(self, chunk: Chunk) -> float:
        """Seconds after which the worker that has `chunk` counts as stuck."""
        search = 0.0
        if chunk.search and chunk.rows.agent[0]:
            b = self._budget
            search = 10.0 * b.seconds if b.evals is None and b.seconds else 1e-3 * (b.evals or 0)
        return self._policy.hang_grace_s + len(chunk.row) * (1.0 + search)

    def done(self, chunk: Chunk) -> None:
        """`chunk` came back."""
        if chunk.search and chunk.rows.agent[0]:
            self._searched += len(chunk.row)

    def lost(self, chunk: Chunk, why: str, name: str) -> int:
        """`chunk` was lost: queue its rows again, each on its own, so that one bad row takes no others along.

        Args:
            chunk: what the worker had.
            why: what happened to it.
            name: name of the game that the chunk's first row is of.

        Returns:
            How many rows will be tried again.

        Raises:
            TdLoopError: a row was lost as often as the policy allows.
        """
        attempt = chunk.attempt + 1
        if attempt >= self._policy.attempts:
            row, rows = int(chunk.row[0]), chunk.rows
            raise TdLoopError(
                f"row {row} ({name}, turn {rows.turn[0]}, seat {rows.seat[0]}) failed {attempt} times, "
                f"the last time: {why.rstrip()}\nLeave that replay out, or report this as a bug of the game"
            )
        search = chunk.search and attempt < self._policy.search_attempts
        if chunk.search and not search and chunk.rows.agent[0]:
            self._lost += len(chunk.row)
            self._judge()
        self._again.extend(self._chunk(row[None], search=search, attempt=attempt) for row in chunk.row)
        return len(chunk.row)

    def _judge(self) -> None:
        self.gave_up = self._lost >= self._policy.give_up_after and self._lost > self._searched

    def _chunk(self, part: npt.NDArray[np.int64], *, search: bool, attempt: int) -> Chunk:
        return Chunk(part, self._rows.part(part), search, attempt)

    def _cut(self, left: npt.NDArray[np.int64], most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        size = max(1, min(most, len(left) // (SHARES * self._workers)))
        return left[size:], left[:size]

    def _rows_of_budget(self) -> int:
        if self._budget.evals is not None:
            return AGENT_CHUNK_EVALS // self._budget.evals
        assert self._budget.seconds is not None
        return int(min(AGENT_CHUNK_S / self._budget.seconds, AGENT_CHUNK))
