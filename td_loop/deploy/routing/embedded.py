"""The split that the server itself keeps: a word in a mapped file, read by every server process at each request.

A server draws a new episode by `assign.subset_of`, and knows a begun one by its last decision. At a weight of 0 it
gives all of them to stable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from td_loop.deploy.names import FULL_BP
from td_loop.deploy.routing.contract import RouterError, whole_steps
from td_loop.deploy.traffic import Traffic
from td_loop.errors import DataError, RunInUse, StorageError


class EmbeddedRouter:
    """The split of the servers that work in a folder. They need not run: one that starts later goes by it, too."""

    step = 0.01
    apart = False

    def __init__(self, folder: Path) -> None:
        """Open the folder's split; a new one gives the canary nothing.

        Raises:
            RouterError: the folder holds something else, or cannot be written.
        """
        with _errors():
            self._traffic = Traffic.open(folder)

    def read(self) -> float:
        """See `Router.read`."""
        return self._traffic.read().percent

    def set(self, canary: float) -> float:
        """See `Router.set`. It holds from the next request of every server process on."""
        wanted = whole_steps(canary, self.step)
        with _errors():
            got = self._traffic.set(round(wanted * FULL_BP / 100)).percent
        if got != wanted:
            raise RouterError(
                f"the servers were to give the canary {wanted:g} %, and give {got:g} % now: somebody else sets it"
            )
        return got

    def close(self) -> None:
        """See `Router.close`."""
        self._traffic.close()


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (DataError, RunInUse, StorageError) as e:
        raise RouterError(f"the split of the servers cannot be changed: {e}") from e
