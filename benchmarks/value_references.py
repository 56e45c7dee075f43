"""What a value function is measured against, and the rows on which: states of whole games. `B` rows, 4 seats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.calibration import Floats, fit_logit, softmax
from td_loop.games.orbit_wars.engine import scores
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.state import N_PLANETS, Position
from td_loop.kernels import cache_dir
from td_loop.prepare.gather import gather

BUCKETS = ((0, 20), (20, 40), (40, 60), (60, 80), (80, 9999))
"""Turns, first and one past the last."""
PROD_WORTH = 20.0
Rows = npt.NDArray[Any]


@dataclass(frozen=True)
class States:
    """Rows of whole games. B rows."""

    features: npt.NDArray[np.float32]  # [B, 4, F]
    part: Floats  # [B, 4] of all `ships + 20 * production`
    n_players: npt.NDArray[np.int8]  # [B]
    alive: npt.NDArray[np.bool_]  # [B, 4]
    outcome: Floats  # [B, 4]
    turn: npt.NDArray[np.int16]  # [B]
    game: npt.NDArray[np.int32]  # [B]
    held_out: npt.NDArray[np.bool_]  # [B]


def worth(pos: Position) -> Floats:
    """`ships + 20 * production` of every seat: f64[4]."""
    s = pos.state
    n = s.head[N_PLANETS]
    owned = s.p_owner[:n] >= 0
    made: Floats = np.bincount(s.p_owner[:n][owned], s.p_prod[:n][owned], minlength=4)
    return scores(pos) + PROD_WORTH * made


def read(source: Path | None, gamma: float) -> States:
    """All rows of a replay set; None is the bundled one."""
    store = GAME.open_replays(source, cache_dir())
    arrays, _ = gather(GAME, store, gamma)
    places = zip(arrays["game"], arrays["turn"], strict=True)
    w = np.array([worth(store.state(int(g), int(t))) for g, t in places])
    return States(
        arrays["features"],
        w / np.maximum(w.sum(axis=1, keepdims=True), 1),
        arrays["n_players"],
        arrays["alive"],
        arrays["outcome"].astype(np.float64),
        arrays["turn"],
        arrays["game"],
        arrays["is_validation"],
    )


def inside(s: States, turns: tuple[int, int]) -> Rows:
    """bool[B]: rows of those turns."""
    return (s.turn >= turns[0]) & (s.turn < turns[1])


# --- predictors: from rows to train on, to chances of other rows ----------------------------------------------


def constant(s: States) -> Floats:
    """The same chance for every seat alive."""
    even: Floats = s.alive / s.alive.sum(axis=1, keepdims=True)
    return even


def rule(s: States) -> Callable[[Rows], Callable[[Rows], Floats]]:
    """The part of all `ships + 20 * production`, with one weight for each number of seats and turn bucket."""
    x = s.part[:, :, None] * 5  # so that the ridge is small beside the weight
    groups = [(s.n_players == players) & inside(s, b) for players in np.unique(s.n_players) for b in BUCKETS]

    def train(rows: Rows) -> Callable[[Rows], Floats]:
        learned = []
        for group in groups:
            some = rows[group[rows]]
            learned.append(fit_logit(x[some], s.alive[some], s.outcome[some], 1e-3) if len(some) else np.zeros(1))

        def predict(wanted: Rows) -> Floats:
            weight = sum(group[wanted] * w[0] for group, w in zip(groups, learned, strict=True))
            return softmax(x[wanted, :, 0] * np.asarray(weight)[:, None], s.alive[wanted])

        return predict

    return train


def seat_inputs(s: States) -> npt.NDArray[np.float32]:
    """Per seat: its features, the mean of its living opponents', the number of players and of seats alive."""
    x = np.where(s.alive[:, :, None], s.features, np.float32(0))
    left = s.alive.sum(axis=1)
    opponents = (x.sum(axis=1, keepdims=True) - x) / np.maximum(left[:, None] - s.alive, 1)[:, :, None]
    counts = np.broadcast_to(np.column_stack([s.n_players, left])[:, None], (*s.alive.shape, 2))
    return np.concatenate((s.features, opponents, counts), axis=-1).astype(np.float32)


def boosted(s: States, on: States) -> Callable[[Rows], Callable[[Rows], Floats]]:
    """Gradient boosting that learns from rows of `s` and judges rows of `on`; normalised over the seats alive.

    Needs scikit-learn (the `bench` extra).
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, theirs = seat_inputs(s), seat_inputs(on)

    def train(rows: Rows) -> Callable[[Rows], Floats]:
        model = HistGradientBoostingClassifier(
            learning_rate=0.05,
            max_iter=150,
            max_leaf_nodes=15,
            min_samples_leaf=200,
            l2_regularization=1.0,
            early_stopping=False,
            random_state=0,
        )
        alive = s.alive[rows]
        model.fit(x[rows][alive], s.outcome[rows][alive] > 0.5)

        def predict(wanted: Rows) -> Floats:
            left, p = on.alive[wanted], np.zeros((len(wanted), 4))
            p[left] = model.predict_proba(theirs[wanted][left])[:, 1]
            return p / p.sum(axis=1, keepdims=True)

        return predict

    return train
