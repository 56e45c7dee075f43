"""Which checkpoint of a run to deploy: the strongest by games, and those that games do not tell from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from td_loop.arena.contestants import Kind
from td_loop.arena.game import PlayedGame
from td_loop.arena.ratings import CONFIDENCE, FloatArray, rate
from td_loop.arena.rounds import Round, whole_rounds
from td_loop.errors import DataError


@dataclass(frozen=True)
class Checkpoint:
    """Weights of a run that could be deployed.

    Attributes:
        label: `iter3`, or `bootstrap`.
        path: relative to the run directory.
        sha256: of the file.
        val_mc_nll: final loss on the validation rows; None: not known.
    """

    label: str
    path: str
    sha256: str
    val_mc_nll: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that was played.

    Attributes:
        checkpoint: which.
        elo: by seats: Elo above the mean of the candidates.
        mean: of those.
        behind: Elo behind the strongest.
        low: lower end of the 95 % interval of `behind`.
        high: upper end.
        tied: 0 is in that interval: these games do not tell it from the strongest.
    """

    checkpoint: Checkpoint
    elo: dict[int, float]
    mean: float
    behind: float
    low: float
    high: float
    tied: bool


@dataclass(frozen=True)
class Pick:
    """What to deploy, and why.

    Attributes:
        candidates: strongest first: the first one is the pick.
        unplayed: labels of the checkpoints that are not in every tournament that was looked at.
        rounds: by seats, those that it rests on.
        budget: what the search could spend on a move in them.
    """

    candidates: tuple[Candidate, ...]
    unplayed: tuple[str, ...]
    rounds: dict[int, int]
    budget: str

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def pick(checkpoints: Sequence[Checkpoint], games: Mapping[int, Sequence[PlayedGame]]) -> Pick:
    """Choose by the mean of the ratings with 2 and 4 seats, where both were played.

    Args:
        checkpoints: of the run.
        games: by seats.

    Raises:
        DataError: no checkpoint was played.
        UsageError: choix is not installed.
    """
    rounds = {seats: whole_rounds(found) for seats, found in games.items()}
    rounds = {seats: found for seats, found in rounds.items() if found}
    budget = _budget(checkpoints, rounds)
    ids = [f"{Kind.WEIGHTS}:{c.sha256}@{budget}" for c in checkpoints]
    played = [{who for r in found for who in r.table} for found in rounds.values()]
    there = [i for i, identity in enumerate(ids) if all(identity in who for who in played)]
    if not there:
        raise DataError("no checkpoint of the run was played in every tournament that was looked at")
    elo, samples = {}, []
    for seats, found in rounds.items():
        centre, around = _ratings(found, [ids[i] for i in there])
        elo[seats] = centre
        samples.append(around)
    mean, spread = np.mean(list(elo.values()), axis=0), np.mean(samples, axis=0)
    best = int(np.argmax(mean))
    candidates = []
    for k in np.argsort(-mean, kind="stable").tolist():
        behind = spread[:, best] - spread[:, k]
        low, high = np.quantile(behind, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
        candidates.append(
            Candidate(
                checkpoints[there[k]],
                elo={seats: float(e[k]) for seats, e in elo.items()},
                mean=float(mean[k]),
                behind=float(mean[best] - mean[k]),
                low=low,
                high=high,
                tied=k != best and low <= 0,
            )
        )
    unplayed = tuple(c.label for i, c in enumerate(checkpoints) if i not in there)
    return Pick(tuple(candidates), unplayed, {s: len(found) for s, found in rounds.items()}, budget)


def _budget(checkpoints: Sequence[Checkpoint], rounds: Mapping[int, Sequence[Round]]) -> str:
    """The budget with which checkpoints were played most."""
    ours = {f"{Kind.WEIGHTS}:{c.sha256}" for c in checkpoints}
    count: Counter[str] = Counter()
    for found in rounds.values():
        for r in found:
            for who in r.table:
                weights, _, budget = who.partition("@")
                if weights in ours:
                    count[budget] += 1
    if not count:
        raise DataError("no checkpoint of the run was played yet")
    return count.most_common(1)[0][0]


def _ratings(rounds: Sequence[Round], ids: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Elo of `ids` above their mean, f64[N], and of resamples, f64[B, N]; all contestants are rated together."""
    others = sorted({who for r in rounds for who in r.table} - set(ids))
    ratings = rate(rounds, [*ids, *others])
    n = len(ids)
    elo, samples = ratings.elo[:n], ratings.samples[:, :n]
    return elo - elo.mean(), samples - samples.mean(axis=1, keepdims=True)
