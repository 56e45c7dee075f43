"""The value function as data: knots, coefficients, names, meta. See `evaluate.py` for what V means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

FORMAT_VERSION = 2
SEGMENT_PLAYERS = (2, 4)
"""Segment s of `coef` serves games of SEGMENT_PLAYERS[s] seats; 3 seats use the 4-seat segment."""


@dataclass(frozen=True)
class SplineValue:
    """An additive piecewise-linear spline per feature, softmax over the seats alive.

    `F` features, `K` knots a feature, `S` segments (see SEGMENT_PLAYERS).

    Attributes:
        knots: f64[F, K], strictly increasing along K.
        coef: f64[S, F, K], the spline's value at each knot; linear between knots, constant outside.
        feature_names: F names.
        meta: JSON object: `format_version`, `game`, `gamma`, `created_by`, `parent_sha256`.
    """

    knots: npt.NDArray[np.float64]  # [F, K]
    coef: npt.NDArray[np.float64]  # [S, F, K]
    feature_names: tuple[str, ...]  # [F]
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def gamma(self) -> float:
        """Discount of the production forecast that the features were made with."""
        return float(self.meta["gamma"])
