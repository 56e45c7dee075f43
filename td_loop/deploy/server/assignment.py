"""Which subset answers a request: a pure function of the split, the router, and what is known of the episode."""

from __future__ import annotations

from dataclasses import dataclass

from td_loop.deploy.names import Subset
from td_loop.deploy.routing.assign import subset_of
from td_loop.deploy.server.episodes import Known


@dataclass(frozen=True, slots=True)
class Choice:
    """What there is to choose from.

    Attributes:
        weight_bp: new episodes that go to the canary, in hundredths of a percent.
        salt: of the release; see `subset_of`.
        stable, canary: tags of the policies; None: there is no canary that can answer.
    """

    weight_bp: int
    salt: str
    stable: int
    canary: int | None


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a request goes.

    Attributes:
        subset: who answers.
        begun: the episode is new.
        switched: an earlier decision of it was another policy's.
    """

    subset: Subset
    begun: bool
    switched: bool


def assign(episode: str, choice: Choice, known: Known | None, told: Subset | None) -> Assigned:
    """Where a request of an episode goes.

    A weight of 0 sends everything to the stable policy at once. Else an episode that has begun stays where it is;
    but one that a canary began which is no longer there goes to the stable policy, not to its successor.

    Args:
        episode: its id.
        choice: see there.
        known: what is known of the episode; None if it is new.
        told: what a router in front of the server says (a header); its word goes.
    """
    subset: Subset
    if choice.canary is None:
        subset = "stable"
    elif told is not None:
        subset = told
    elif choice.weight_bp == 0:
        subset = "stable"
    elif known is None:
        subset = subset_of(episode, choice.salt, choice.weight_bp)
    else:
        subset = "canary" if known.subset == "canary" and known.policy == choice.canary else "stable"
    policy = choice.canary if subset == "canary" else choice.stable
    switched = known is not None and (known.switched or known.policy != policy)
    return Assigned(subset, known is None, switched)
