"""A policy network for the toy game, built by hand: masked attention over seats, a linear layer; and artefacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from td_loop.games.served import Inputs, Tensor
from td_loop.policy.artefact import IR_VERSION, OPSET, Artefact, write_artefact
from td_loop.policy.meta import ArtefactMeta, Case
from td_loop.policy.reference import reference_of
from tests.deploy.toy_served import COLUMNS, CONTRACT, GAME, OPTIONS
from tests.toy_game import State, play

WIDTH = 8
Weights = Mapping[str, Tensor]


def make_weights(seed: int = 0) -> dict[str, Tensor]:
    """Weights of the network: `settle` makes the seat settle on its own land, which is good play."""
    rng, d = np.random.default_rng(seed), len(COLUMNS)
    shapes = {
        "query": (d, WIDTH),
        "key": (d, WIDTH),
        "value": (d, WIDTH),
        "own": (d, WIDTH),
        "out": (WIDTH, OPTIONS),
    }
    weights = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    return weights | {"bias": np.zeros(OPTIONS, np.float32), "settle": np.array([[0, 2, 4]], np.float32)}


def run_numpy(weights: Weights, inputs: Inputs) -> Tensor:
    """f32[B, S, O]: the network by hand."""
    x, present = inputs["seats"], inputs["present"]
    scores = (x @ weights["query"]) @ (x @ weights["key"]).swapaxes(1, 2) + (present[:, None] - 1) * 1e9
    p = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (p / p.sum(-1, keepdims=True)) @ (x @ weights["value"])
    hidden = np.maximum(mixed + x @ weights["own"], 0)
    logits: Tensor = hidden @ weights["out"] + weights["bias"] + x[..., 2:3] @ weights["settle"]
    return logits


def run_torch(weights: Weights, inputs: Inputs) -> Tensor:
    """The same with torch's own kernels."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a network is slower with more
    w = {name: torch.tensor(array) for name, array in weights.items()}
    x, present = torch.tensor(inputs["seats"]), torch.tensor(inputs["present"])
    scores = (x @ w["query"]) @ (x @ w["key"]).transpose(1, 2)
    p = torch.softmax(scores.masked_fill(present[:, None] < 0.5, -1e9), -1)
    hidden = torch.relu(p @ (x @ w["value"]) + x @ w["own"])
    logits: Tensor = (hidden @ w["out"] + w["bias"] + x[..., 2:3] @ w["settle"]).numpy()
    torch.set_num_threads(threads)
    return logits


def make_network(weights: Weights) -> Any:
    """The network as an onnx.ModelProto."""
    constants = {
        "one": np.array([1], np.float32),
        "far": np.array([1e9], np.float32),
        "zero": np.array([0], np.float32),
        "axis": np.array([1], np.int64),
        "from": np.array([2], np.int64),
        "to": np.array([3], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["seats", "query"], ["q"]),
        helper.make_node("MatMul", ["seats", "key"], ["k"]),
        helper.make_node("MatMul", ["seats", "value"], ["v"]),
        helper.make_node("MatMul", ["seats", "own"], ["self"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["raw"]),
        helper.make_node("Unsqueeze", ["present", "axis"], ["there"]),
        helper.make_node("Sub", ["there", "one"], ["absent"]),
        helper.make_node("Mul", ["absent", "far"], ["penalty"]),
        helper.make_node("Add", ["raw", "penalty"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["mixed"]),
        helper.make_node("Add", ["mixed", "self"], ["both"]),
        helper.make_node("Relu", ["both"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "out"], ["plain"]),
        helper.make_node("Add", ["plain", "bias"], ["biased"]),
        helper.make_node("Slice", ["seats", "from", "to", "from"], ["is_own"]),
        helper.make_node("MatMul", ["is_own", "settle"], ["settling"]),
        helper.make_node("Add", ["biased", "settling"], ["logits"]),
    ]
    initializers = [numpy_helper.from_array(x, n) for n, x in {**weights, **constants}.items()]
    return finish(nodes, initializers)


def finish(nodes: list[Any], initializers: list[Any], shape: tuple[Any, ...] = ("B", "S", OPTIONS)) -> Any:
    """A model of these nodes, with the contract's inputs and the output `logits`."""
    inputs = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.axes) for s in CONTRACT.inputs]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "policy", inputs, [output], initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return model


def decisions(seeds: range) -> Iterator[tuple[State, int]]:
    """States and seats of random games."""
    for seed in seeds:
        for state in play(seed)[0][:-1]:
            for seat in np.flatnonzero(state.land > 0):
                yield state, int(seat)


def make_meta(weights: Weights) -> ArtefactMeta:
    """Metadata with 8 reference cases and the reference of 20 games."""
    inputs = [GAME.policy_inputs(state, seat) for state, seat in decisions(range(20))]
    cases = tuple(Case(x, run_numpy(weights, x)) for x in inputs[:: len(inputs) // 8][:8])
    return ArtefactMeta(CONTRACT, reference_of(CONTRACT, inputs), cases, {"data": "0" * 64}, {"seed": 0})


def write_good(path: Path, seed: int = 0) -> Artefact:
    """A good artefact at `path`."""
    weights = make_weights(seed)
    return write_artefact(path, make_network(weights), make_meta(weights))
