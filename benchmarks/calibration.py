"""How far chances may be believed: log loss, reliability tables, and intervals in which the game is the unit.

Rows of one game share its outcome, so they are not independent: 40 rows of a game say little more than one. Every
interval here counts games. `B` rows, 4 seats; `N` (row, seat) pairs; `D` inputs of a seat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

LEAST = 1e-12
Z95 = 1.959964
RESAMPLES = 2000


def log_loss(p: Array, target: Array) -> Floats:
    """Cross-entropy of every row, nats: f64[B], from chances and outcomes [B, 4]."""
    loss: Floats = -(target * np.log(np.maximum(p, LEAST))).sum(axis=1)
    return loss


def wilson(rate: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of a rate seen in `n` independent tries; `n` may be a fraction, and is above 0."""
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def effective_games(game: Array) -> float:
    """How many independent tries the rows of these games are worth, if every game counts once.

    Kish's `(sum m)^2 / sum m^2` over the rows m of each game: the number of games where all have equally many,
    fewer where some have most of the rows. It takes rows of one game for copies of each other, which is the
    cautious end. At least one row.
    """
    m = np.unique(game, return_counts=True)[1].astype(np.float64)
    return float(m.sum() ** 2 / (m**2).sum())


class Bin(NamedTuple):
    """One line of a reliability table."""

    low: float  # chances from here on
    high: float  # up to here; the last bin takes in its upper end
    mean: float  # mean chance
    won: float  # how often it came true
    n: int  # (row, seat) pairs
    games: int
    interval: tuple[float, float]  # of `won`, 95 %


def reliability(p: Array, won: Array, game: Array, n_bins: int = 10) -> list[Bin]:
    """Chances against what happened, in bins of equal width; empty bins are left out.

    Args:
        p: f64[N] chances, 0..1.
        won: f64[N] outcomes, 0..1.
        game: i64[N] game of each.
        n_bins: number of bins.
    """
    at = np.minimum((p * n_bins).astype(int), n_bins - 1)
    table = []
    for b in range(n_bins):
        inside = at == b
        if inside.any():
            rate, games = float(won[inside].mean()), game[inside]
            table.append(
                Bin(
                    b / n_bins,
                    (b + 1) / n_bins,
                    float(p[inside].mean()),
                    rate,
                    int(inside.sum()),
                    len(np.unique(games)),
                    wilson(rate, effective_games(games)),
                )
            )
    return table


def calibration_error(table: list[Bin]) -> float:
    """Mean distance of chance and frequency over the bins, weighted by their size."""
    return sum(b.n * abs(b.mean - b.won) for b in table) / sum(b.n for b in table)


def interval_of_mean(values: Array, game: Array, seed: int = 0) -> tuple[float, float]:
    """95 % of the mean over rows when games are drawn anew with replacement.

    Args:
        values: f64[B], one number a row; at least one row.
        game: i64[B] game of each row.
        seed: of the resampling.
    """
    _, at = np.unique(game, return_inverse=True)
    total, rows = np.bincount(at, values), np.bincount(at)
    n = len(rows)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    low, high = np.percentile(drawn @ total / (drawn @ rows), [2.5, 97.5])
    return float(low), float(high)


def folds(game: Array, n_players: Array, k: int = 5, seed: int = 0) -> npt.NDArray[np.int64]:
    """i64[B]: fold of each row. All rows of a game are in one, and each number of seats is spread over all."""
    rng, fold = np.random.default_rng(seed), np.zeros(len(game), np.int64)
    for players in np.unique(n_players):
        games = rng.permutation(np.unique(game[n_players == players]))
        for j, g in enumerate(games):
            fold[game == g] = j % k
    return fold


def cross_validated(predictor: Callable[[Array], Callable[[Array], Floats]], fold: Array, judged: Array) -> Floats:
    """f64[B, 4]: chances of the rows `judged` by models that never saw their games; 0 in the other rows.

    Args:
        predictor: from row numbers to train on to a function from row numbers to chances.
        fold: i64[B].
        judged: bool[B].
    """
    out = np.zeros((len(fold), 4))
    for f in np.unique(fold[judged]):
        rows = np.flatnonzero((fold == f) & judged)
        out[rows] = predictor(np.flatnonzero(fold != f))(rows)
    return out


# --- softmax regression over the seats alive -----------------------------------------------------------------


def softmax(score: Array, alive: Array) -> Floats:
    """f64[B, 4]: chances over the seats alive, exactly 0 elsewhere. At least one seat is alive in each row."""
    z = np.where(alive, score, -np.inf)
    e: Floats = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def fit_logit(x: Array, alive: Array, target: Array, ridge: float = 1e-4) -> Floats:
    """Weights [D] of the softmax regression that makes the log loss least (Newton's method).

    Args:
        x: f64[B, 4, D].
        alive: bool[B, 4].
        target: f64[B, 4], sums to 1 over the seats alive.
        ridge: half of it times the squared weights is added to the mean loss, so that a perfect separation
            has an end.
    """
    z = np.where(alive[:, :, None], x, 0.0)
    b = np.zeros(x.shape[2])

    def objective(w: Floats) -> float:
        return float(log_loss(softmax(z @ w, alive), target).mean() + ridge / 2 * w @ w)

    now = objective(b)
    for _ in range(100):
        p = softmax(z @ b, alive)
        gradient = np.einsum("bs,bsd->d", p - target, z) / len(z) + ridge * b
        centred = z - np.einsum("bs,bsd->bd", p, z)[:, None]
        hessian = np.einsum("bs,bsd,bse->de", p, centred, centred) / len(z) + ridge * np.eye(len(b))
        step, size = np.linalg.solve(hessian, gradient), 1.0
        while (then := objective(b - size * step)) > now and size > 1e-6:
            size /= 2
        if now - then < 1e-12:
            break
        b, now = b - size * step, then
    return b


def slope(p: Array, alive: Array, target: Array) -> float:
    """The power of the chances that fits best: 1 is right, below 1 is too sure, above 1 too timid."""
    return float(fit_logit(np.log(np.maximum(p, LEAST))[:, :, None], alive, target)[0])


def interval_of_slope(p: Array, alive: Array, target: Array, game: Array, seed: int = 0) -> tuple[float, float]:
    """95 % of `slope` when games are drawn anew with replacement (200 times: it is a fit each)."""
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(game == g) for g in np.unique(game)]
    found = []
    for _ in range(200):
        drawn = np.concatenate([rows[i] for i in rng.integers(len(rows), size=len(rows))])
        found.append(slope(p[drawn], alive[drawn], target[drawn]))
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)
