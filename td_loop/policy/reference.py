"""What each input column of a policy looked like in training: the reference that live traffic is compared with.

A column is cut at its deciles. A value that many entries share (0 of a flag, say) gets a bin of its own, so that a
column that was constant shows a change in either direction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import DataError
from td_loop.games.served import Inputs, PolicyContract, Tensor, TensorSpec

FloatArray = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]
_DECILES = np.arange(1, 10) / 10
_ATOM = 0.05
"""Share of a value from which on it has its own bin."""


@dataclass(frozen=True)
class Column:
    """One column in training. E edges make E + 1 bins: x <= edges[0], edges[0] < x <= edges[1], ...

    Attributes:
        count: entries that were looked at.
        mean, std, low, high: of them.
        edges: strictly increasing, one at least.
        shares: part of the entries in each bin; they sum to 1.
    """

    count: int
    mean: float
    std: float
    low: float
    high: float
    edges: tuple[float, ...]
    shares: tuple[float, ...]


def column_names(contract: PolicyContract) -> list[tuple[TensorSpec, int, str]]:
    """Every column that has statistics: its input, its place along the last axis, and `input.column`."""
    return [(spec, c, f"{spec.name}.{name}") for spec in contract.inputs for c, name in enumerate(spec.columns)]


def masked_axes(contract: PolicyContract, spec: TensorSpec) -> tuple[int | str, ...]:
    """The axes along which the mask of an input tells real entries from padding; () without a mask."""
    return next((other.axes for other in contract.inputs if other.name == spec.mask), ())


def real_rows(contract: PolicyContract, spec: TensorSpec, inputs: Inputs) -> Ints:
    """i64[n]: which rows of an input, its leading axes taken as one, are no padding (mask above 0.5)."""
    shape = inputs[spec.name].shape[:-1]
    axes = masked_axes(contract, spec)
    if not axes:
        return np.arange(math.prod(shape))
    there = inputs[spec.mask] > 0.5
    if there.shape != shape:
        spread = there.reshape([n if a in axes else 1 for a, n in zip(spec.axes[:-1], shape, strict=True)])
        there = np.broadcast_to(spread, shape)
    return np.flatnonzero(there)


def real_entries(contract: PolicyContract, spec: TensorSpec, inputs: Inputs) -> Tensor:
    """f32[n, C]: those rows."""
    x = inputs[spec.name]
    rows: Tensor = x.reshape(-1, x.shape[-1])[real_rows(contract, spec, inputs)]
    return rows


def bins(edges: Sequence[float], values: FloatArray) -> Ints:
    """i64[E + 1]: how many `values`, all finite, fall into each bin."""
    return np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)


def column_of(values: FloatArray) -> Column:
    """The reference of a column. `values` f[n], n >= 1, all finite."""
    x = np.asarray(values, np.float64).ravel()
    value, place, count = np.unique(x, return_inverse=True, return_counts=True)
    # Edges lie halfway between values that occur, so that no rounding moves an entry to the next bin.
    gap = np.diff(value) / 2 if len(value) > 1 else np.array([1e-3 * max(1.0, abs(value[0]))])
    below, above = value - np.append(gap[0], gap[: len(value) - 1]), value + np.append(gap, gap[-1])[: len(value)]
    cut = np.unique(np.quantile(place, _DECILES, method="inverted_cdf"))
    alone = cut[count[cut] > _ATOM * len(x)]
    edges = tuple(np.union1d(above[cut], below[alone]).tolist())
    parts = bins(edges, x) / len(x)
    figures = float(x.mean()), float(x.std()), float(value[0]), float(value[-1])
    return Column(len(x), *figures, edges, tuple(parts.tolist()))


def reference_of(contract: PolicyContract, decisions: Iterable[Inputs]) -> Mapping[str, Column]:
    """`input.column` -> its reference over all real entries of these decisions, which are held in memory.

    Raises:
        DataError: an input has no real entry in any of them.
    """
    gathered: dict[str, list[Tensor]] = {spec.name: [] for spec in contract.inputs if spec.columns}
    for inputs in decisions:
        for spec in contract.inputs:
            if spec.columns:
                gathered[spec.name].append(real_entries(contract, spec, inputs))
    tables = {name: np.concatenate(parts) for name, parts in gathered.items()}
    if empty := [name for name, table in tables.items() if len(table) == 0]:
        raise DataError(f"no decision that was learnt from shows any of: {', '.join(empty)}; play more games")
    return {name: column_of(tables[spec.name][:, c]) for spec, c, name in column_names(contract)}
