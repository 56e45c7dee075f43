"""The policy network's parameters: their names and shapes, and where training starts.

One attention layer over the things of a position (`nodes`) and what is about to happen to them (`events`), and a
pointer head that says of every node that may decide (`slots`) what it sends to which node. The numpy, torch and
ONNX networks are three writings of the same formulas over the same names:

    x  = relu(nodes Wn + world Ww + bn)                                   [N, D]
    y  = relu(events We + be)                                             [A, D]
    a  = softmax(q k' / sqrt(D / H) + bias), q of x; k, v of x and y      [H, N, N + A]
    x  = x + (a v) Wo + bo;  x = x + relu(x W1 + b1) W2 + b2              [N, D]
    t  = relu(pairs Wp + (slots x) Ws + x Wt + bp)                        [S, N, M]
    logits = [relu((slots x) Wl + bl) wl + cl,  t Wf + bf where open]     [S, 1 + N Z]

`bias` is `near` between nodes and `lands` between a node and an event, each times a number of the head; masked
entries are never attended to. `Z` is the number of sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from td_loop.errors import DataError, UsageError
from td_loop.games.served import PolicyContract, Tensor

Parameters = Mapping[str, Tensor]
"""Name -> f32 array; names and shapes are those of `shapes`."""

INPUTS = (
    "world", "nodes", "node_mask", "events", "event_mask", "near", "lands", "slots", "slot_mask", "pairs",
    "pair_mask", "open",
)  # fmt: skip
"""What a game's contract must name for this network, in this order."""
BLOCKED = 1e9
"""Taken from the score of what must not be attended to: its weight is then exactly 0."""


@dataclass(frozen=True)
class NetworkSize:
    """How large a network is.

    Attributes:
        width: D of a node; a multiple of `heads`.
        heads: H of the attention.
        hidden: of the layer after the attention.
        pointer: M of the pointer head.
    """

    width: int = 64
    heads: int = 4
    hidden: int = 96
    pointer: int = 32

    def __post_init__(self) -> None:
        if min(self.width, self.heads, self.hidden, self.pointer) < 1 or self.width % self.heads:
            raise UsageError(f"{self}: all must be 1 or more, and width a multiple of heads")


def shapes(contract: PolicyContract, size: NetworkSize) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter.

    Raises:
        DataError: the contract is not one that this network can be made for.
    """
    if tuple(spec.name for spec in contract.inputs) != INPUTS:
        raise DataError(f"the policy network takes the inputs {', '.join(INPUTS)}; {contract.game} has others")
    columns = {spec.name: len(spec.columns) for spec in contract.inputs}
    d, h, f, m = size.width, size.heads, size.hidden, size.pointer
    return {
        "nodes.w": (columns["nodes"], d), "world.w": (columns["world"], d), "nodes.b": (d,),
        "events.w": (columns["events"], d), "events.b": (d,),
        "query.w": (d, d), "key.w": (d, d), "value.w": (d, d), "out.w": (d, d), "out.b": (d,),
        "near.bias": (h,), "lands.bias": (h,),
        "hidden.w": (d, f), "hidden.b": (f,), "back.w": (f, d), "back.b": (d,),
        "pairs.w": (columns["pairs"], m), "slot.w": (d, m), "target.w": (d, m), "pairs.b": (m,),
        "send.w": (m, columns["open"]), "send.b": (columns["open"],),
        "stay.w": (d, m), "stay.b": (m,), "stay.out": (m, 1), "stay.bias": (1,),
    }  # fmt: skip


def start(contract: PolicyContract, size: NetworkSize, rng: np.random.Generator) -> dict[str, Tensor]:
    """Parameters before training: what He et al. (2015) draw for layers before a relu; biases 0."""
    out = {}
    for name, shape in shapes(contract, size).items():
        if len(shape) == 1:
            out[name] = np.zeros(shape, np.float32)
        else:
            out[name] = (rng.standard_normal(shape) * math.sqrt(2.0 / shape[0])).astype(np.float32)
    out["near.bias"] += np.linspace(0.0, 4.0, size.heads, dtype=np.float32)  # heads that look nearby, and far
    out["lands.bias"] += 1.0
    for name in ("out.w", "back.w", "send.w", "stay.out"):
        out[name] *= np.float32(0.3)
    return out


def size_of(parameters: Parameters) -> NetworkSize:
    """The size of the network that `parameters` are of."""
    return NetworkSize(
        width=parameters["query.w"].shape[0],
        heads=len(parameters["near.bias"]),
        hidden=len(parameters["hidden.b"]),
        pointer=len(parameters["pairs.b"]),
    )


def check(parameters: Parameters, contract: PolicyContract) -> NetworkSize:
    """The size of a network whose parameters fit the contract.

    Raises:
        DataError: a parameter is missing, has another shape or is not finite; the message names it.
    """
    try:
        size = size_of(parameters)
    except (KeyError, IndexError, UsageError) as e:
        raise DataError(f"not the parameters of a policy network: {e}") from e
    for name, shape in shapes(contract, size).items():
        if name not in parameters or parameters[name].shape != shape:
            found = "missing" if name not in parameters else f"{list(parameters[name].shape)}"
            raise DataError(f"parameter {name} of the policy network is {found}, not {list(shape)}")
        if not np.isfinite(parameters[name]).all():
            raise DataError(f"parameter {name} of the policy network is not finite")
    return size
