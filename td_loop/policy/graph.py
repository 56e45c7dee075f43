"""The policy network as an ONNX graph, written by hand: the formulas of `shape`, for any batch and any lengths.

Every parameter is an initializer under its own name, so that a reader of the file needs nothing but the names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from td_loop.games.served import MASKED, PolicyContract
from td_loop.policy.artefact import IR_VERSION, OPSET, OUTPUT, import_onnx
from td_loop.policy.shape import BLOCKED, Parameters, check


class _Graph:
    """Nodes and constants in the making; every step is named after what it makes."""

    def __init__(self, helper: Any) -> None:
        self._helper = helper
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}

    def __call__(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        name = to or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(op, list(inputs), [name], name=f"make_{name}", **attributes))
        return name

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        self.constants[name] = np.asarray(value, dtype)
        return name

    def linear(self, x: str, w: str, b: str) -> str:
        return self("Add", self("MatMul", x, w), b)


def build(parameters: Parameters, contract: PolicyContract) -> Any:
    """The `onnx.ModelProto`.

    Raises:
        DataError: the parameters do not fit the contract.
        UsageError: onnx is not installed.
    """
    onnx = import_onnx()
    helper, f32 = onnx.helper, onnx.TensorProto.FLOAT
    size = check(parameters, contract)
    g = _Graph(helper)
    _network(g, size.width, size.heads)
    weights = {**parameters, **g.constants}
    answer = ["B", contract.slots, "O"]

    graph = helper.make_graph(
        g.nodes,
        f"{contract.game}_policy",
        [helper.make_tensor_value_info(s.name, f32, list(s.axes)) for s in contract.inputs],
        [helper.make_tensor_value_info(OUTPUT, f32, answer)],
        [onnx.numpy_helper.from_array(np.asarray(w, order="C"), name) for name, w in weights.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="td_loop", ir_version=IR_VERSION
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def _network(g: _Graph, width: int, heads: int) -> None:
    one = g.constant("const.one", 1.0)
    first = g.constant("const.axis_1", [1], np.int64)
    second = g.constant("const.axis_2", [2], np.int64)
    world = g("Unsqueeze", g.linear("world", "world.w", "nodes.b"), first)
    x = g("Relu", g("Add", g("MatMul", "nodes", "nodes.w"), world))
    y = g("Relu", g.linear("events", "events.w", "events.b"))
    taken = _attention(g, x, y, width, heads)
    x = g("Add", g("Add", x, g("MatMul", taken, "out.w")), "out.b")
    hidden = g("Relu", g.linear(x, "hidden.w", "hidden.b"))
    x = g("Add", g("Add", x, g("MatMul", hidden, "back.w")), "back.b")
    slots = g("MatMul", "slots", x)

    of_slot = g("Unsqueeze", g.linear(slots, "slot.w", "pairs.b"), second)
    of_target = g("Unsqueeze", g("MatMul", x, "target.w"), first)
    t = g("Relu", g("Add", g("Add", g("MatMul", "pairs", "pairs.w"), of_slot), of_target))
    opened = g("Mul", "open", g("Unsqueeze", "pair_mask", g.constant("const.axis_3", [3], np.int64)))
    send = g("Mul", g.linear(t, "send.w", "send.b"), opened)
    closed = g("Mul", g("Sub", one, opened), g.constant("const.masked", MASKED))
    flat = g.constant("const.flat", [0, 0, -1], np.int64)
    send = g("Reshape", g("Add", send, closed), flat)

    stay = g("Relu", g.linear(slots, "stay.w", "stay.b"))
    stay = g("Mul", g.linear(stay, "stay.out", "stay.bias"), g("Unsqueeze", "slot_mask", second))
    g("Concat", stay, send, to=OUTPUT, axis=2)


def _attention(g: _Graph, x: str, y: str, width: int, heads: int) -> str:
    """[B, N, D] what every node takes from nodes and events."""
    both = g("Concat", x, y, axis=1)
    split = g.constant("const.split", [0, 0, heads, width // heads], np.int64)

    def by_head(z: str, w: str, perm: list[int]) -> str:
        return g("Transpose", g("Reshape", g("MatMul", z, w), split), perm=perm)

    q = by_head(x, "query.w", [0, 2, 1, 3])
    k = by_head(both, "key.w", [0, 2, 3, 1])
    v = by_head(both, "value.w", [0, 2, 1, 3])
    score = g("Mul", g("MatMul", q, k), g.constant("const.scale", 1.0 / math.sqrt(width // heads)))
    first = "const.axis_1"
    column = g.constant("const.column", [heads, 1, 1], np.int64)
    near = g("Mul", g("Unsqueeze", "near", first), g("Reshape", "near.bias", column))
    lands = g("Mul", g("Unsqueeze", "lands", first), g("Reshape", "lands.bias", column))
    score = g("Add", score, g("Concat", near, lands, axis=3))
    mask = g("Sub", g("Concat", "node_mask", "event_mask", axis=1), "const.one")
    blocked = g("Mul", mask, g.constant("const.blocked", BLOCKED))
    score = g("Add", score, g("Unsqueeze", blocked, g.constant("const.axes_12", [1, 2], np.int64)))
    taken = g("Transpose", g("MatMul", g("Softmax", score, axis=-1), v), perm=[0, 2, 1, 3])
    return g("Reshape", taken, g.constant("const.joined", [0, 0, width], np.int64))
