"""Brings what each process has noticed of its policies into files that all of them read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from td_loop.deploy.names import SUBSETS, Subset
from td_loop.deploy.observe.drift import Bins
from td_loop.deploy.observe.engine import EngineMeter
from td_loop.deploy.observe.entropy import OPTIONS, marginal_entropy
from td_loop.deploy.server.counters import CELLS, ENGINE, Counters
from td_loop.deploy.server.mapped import HEAD_BYTES, Mapped
from td_loop.deploy.server.watch import Watch

FILE = "windows"
MOST_COUNTS = 8192
"""Numbers of a policy's inputs that are shared; those of one with more are of each process alone."""

_ROW = 1 + OPTIONS + MOST_COUNTS  # the policy's hash, its choices, its inputs
Counts = npt.NDArray[np.int64]


class Watched:
    """The windows of one server, as one of its processes sees them."""

    def __init__(
        self, folder: Path, counters: Counters, processes: int, process: int, *, fresh: bool = False
    ) -> None:
        """Open the windows; `fresh`: empty ones, as the server makes them when it starts."""
        what = f"td_loop windows 1: {processes} processes of {_ROW} numbers\n"
        self._file = Mapped(folder / FILE, what, processes * len(SUBSETS) * _ROW * 8, fresh=fresh)
        self._rows: Counts = np.frombuffer(self._file.buffer, np.int64, offset=HEAD_BYTES)
        self._rows = self._rows.reshape(processes, len(SUBSETS), _ROW)
        self._counters, self._process = counters, process
        self._told: dict[Watch, tuple[float, int, int, int]] = {}
        self._meter = EngineMeter()
        self._before = self._base()

    def close(self) -> None:
        """Give the file back."""
        del self._rows
        self._file.close()

    def flush(self, policies: Mapping[Subset, tuple[str, Watch]]) -> None:
        """Publish what was noticed since the last time.

        Args:
            policies: the hash and the watch of each subset's policy.
        """
        told = {}
        for k, subset in enumerate(SUBSETS):
            row = self._rows[self._process, k]
            if subset not in policies:
                row[:] = 0
                continue
            sha, watch = policies[subset]
            told[watch] = self._count(subset, watch, self._told.get(watch, (0.0, 0, 0, 0)))
            inputs = watch.drift.counts
            row[0] = _tag(sha)
            row[1 : 1 + OPTIONS] = watch.choices.counts
            row[1 + OPTIONS : 1 + OPTIONS + len(inputs)] = inputs[:MOST_COUNTS]
        self._told = told

    def _count(
        self, subset: Subset, watch: Watch, before: tuple[float, int, int, int]
    ) -> tuple[float, int, int, int]:
        cells, replays = CELLS[subset], watch.replays
        now = (watch.entropy_sum, watch.entropy_count, replays.replayed, replays.differing)
        for cell, x, then in zip(
            (cells.entropy_sum, cells.entropy_count, cells.replayed, cells.differing), now, before, strict=True
        ):
            self._counters.add(cell, x - then)
        return now

    def drift(self, subset: Subset, sha: str, bins: Bins) -> dict[str, float]:
        """PSI of each feature of a subset's policy, over what all processes have seen."""
        if bins.size > MOST_COUNTS:
            return {}
        where = slice(1 + OPTIONS, 1 + OPTIONS + bins.size)
        return bins.psi(sum((row[where] for row in self._of(subset, sha)), _none(bins.size)))

    def choice_entropy(self, subset: Subset, sha: str) -> float:
        """Entropy in nats of what a subset's policy chose, in all processes; NaN when nothing was."""
        counts = sum((row[1 : 1 + OPTIONS] for row in self._of(subset, sha)), _none(OPTIONS))
        return marginal_entropy(counts)

    def _of(self, subset: Subset, sha: str) -> Iterator[Counts]:
        """The rows of all processes that are of this policy."""
        for row in self._rows[:, SUBSETS.index(subset)]:
            if row[0] == _tag(sha):
                yield row

    def measure(self) -> None:
        """Publish what this process uses; some hundred microseconds, so once a second."""
        found = self._meter.read()
        now = (found.cpu_s, found.voluntary, found.involuntary, found.run_queue_s, found.throttled_s)
        cells = (ENGINE.cpu, ENGINE.voluntary, ENGINE.involuntary, ENGINE.run_queue, ENGINE.throttled)
        for cell, x, before in zip(cells, now, self._before, strict=True):
            # All processes see the same throttling, so one of them tells of it. What is not known stays as it is.
            if x is not None and (cell != ENGINE.throttled or self._process == 0):
                self._counters.set(cell, before + x)

    def _base(self) -> list[float]:
        """What an earlier process in this place had used, and died."""
        cells = (ENGINE.cpu, ENGINE.voluntary, ENGINE.involuntary, ENGINE.run_queue, ENGINE.throttled)
        return [self._counters.own(cell) for cell in cells]


def _none(size: int) -> Counts:
    return np.zeros(size, np.int64)


def _tag(sha: str) -> int:
    """63 bits of a hash, never 0."""
    return int(sha[:15], 16) | 1
