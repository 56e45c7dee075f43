"""Which subset answers a request: a pure function of the split, the router, and what is known of the episode."""

from __future__ import annotations

from dataclasses import dataclass

from td_loop.deploy.names import Subset
from td_loop.deploy.routing.assign import subset_of
from td_loop.deploy.server.episodes import Known
from td_loop.deploy.traffic import TrafficState


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a request goes.

    Attributes:
        subset: who answers.
        begun: the episode is new.
        switched: an earlier decision of it was the other subset's.
    """

    subset: Subset
    begun: bool
    switched: bool


def assign(
    episode: str, traffic: TrafficState, salt: str, known: Known | None, told: Subset | None, has_canary: bool
) -> Assigned:
    """Where a request of an episode goes.

    A weight of 0 sends everything to the stable policy at once. Else an episode that has begun stays where it is;
    but one that a canary began which is no longer there goes to the stable policy, not to its successor.

    Args:
        episode: its id.
        traffic: the split.
        salt: of the release; see `subset_of`.
        known: what is known of the episode; None if it is new.
        told: what a router in front of the server says (a header); its word goes.
        has_canary: whether there is a canary that can answer.
    """
    if told is not None:
        subset = told
    elif traffic.canary_weight_bp == 0:
        subset = "stable"
    elif known is None:
        subset = subset_of(episode, salt, traffic.canary_weight_bp)
    elif known.subset == "canary" and known.revision != traffic.revision:
        subset = "stable"
    else:
        subset = known.subset
    if not has_canary:
        subset = "stable"
    switched = known is not None and (known.switched or known.subset != subset)
    return Assigned(subset, known is None, switched)
