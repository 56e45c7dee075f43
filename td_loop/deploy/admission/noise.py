"""Exploration noise of training that was left on: found in the graph, and in what the policy does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from td_loop.deploy.admission.check import Check, Decision, Subject
from td_loop.errors import OutputError
from td_loop.policy.artefact import import_onnx

RANDOM_OPS = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
"""The operators of ONNX that draw random numbers; `Dropout` does so in training mode alone."""


def exploration_noise(subject: Subject) -> Check:
    """The graph draws no random numbers, and identical states get identical actions."""
    drawn = random_ops(import_onnx().ModelProto.FromString(subject.artefact.data))
    differing = sum(_answer(subject, d) != _answer(subject, d) for d in subject.decisions)
    ops = ", ".join(drawn) or "no random op"
    figure = f"{ops}; {differing} of {len(subject.decisions)} differ"
    values = {"random_ops": len(drawn), "differing": differing, "actions": len(subject.decisions)}
    return Check("exploration noise", not drawn and differing == 0, figure, "no random op; 0", values)


def random_ops(model: Any) -> list[str]:
    """Names of the operators of an onnx.ModelProto that draw random numbers, each once."""
    nodes = list(_nodes(model.graph))
    return sorted({n.op_type for n in nodes if n.op_type in RANDOM_OPS or _drops(model.graph, nodes, n)})


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes, those of inner graphs (of If, Loop, Scan) included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _drops(graph: Any, nodes: list[Any], node: Any) -> bool:
    """Whether a Dropout is in training mode, or may be: its third input is there and no constant false."""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    to_array = import_onnx().numpy_helper.to_array
    constants = {t.name: t for t in graph.initializer}
    constants |= {n.output[0]: n.attribute[0].t for n in nodes if n.op_type == "Constant"}
    return node.input[2] not in constants or bool(to_array(constants[node.input[2]]).any())


def _answer(subject: Subject, decision: Decision) -> list[list[Any]] | str:
    """The action as a client gets it; what is no answer is the same each time, too."""
    try:
        logits = subject.runner(decision.inputs)[0]
        return subject.game.answer(subject.game.choose(decision.state, decision.seat, decision.inputs, logits))
    except OutputError as e:
        return str(e)
