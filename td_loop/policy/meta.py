"""What an artefact says of itself, and how that is JSON."""

from __future__ import annotations

import base64
import binascii
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from td_loop.errors import DataError
from td_loop.files import as_float
from td_loop.games.served import Inputs, PolicyContract, Tensor, TensorSpec
from td_loop.policy.reference import Column, column_names

FORMAT_VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One real decision: what went into the network when it was exported, and what came out.

    Attributes:
        inputs: of the contract, B = 1.
        logits: f32[1, S, O].
    """

    inputs: Inputs
    logits: Tensor


@dataclass(frozen=True)
class ArtefactMeta:
    """All of an artefact but its network.

    Attributes:
        contract: what goes in and comes out; its `game` is the artefact's game.
        reference: `input.column` -> the column in training, for every column of the contract.
        cases: one at least.
        parents: what it was made from (data, value function, an earlier artefact) -> hex SHA-256.
        training: settings and figures of the fit, JSON data.
    """

    contract: PolicyContract
    reference: Mapping[str, Column]
    cases: tuple[Case, ...]
    parents: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)


def as_json(meta: ArtefactMeta) -> dict[str, Any]:
    """JSON data that `from_json` takes back."""
    return {
        "format_version": FORMAT_VERSION,
        "contract": contract_json(meta.contract),
        "reference": {name: vars(column) for name, column in meta.reference.items()},
        "cases": [
            {"inputs": {n: _tensor_json(x) for n, x in c.inputs.items()}, "logits": _tensor_json(c.logits)}
            for c in meta.cases
        ],
        "parents": dict(meta.parents),
        "training": dict(meta.training),
    }


def from_json(data: Any) -> ArtefactMeta:
    """The inverse of `as_json`.

    Raises:
        DataError: it is none; the message names the key, not the file.
    """
    version = _item(data, "format_version")
    if version != FORMAT_VERSION:
        raise DataError(f"is of format version {version!r}, this program reads {FORMAT_VERSION}")
    contract = _at("contract", lambda: _contract(_item(data, "contract")))
    reference = _at("reference", lambda: {n: _column(n, c) for n, c in _object(_item(data, "reference")).items()})
    cases = _at("cases", lambda: tuple(_case(contract, c) for c in _list(_item(data, "cases"))))
    names = {name for _, _, name in column_names(contract)}
    if reference.keys() != names:
        odd = sorted(reference.keys() ^ names)[0]
        raise DataError(f"'reference' and the contract's columns differ in {odd!r}")
    if not cases:
        raise DataError("'cases' is empty: without a reference case nothing can be compared")
    parents = {str(k): str(v) for k, v in _object(_item(data, "parents")).items()}
    return ArtefactMeta(contract, reference, cases, parents, _object(_item(data, "training")))


def contract_json(contract: PolicyContract) -> dict[str, Any]:
    """The contract as JSON data."""
    inputs = [{**vars(spec), "axes": list(spec.axes), "columns": list(spec.columns)} for spec in contract.inputs]
    return {**vars(contract), "inputs": inputs, "limits": dict(contract.limits)}


def _contract(data: Any) -> PolicyContract:
    limits = {str(axis): _whole(n, 1) for axis, n in _object(_item(data, "limits")).items()}
    inputs = tuple(_spec(x) for x in _list(_item(data, "inputs")))
    slots = _text(_item(data, "slots"))
    contract = PolicyContract(_text(_item(data, "game")), _whole(_item(data, "version"), 0), inputs, slots, limits)
    used = {axis for spec in inputs for axis in spec.axes if isinstance(axis, str) and axis != "B"}
    if not inputs or used != limits.keys() or slots not in used:
        raise DataError(f"its axes {sorted(used)} (slots: {slots!r}) do not have the limits {sorted(limits)}")
    return contract


def _spec(data: Any) -> TensorSpec:
    axes = tuple(a if isinstance(a, str) else _whole(a, 1) for a in _list(_item(data, "axes")))
    columns = tuple(_text(c) for c in _list(_item(data, "columns")))
    spec = TensorSpec(_text(_item(data, "name")), axes, columns, _text(_item(data, "mask")))
    if not axes or axes[0] != "B" or (columns and len(columns) != axes[-1]):
        raise DataError(f"input {spec.name!r} has the axes {list(axes)} and {len(columns)} columns")
    return spec


def _column(name: str, data: Any) -> Column:
    numbers = {key: as_float(_item(data, key)) for key in ("mean", "std", "low", "high")}
    edges = tuple(as_float(x) for x in _list(_item(data, "edges")))
    shares = tuple(as_float(x) for x in _list(_item(data, "shares")))
    column = Column(_whole(_item(data, "count"), 1), **numbers, edges=edges, shares=shares)
    if not all(map(math.isfinite, (*numbers.values(), *edges, *shares))):
        raise DataError(f"{name!r} holds a number that is not finite")
    rising = all(a < b for a, b in itertools.pairwise(edges))
    if not edges or not rising or len(shares) != len(edges) + 1:
        raise DataError(f"the {len(edges)} edges of {name!r} do not rise, or do not fit its {len(shares)} shares")
    if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise DataError(f"the shares of {name!r} sum to {sum(shares)!r}")
    return column


def _case(contract: PolicyContract, data: Any) -> Case:
    given = _object(_item(data, "inputs"))
    if list(given) != [spec.name for spec in contract.inputs]:
        raise DataError(f"a case has the inputs {list(given)}")
    inputs = {name: _tensor(x) for name, x in given.items()}
    lengths = {"B": 1}
    for spec in contract.inputs:
        shape = inputs[spec.name].shape
        pairs = list(zip(spec.axes, shape, strict=False))
        wanted = tuple(lengths.setdefault(a, n) if isinstance(a, str) else a for a, n in pairs)
        if len(shape) != len(spec.axes) or shape != wanted:
            raise DataError(f"a case's {spec.name!r} has the shape {shape}, its axes are {list(spec.axes)}")
    for axis, most in contract.limits.items():
        if lengths[axis] > most:
            raise DataError(f"a case has {lengths[axis]} entries along {axis!r}, {most} at most are allowed")
    logits = _tensor(_item(data, "logits"))
    if logits.ndim != 3 or logits.shape[:2] != (1, lengths[contract.slots]) or logits.shape[2] < 1:
        raise DataError(f"a case's logits have the shape {logits.shape} for {lengths[contract.slots]} slots")
    return Case(inputs, logits)


def _tensor_json(x: Tensor) -> dict[str, Any]:
    return {"shape": list(x.shape), "f32": base64.b64encode(np.ascontiguousarray(x, "<f4").tobytes()).decode()}


def _tensor(data: Any) -> Tensor:
    shape = tuple(_whole(n, 1) for n in _list(_item(data, "shape")))
    try:
        raw = base64.b64decode(_text(_item(data, "f32")), validate=True)
    except binascii.Error as e:
        raise DataError(f"a tensor is no base64 ({e})") from e
    if len(raw) != 4 * math.prod(shape):
        raise DataError(f"a tensor of shape {shape} has {len(raw)} bytes")
    x = np.frombuffer(raw, "<f4").reshape(shape)
    if not np.isfinite(x).all():
        raise DataError("a tensor holds a number that is not finite")
    return x


def _at(key: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except DataError as e:
        raise DataError(f"'{key}': {e}") from e


def _item(data: Any, key: str) -> Any:
    if not isinstance(data, Mapping) or key not in data:
        raise DataError(f"has no '{key}'")
    return data[key]


def _object(x: Any) -> Mapping[str, Any]:
    if not isinstance(x, Mapping):
        raise DataError(f"expected an object, found {x!r:.40}")
    return x


def _list(x: Any) -> list[Any]:
    if not isinstance(x, list):
        raise DataError(f"expected a list, found {x!r:.40}")
    return x


def _text(x: Any) -> str:
    if not isinstance(x, str):
        raise DataError(f"expected a text, found {x!r:.40}")
    return x


def _whole(x: Any, least: int) -> int:
    if isinstance(x, bool) or not isinstance(x, int) or x < least:
        raise DataError(f"expected a whole number from {least}, found {x!r:.40}")
    return x
