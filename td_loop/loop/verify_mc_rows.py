"""The run's validation rows, as far as the driver knows them. A prepare of the user's own may keep others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import CacheError
from td_loop.loop.fault import Fault
from td_loop.loop.layout import MC_ROWS
from td_loop.npz import load_npz

REMAKE = "restore the file, or remove it: prepare makes the same rows again from the same replays"

_TURN_BITS = 11


@dataclass(frozen=True)
class McRows:
    """What `mc_rows.npz` says.

    Attributes:
        replay_set_hash: of the replays that it was made from, where it says.
        validation_games: their content ids.
    """

    replay_set_hash: str | None
    validation_games: frozenset[int]


def games_of(frame_id: npt.NDArray[Any]) -> frozenset[int]:
    """Content ids of the games of these frames: i64[B] -> ids."""
    return frozenset(np.unique(frame_id >> _TURN_BITS).tolist())


def read_mc_rows(run: Path, replay_set_hash: str | None) -> tuple[McRows | None, list[Fault]]:
    """Read the whole file and check it against the replay set of the run's records.

    Returns:
        What it says (None: no file, one that cannot be read, or one of a program of the user's), and its faults.
    """
    path = run / MC_ROWS
    if not path.exists():
        return None, []
    try:
        arrays, meta = load_npz(path, CacheError)
    except CacheError as e:
        return None, [Fault(MC_ROWS, "I7", "cannot be read", str(e), "validation rows", REMAKE)]
    if meta.get("kind") != "mc_rows":
        return None, []
    try:
        held_out = arrays["is_validation"]
        games = games_of(arrays["frame_id"][held_out])
        both = games & games_of(arrays["frame_id"][~held_out])
    except (KeyError, TypeError, IndexError) as e:
        found = f"{type(e).__name__} {e}"
        return None, [Fault(MC_ROWS, "I7", "is malformed", found, "frame_id and is_validation", REMAKE)]
    faults = []
    if both:
        found = f"{len(both)} of them, game {min(both):#x} for one"
        faults.append(Fault(MC_ROWS, "I7", "games in both train and validation", found, "none", REMAKE))
    made_from = meta.get("replay_set_hash")
    if None not in (made_from, replay_set_hash) and made_from != replay_set_hash:
        what = "rows of other replays than the iterations learned from"
        faults.append(Fault(MC_ROWS, "I7", what, str(made_from), str(replay_set_hash), REMAKE))
    return McRows(made_from, games), faults
