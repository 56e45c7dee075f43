"""What every back end promises whoever moves traffic."""

from __future__ import annotations

import math
from typing import Protocol

from td_loop.errors import TdLoopError, UsageError


class RouterError(TdLoopError):
    """The split is not known to be what was asked for: nobody may act as if it were."""

    exit_code = 1


class Router(Protocol):
    """The share of new episodes that the canary gets, in percent.

    0 is exact and immediate: once `set(0)` has returned, no request that begins goes to the canary, whatever its
    episode had before. At any other weight an episode that has begun stays where it is as far as the back end can
    tell (docs/deploy_routers.md says how far that is). No call keeps state of its own: somebody else may
    change the split at any time, and `read` shows it.
    """

    @property
    def step(self) -> float:
        """The finest change that the back end knows, in percent; `whole_steps` says what others come to."""
        ...

    @property
    def apart(self) -> bool:
        """Whether the two subsets are servers of their own, and not one that holds both policies. Then only a new
        deployment makes the canary's policy the stable one; until that, being promoted is having all traffic.

        Raises:
            RouterError: the back end does not tell.
        """
        ...

    def read(self) -> float:
        """The canary's percentage as the back end has it now.

        Raises:
            RouterError: it does not answer, or its split is none that was made here.
        """
        ...

    def set(self, canary: float) -> float:
        """Give the canary this percentage, and return it as read back (`whole_steps` of what was asked).

        Raises:
            UsageError: no number in 0..100.
            RouterError: the back end refused, or what is read back is something else; what holds is then unknown.
        """
        ...

    def close(self) -> None:
        """Give back connections. The split stays as it is."""
        ...


def whole_steps(canary: float, step: float) -> float:
    """What a back end that knows only multiples of `step` makes of a percentage.

    Rounded down, so that a canary never gets more than it was meant to; but never to 0, which would be a rollback
    that nobody asked for: what is above 0 is at least one step. Below 100 the stable policy so keeps a step, too.

    Raises:
        UsageError: no number in 0..100.
    """
    if not 0.0 <= canary <= 100.0:  # NaN is not either
        raise UsageError(f"a canary's share is a percentage in 0..100, not {canary!r}")
    if canary == 0.0:
        return 0.0
    steps = math.floor(canary / step + 1e-9)  # 0.29 / 0.01 is 28.999999999999996
    return round(max(1, steps) * step, 6)
