"""Which (frame, seat) rows an iteration is made of, and which of them are searched. `n` rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.errors import ReplayError
from td_loop.games.base import TURN_BITS, Game, GameInfo, ReplaySet
from td_loop.rng import Stream, stream


class Rows(NamedTuple):
    """The rows of one iteration, in their final order. Row r draws from the stream (seed, ROW, r)."""

    game: npt.NDArray[np.int32]  # [n] index in the replay set
    turn: npt.NDArray[np.int16]  # [n] 0 .. T-2
    seat: npt.NDArray[np.int8]  # [n] the focal seat, alive at that frame
    agent: npt.NDArray[np.bool_]  # [n] Branch A

    def part(self, which: npt.NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        return Rows(self.game[which], self.turn[which], self.seat[which], self.agent[which])


class Spans(NamedTuple):
    """Every (frame, seat) that can be a row, as runs of turns 0 .. turns-1 of a seat of a game."""

    game: npt.NDArray[np.int32]
    seat: npt.NDArray[np.int8]
    turns: npt.NDArray[np.int64]

    @property
    def size(self) -> int:
        """Number of distinct (frame, seat) pairs."""
        return int(self.turns.sum())


def training_spans(game: Game[Any, Any], replays: ReplaySet[Any, Any], validation: npt.NDArray[np.bool_]) -> Spans:
    """All pairs of a training game's frame (never its last) and a seat that is alive there.

    A seat that is out stays out, so the turn that ends its span is found by bisection: ten frames are read where
    there are five hundred. Games are taken in the order of their content, not of the folder.

    Raises:
        ReplayError: there is no such pair.
    """
    spans: list[tuple[int, int, int]] = []
    for g in sorted(np.flatnonzero(~validation).tolist(), key=lambda g: replays.games[g].content_id):
        info, last = replays.games[g], replays.games[g].n_frames - 1
        alive = [game.alive(replays.state(g, last - 1))] if last > 0 else []
        for seat in range(info.n_players if alive else 0):
            turns = last
            if not alive[0][seat]:
                turns = bisect_left(range(last), True, key=lambda t: not game.alive(replays.state(g, t))[seat])
            if turns > 0:
                spans.append((g, seat, turns))
    if not spans:
        raise ReplayError(
            f"{replays.path}: none of its {len(replays.games)} games leaves a frame to learn from "
            f"({int(validation.sum())} are held out for validation); add games of two or more frames"
        )
    table = np.array(spans, np.int64)
    return Spans(table[:, 0].astype(np.int32), table[:, 1].astype(np.int8), table[:, 2])


def sample_rows(spans: Spans, n: int, k: float, seed: int) -> Rows:
    """Draw `n` rows without replacement, and toss a coin of probability `k` for each.

    When `n` exceeds the number M of distinct pairs, every pair comes `n // M` times and the rest is drawn without
    replacement, so no pair is used more than one time more often than another. Copies of a pair are rows of their
    own, with their own prefix, outcome flag and search. The coins come last: every k draws the same pairs.
    """
    rng = stream(seed, Stream.SAMPLE)
    whole, rest = divmod(n, spans.size)
    parts = [rng.permutation(spans.size) for _ in range(whole)]
    pairs = np.concatenate([*parts, rng.choice(spans.size, rest, replace=False)])
    ends = np.cumsum(spans.turns)
    span = np.searchsorted(ends, pairs, side="right")
    turn = pairs - (ends - spans.turns)[span]
    return Rows(spans.game[span], turn.astype(np.int16), spans.seat[span], rng.random(n) < k)


def frame_ids(games: Sequence[GameInfo], game: npt.NDArray[np.int32], turn: npt.NDArray[np.int16]) -> Any:
    """i64[n]: `GameInfo.frame_id` of many frames."""
    first = np.array([g.frame_id(0) for g in games], np.int64)
    assert not turn.size or turn.max() < 1 << TURN_BITS, turn.max()
    return first[game] | turn.astype(np.int64)
