"""V of a batch of states. `B` rows, 4 seats, `F` features."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.value.kernel import batch_scores, batch_softmax
from td_loop.value.model import SplineValue

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def scores(v: SplineValue, features: npt.NDArray[Any], n_players: npt.NDArray[Any]) -> FloatArray:
    """The score of every seat, before the softmax.

    Args:
        v: the value function.
        features: f32[B, 4, F], finite.
        n_players: i8[B], 2..4; 3 players use the 4-seat segment.

    Returns:
        f64[B, 4]; what stands at seats that are dead or do not exist means nothing.
    """
    assert features.ndim == 3, features.shape
    assert features.shape[1:] == (4, v.knots.shape[0]), (features.shape, v.knots.shape)
    assert n_players.shape == features.shape[:1], (n_players.shape, features.shape)
    out = np.empty(features.shape[:2])
    # One layout and one integer type: every other combination would be compiled anew.
    batch_scores(
        np.ascontiguousarray(features),
        np.ascontiguousarray(n_players, dtype=np.int8),
        np.ascontiguousarray(v.knots),
        np.ascontiguousarray(v.coef),
        out,
    )
    return out


def evaluate(
    v: SplineValue, features: npt.NDArray[Any], n_players: npt.NDArray[Any], alive: BoolArray
) -> FloatArray:
    """V: the probability per seat of winning.

    Args:
        v: the value function.
        features: f32[B, 4, F], finite.
        n_players: i8[B], 2..4; 3 players use the 4-seat segment.
        alive: bool[B, 4], False beyond P.

    Returns:
        f64[B, 4]: every row sums to 1 over the seats alive and is exactly 0 elsewhere.
    """
    assert alive.shape == features.shape[:2], (alive.shape, features.shape)
    out = np.empty(alive.shape)
    batch_softmax(scores(v, features, n_players), np.ascontiguousarray(alive), out)
    return out
