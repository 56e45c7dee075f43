"""Whether live inputs still look like those of training: the population stability index of every column.

PSI = sum over bins of (p - q) ln(p / q), p the live share of a bin and q that in training. By custom below 0.1 is
no shift, above 0.25 a large one (N. Siddiqi, "Credit Risk Scorecards", 2006). Of n independent entries equal
distributions give about (bins - 1) / n. Entries of one game are anything but independent: compare the subsets with
each other before you believe that the world has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.deploy.observe.window import Counts, Window
from td_loop.games.served import Inputs, PolicyContract, Tensor, TensorSpec
from td_loop.policy.reference import Column, real_rows

FloatArray = npt.NDArray[np.float64]

LARGE = 0.25
"""From here on a shift is large."""
DECISIONS = 2000
"""Decisions of a window."""
_ROWS = 64
"""Entries of an input that are looked at in one decision; they take turns."""
_SMOOTH = 0.5
"""Added to each bin, so that an empty one is no infinity."""


@dataclass(frozen=True)
class _Input:
    """An input with columns.

    Attributes:
        spec: it.
        edges: f32[C, E], infinite where a column has fewer than E.
        shares: f64[C, E + 1] of the reference, smoothed; 1 where a column has no such bin.
        bins: f64[C, 1] how many bins each column has.
        place: of its counts: C E times "above this edge", then the number of entries.
    """

    spec: TensorSpec
    edges: Tensor
    shares: FloatArray
    bins: FloatArray
    place: slice


class Bins:
    """The bins of every column, and where their counts stand in one flat array of `size` numbers.

    Kept is how many entries were above each edge, for that takes one comparison of arrays, and adds up over
    decisions and processes as well as the bins themselves do.
    """

    def __init__(self, contract: PolicyContract, reference: Mapping[str, Column]) -> None:
        self.contract = contract
        self.inputs: list[_Input] = []
        self.size = 0
        for spec in contract.inputs:
            own = [reference[f"{spec.name}.{name}"] for name in spec.columns]
            if not own:
                continue
            bins = np.array([[len(c.shares)] for c in own], np.float64)
            edges = np.full((len(own), int(bins.max()) - 1), np.inf, np.float32)
            shares = np.ones((len(own), int(bins.max())))
            for k, c in enumerate(own):
                edges[k, : len(c.edges)] = c.edges
                shares[k, : len(c.shares)] = _smoothed(np.array(c.shares) * c.count, c.count, len(c.shares))
            place = slice(self.size, self.size + edges.size + 1)
            self.inputs.append(_Input(spec, edges, shares, bins, place))
            self.size = place.stop

    def psi(self, counts: Counts) -> dict[str, float]:
        """`input.column` -> PSI. `counts` i64[size], of one window or a sum of several; NaN without entries."""
        found: dict[str, float] = {}
        for x in self.inputs:
            own = counts[x.place]
            n = int(own[-1])
            names = [f"{x.spec.name}.{name}" for name in x.spec.columns]
            if n == 0:
                found |= dict.fromkeys(names, float("nan"))
                continue
            above = np.pad(own[:-1].reshape(x.edges.shape), ((0, 0), (1, 1)))
            above[:, 0] = n
            there = np.arange(above.shape[1] - 1) < x.bins
            p = np.where(there, _smoothed(-np.diff(above, axis=1), n, x.bins), 1.0)
            psi = ((p - x.shares) * np.log(p / x.shares)).sum(axis=1)
            found |= dict(zip(names, psi.tolist(), strict=True))
        return found


class Drift:
    """What the entries of the most recent decisions of one policy were."""

    def __init__(self, bins: Bins, decisions: int = DECISIONS) -> None:
        self.bins = bins
        self._window = Window(bins.size, decisions)
        self._turn = 0
        self._lock = threading.Lock()

    def add(self, inputs: Inputs) -> None:
        """Count the entries of one decision, at most 64 of each input. NaN lies in the lowest bin."""
        counts = np.empty(self.bins.size, np.int64)
        for x in self.bins.inputs:
            entries, width = inputs[x.spec.name], x.edges.shape[1]
            real = real_rows(self.bins.contract, x.spec, inputs)
            step = -(-len(real) // _ROWS) or 1
            rows = entries.reshape(-1, entries.shape[-1])[real[self._turn % step :: step]]
            above = np.repeat(rows, width, axis=1) > x.edges.ravel()
            own = counts[x.place]
            own[:-1] = above.view(np.uint8).sum(axis=0, dtype=np.uint8)
            own[-1] = len(rows)
        with self._lock:
            self._turn += 1
            self._window.add(counts)

    @property
    def counts(self) -> Counts:
        """i64[bins.size]: the window."""
        with self._lock:
            return self._window.counts


def _smoothed(counts: npt.NDArray[Any], n: int, bins: int | FloatArray) -> FloatArray:
    shares: FloatArray = (counts + _SMOOTH) / (n + _SMOOTH * bins)
    return shares
