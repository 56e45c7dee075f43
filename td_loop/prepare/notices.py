"""What prepare says on standard error about things that did not stop it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from td_loop.games.base import ReplaySet
from td_loop.prepare.compute import Chunk, Fault


def say(text: str) -> None:
    """One notice."""
    sys.stderr.write(f"prepare: {text}\n")
    sys.stderr.flush()


def difference(was: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """How the provenance of a file differs from the one that is wanted, in words; "" when it does not."""
    words = {"replay_set_hash": "other replays", "feature_names": "other features", "rows_sha256": "other rows"}
    return ", ".join(
        words.get(key, f"{key} {_short(was.get(key))}, now it is {_short(value)}")
        for key, value in wanted.items()
        if was.get(key) != value
    )


def _short(value: Any) -> str:
    """A value in a message; of a hash its beginning."""
    is_hash = isinstance(value, str) and len(value) == 64
    return f"{value[:12]}..." if is_hash else repr(value)


def warn_about(replays: ReplaySet[Any, Any]) -> None:
    """Warn of a replay set whose outcomes teach nothing: always the same seat wins, or none is known."""
    known = [g for g in replays.games if g.outcome is not None]
    if not known:
        say(f"warning: {replays.path}: no game has a known outcome; there will be no MC targets")
    for players in sorted({g.n_players for g in known}):
        outcomes = [g.outcome for g in known if g.n_players == players]
        winners = np.flatnonzero(np.any(np.array(outcomes) > 0, axis=0))
        if len(winners) == 1:
            say(
                f"warning: {replays.path}: seat {winners[0]} wins all {len(outcomes)} games of {players} seats: "
                f"a value function learns the seat from them, not the state; add games that others won"
            )


class FaultLog:
    """Shows each kind of fault once, when it first happens, and counts the rest."""

    def __init__(self) -> None:
        self._searches = Counter[str]()
        self._lost = Counter[str]()
        self._shown: set[str] = set()

    def search(self, faults: dict[str, Fault]) -> None:
        """Searches of a chunk that gave no decision."""
        for kind, fault in faults.items():
            if kind not in self._searches:
                say(f"a search gave no decision; the replay's action stands in (shown once):\n{fault.text}")
            self._searches[kind] += fault.count

    def compiled(self, names: list[str]) -> None:
        """Kernels that a worker had to compile: every worker does so again, within the time of its rows."""
        new = sorted(set(names) - self._shown)
        if new:
            self._shown.update(new)
            say(
                f"warning: workers compile kernels that the game's compile() left out (or the kernel cache "
                f"cannot be written): {', '.join(new)}"
            )

    def lost(self, chunk: Chunk, why: str, *, gave_up: bool) -> None:
        """A chunk that was lost and is tried again."""
        kind = why.rstrip().rpartition("\n")[2]
        if kind not in self._lost:
            say(f"{len(chunk.row)} rows were lost and are tried again (shown once a kind): {why.rstrip()}")
        self._lost[kind] += len(chunk.row)
        if gave_up and "gave up" not in self._shown:
            self._shown.add("gave up")
            say("WARNING: most searches kill or block their worker; the other agent rows take the replay's action")

    def summary(self, n_agent: int) -> None:
        """The last word, once all rows are done."""
        for kind, count in self._searches.items():
            say(f"{count} of {n_agent} searches gave no decision: {kind}")

    @property
    def most_frequent(self) -> str:
        """The cause of most of the faults, in words; "" when there was none."""
        causes = (self._searches + self._lost).most_common(1)
        return causes[0][0] if causes else ""
