"""What the controller needs of the server: which policies it has, and to load, promote or drop a canary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from td_loop.errors import TdLoopError


class ServingError(TdLoopError):
    """The server does not answer, or did not do what it was asked.

    Attributes:
        is_final: asking again will not help: it refuses the artefact itself.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True)
class Policies:
    """What a server serves.

    Attributes:
        stable: sha256 of the stable artefact.
        canary: sha256 of the canary; "" if there is none.
        shadow: whether the canary answers beside the stable policy, for nobody.
        settled: whether every process of the server serves these, and not what was before.
        behind_proxy: whether the server goes by what a router in front of it says.
    """

    stable: str
    canary: str = ""
    shadow: bool = False
    settled: bool = True
    behind_proxy: bool = False


class Serving(Protocol):
    """A server, or several behind one address. All calls may be repeated.

    Raises:
        ServingError: see there.
    """

    def policies(self) -> Policies:
        """What it serves now."""
        ...

    def load_canary(self, path: str, *, shadow: bool) -> None:
        """Serve this artefact as the canary; returns when it is warm."""
        ...

    def promote(self, sha256: str) -> None:
        """Make the canary, which must be this artefact, the stable policy; there is no canary then."""
        ...

    def unload_canary(self) -> None:
        """Have no canary."""
        ...
