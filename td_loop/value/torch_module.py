"""V as a torch module, for fit only. Nothing else in the project imports torch.

It is written independently of `kernel.py`, in float64; a property test holds the two to 1e-6.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from td_loop.value.model import SEGMENT_PLAYERS, SplineValue


class SplineModule(nn.Module):
    """The additive spline with trainable coefficients and frozen knots.

    Attributes:
        knots: buffer f64[F, K].
        coef: parameter f64[S, F, K].
    """

    knots: Tensor

    def __init__(self, v: SplineValue) -> None:
        super().__init__()
        self.register_buffer("knots", torch.tensor(v.knots, dtype=torch.float64))
        self.coef = nn.Parameter(torch.tensor(v.coef, dtype=torch.float64))

    def locate(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Knot interval (0..K-2) and clamped fraction within it: [B, 4, F] -> i64[B, 4, F], f64[B, 4, F]."""
        n_features, n_knots = self.knots.shape
        x = features.to(torch.float64)
        columns = x.reshape(-1, n_features).T.contiguous()
        interval = torch.searchsorted(self.knots, columns, right=True).sub(1).clamp(0, n_knots - 2)
        low = self.knots.gather(1, interval)
        width = self.knots.gather(1, interval + 1) - low
        fraction = ((columns - low) / width).clamp(0.0, 1.0)
        return interval.T.reshape(x.shape), fraction.T.reshape(x.shape)

    def flat_position(self, interval: Tensor, segment: Tensor) -> Tensor:
        """Where each feature's left knot stands in `coef` laid flat: i64[B, 4, F], i64[B] -> i64[B, 4, F]."""
        n_features, n_knots = self.knots.shape
        curve = segment[:, None, None] * n_features + torch.arange(n_features)  # [B, 1, F]
        return curve * n_knots + interval

    def scores_at(self, position: Tensor, fraction: Tensor) -> Tensor:
        """Scores from positions that were found once for all steps.

        Args:
            position: [B, 4, F], `flat_position`, an integer type.
            fraction: [B, 4, F], 0..1.

        Returns:
            f64[B, 4].
        """
        flat, at = self.coef.reshape(-1), position.reshape(-1).int()
        left, right = flat.index_select(0, at), flat.index_select(0, at + 1)
        return torch.lerp(left, right, fraction.reshape(-1).to(flat.dtype)).reshape(position.shape).sum(-1)

    def forward(self, features: Tensor, n_players: Tensor, alive: Tensor) -> Tensor:
        """log V: [B, 4, F], [B], bool[B, 4] -> f64[B, 4], -inf at seats that are not alive."""
        interval, fraction = self.locate(features)
        position = self.flat_position(interval, (n_players > SEGMENT_PLAYERS[0]).long())
        return log_softmax_alive(self.scores_at(position, fraction), alive)


def log_softmax_alive(scores: Tensor, alive: Tensor) -> Tensor:
    """log softmax over the seats alive: [B, 4], bool[B, 4] -> [B, 4], -inf elsewhere."""
    return torch.log_softmax(scores.masked_fill(~alive, -torch.inf), dim=-1)
