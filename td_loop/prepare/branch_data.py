"""branch_data.npz: the rows of an iteration, replay branch and agent branch apart. `n_b` rows of branch b."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.games.base import GameInfo
from td_loop.npz import save_npz
from td_loop.prepare.compute import Computed
from td_loop.prepare.rows import Rows, frame_ids

FORMAT_VERSION = 1

_ROW_BYTES = 64
"""Of a row besides its results: where it is from, its frame id, and the index arrays that go with them."""


class BranchData:
    """Both branches, filled chunk by chunk. All memory is taken at the start: too little must show at once.

    Rows of a branch keep the order of `Rows`, whatever the order in which chunks arrive.
    """

    def __init__(self, rows: Rows, n_features: int) -> None:
        self.rows = rows
        self.n_a = int(rows.agent.sum())
        self.n_r = len(rows.agent) - self.n_a
        self.place = np.where(rows.agent, np.cumsum(rows.agent), np.cumsum(~rows.agent)) - 1
        self.branches = {"r": Computed.empty(self.n_r, n_features), "a": Computed.empty(self.n_a, n_features)}

    @staticmethod
    def bytes_needed(n: int, n_features: int) -> int:
        """Memory that `n` rows take."""
        one: int = sum(getattr(Computed.empty(1, n_features), name).nbytes for name in Computed.ARRAYS)
        return n * (one + _ROW_BYTES)

    def fill(self, row: npt.NDArray[np.int64], computed: Computed) -> None:
        """Put the results of `row` (all of one branch) where they belong."""
        branch, at = self.branches["a" if self.rows.agent[row[0]] else "r"], self.place[row]
        for name in Computed.ARRAYS:
            getattr(branch, name)[at] = getattr(computed, name)

    def rows_sha256(self, games: Sequence[GameInfo]) -> str:
        """Which rows these are, in their order, as a hash."""
        columns = (self._frame_ids(games), self.rows.seat, self.rows.agent)
        return hashlib.sha256(b"".join(c.tobytes() for c in columns)).hexdigest()

    @property
    def fallback_rate(self) -> float:
        """Share of agent rows in which the replay's action stands in; 0 without agent rows."""
        return float(self.branches["a"].fallback.mean()) if self.n_a else 0.0

    def save(self, path: Path, games: Sequence[GameInfo], meta: dict[str, Any]) -> None:
        """Write the file, atomically.

        Raises:
            StorageError: the disk is full, read-only or failing.
        """
        ids = self._frame_ids(games)
        arrays: dict[str, npt.NDArray[Any]] = {}
        for b, branch in self.branches.items():
            mine = self.rows.agent if b == "a" else ~self.rows.agent
            arrays |= {
                f"branch_{b}_frame_id": ids[mine],
                f"branch_{b}_focal_seat": self.rows.seat[mine],
                f"branch_{b}_n_players": branch.n_players,
                f"branch_{b}_features": branch.features,
                f"branch_{b}_target": branch.target,
                f"alive_at_s_for_rows_{b}": branch.alive,
                f"branch_{b}_is_partial": branch.is_partial,
                f"branch_{b}_has_mc": branch.has_mc,
                f"branch_{b}_mc_target": branch.mc_target,
            }
        arrays["branch_a_engine_fallback"] = self.branches["a"].fallback
        rate = self.fallback_rate
        counts = {"n_r": self.n_r, "n_a": self.n_a, "engine_fallback_rate": rate}
        save_npz(path, arrays, {"kind": "branch_data", **meta, **counts})

    def _frame_ids(self, games: Sequence[GameInfo]) -> npt.NDArray[np.int64]:
        ids: npt.NDArray[np.int64] = frame_ids(games, self.rows.game, self.rows.turn)
        return ids
