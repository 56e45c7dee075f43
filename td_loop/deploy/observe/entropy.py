"""How sure a policy is, and how varied what it does.

The entropy of a decision is that of the policy's distribution in one state: near 0, it is sure. The entropy of
choices is that of what it chose in many states: near 0, it does the same whatever happens, as a collapsed policy
does, however unsure it may be. Neither says anything of noise: see `replays`.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from td_loop.deploy.observe.window import Counts, Window
from td_loop.games.served import MASKED, Tensor

Bools = npt.NDArray[np.bool_]
OPTIONS = 256
"""Choices that are told apart; option o counts as o modulo this."""
CHOICES_OF = 2000
"""Decisions whose choices are remembered."""


def decision_entropy(logits: Tensor, opened: Bools) -> float | None:
    """Entropy of one decision in nats, mean over its deciding slots; None if no slot has a choice.

    Args:
        logits: f32[S, O], finite where an option is open.
        opened: bool[S, O].
    """
    deciding = opened.sum(axis=1) > 1
    if not deciding.any():
        return None
    x = np.where(opened[deciding], logits[deciding], MASKED)
    x -= x.max(axis=1, keepdims=True)
    e = np.exp(x)
    total = e.sum(axis=1)
    # H = ln Z - sum p x: what is closed has p = 0 and a finite x.
    return float((np.log(total) - (e * x).sum(axis=1) / total).mean())


def choices(logits: Tensor, opened: Bools) -> Counts:
    """i64: the most likely open option of every deciding slot."""
    deciding = opened.sum(axis=1) > 1
    chosen: Counts = np.where(opened[deciding], logits[deciding], -np.inf).argmax(axis=1)
    return chosen


class Choices:
    """How often each option was chosen in the most recent decisions."""

    def __init__(self, decisions: int = CHOICES_OF) -> None:
        self._window = Window(OPTIONS, decisions)
        self._lock = threading.Lock()

    def add(self, chosen: Counts) -> None:
        """Count the choices of one decision."""
        counts = np.bincount(chosen % OPTIONS, minlength=OPTIONS)
        with self._lock:
            self._window.add(counts)

    @property
    def counts(self) -> Counts:
        """i64[OPTIONS]: the window; windows of several processes may be added."""
        with self._lock:
            return self._window.counts


def marginal_entropy(counts: Counts) -> float:
    """Entropy in nats of what was chosen (`Choices.counts`, or a sum of several); NaN when nothing was."""
    n = counts.sum()
    if n == 0:
        return float("nan")
    p = counts[counts > 0] / n
    return float(-(p * np.log(p)).sum()) + 0.0  # no minus zero
