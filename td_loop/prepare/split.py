"""Which games validate: whole games, drawn once for a replay set and never again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from td_loop.games.base import GameInfo
from td_loop.rng import Stream, stream

VAL_FRAC = 0.2
"""Share of the games with a known outcome that are held out, for each number of seats."""


def validation_games(games: Sequence[GameInfo], replay_set_hash: str) -> npt.NDArray[np.bool_]:
    """Games that are held out: bool[n_games].

    About VAL_FRAC of the games with a known outcome, for each number of seats apart; at least one where there are
    two. A function of the set's content alone: neither the order of games nor the seed of the run plays a part, so
    `val_mc_nll` means the same in every iteration. Copies of one game fall on the same side.
    """
    rng = stream(int(replay_set_hash[:16], 16), Stream.SPLIT)
    held_out: set[str] = set()
    for players in sorted({g.n_players for g in games}):
        ids = sorted({g.content_id for g in games if g.n_players == players and g.outcome is not None})
        count = max(1, round(VAL_FRAC * len(ids))) if len(ids) >= 2 else 0
        held_out.update(ids[i] for i in rng.permutation(len(ids))[:count])
    return np.array([g.content_id in held_out for g in games], bool)
