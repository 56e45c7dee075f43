"""Bad policies out of a good one: what admission must refuse, or a canary must be rolled back for.

Those of `with_nodes` change the graph alone, so numpy and torch, which know the weights only, see the good policy.
`worse`, `always_stays` and `with_weights` change the weights: such a policy passes admission, and only traffic
shows what it is. So it is with `nan_when` and `slow` where their condition holds in no game of the admission.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from td_loop.files import write_json
from td_loop.games.served import Tensor
from td_loop.policy.artefact import Artefact, write_artefact
from td_loop.policy.meta import Case
from td_loop.policy.runtimes import open_runner

Nodes = list[Any]
_CLEAN = "clean_logits"


@dataclasses.dataclass(frozen=True)
class When:
    """A fault shows itself only where the largest entry of an input's column lies between two values."""

    input: str
    column: str
    above: float
    below: float = 1e30


def always_nan(good: Artefact, path: Path) -> Artefact:
    """Every logit is NaN."""
    return with_nodes(
        good, path, [_n("Neg", "f1", "m1"), _n("Sqrt", "m1", "nan"), _n("Add", _CLEAN, "nan", "logits")]
    )


def nan_when(good: Artefact, path: Path, when: When) -> Artefact:
    """NaN where `when` holds, else the good logits: what admission does not see, it cannot refuse."""
    nodes = [
        *_is_odd(good, when),
        _n("Where", "is_odd", "m1", "f1", "sign"),
        _n("Sqrt", "sign", "one_or_nan"),
        _n("Mul", _CLEAN, "one_or_nan", "logits"),
    ]
    return with_nodes(good, path, nodes, {"m1": _f(-1), "above": _f(when.above), "below": _f(when.below)})


def slow(good: Artefact, path: Path, products: int = 4, when: When | None = None) -> Artefact:
    """The good logits after `products` products of matrices 700 x 700, some 10 ms each; with `when`, only then."""
    first = good.meta.contract.inputs[0].name
    start = [_n("ReduceMax", first, "top", keepdims=0), _n("Mul", "top", "f0", "seed")]
    work: Nodes = [_n("Expand", "seed", "side", "grid0")]
    work += [_n("MatMul", f"grid{k}", f"grid{k}", f"grid{k + 1}") for k in range(products)]
    work += [_n("ReduceSum", f"grid{products}", "nothing", keepdims=0)]
    extra = {"side": np.array([700, 700], np.int64)}
    if when is None:
        return with_nodes(good, path, [*start, *work, _n("Add", _CLEAN, "nothing", "logits")], extra)
    scalar = helper.make_tensor_value_info
    nothing = helper.make_graph(work, "work", [], [scalar("nothing", 1, [])])
    idle = helper.make_graph([_n("Identity", "f0", "idle")], "idle", [], [scalar("idle", 1, [])])
    nodes = [
        *start,
        *_is_odd(good, when),
        helper.make_node("If", ["is_odd"], ["spent"], then_branch=nothing, else_branch=idle),
        _n("Add", _CLEAN, "spent", "logits"),
    ]
    return with_nodes(good, path, nodes, {**extra, "above": _f(when.above), "below": _f(when.below)})


def collapsed(good: Artefact, path: Path) -> Artefact:
    """Every slot stays, with all of its probability."""
    nodes = [
        _n("Mul", _CLEAN, "f0", "flat"),
        _n("Slice", "flat", "i0", "i1", "last", "stay"),
        _n("Slice", "flat", "i1", "far", "last", "rest"),
        _n("Add", "stay", "fifty", "sure"),
        helper.make_node("Concat", ["sure", "rest"], ["logits"], axis=-1),
    ]
    return with_nodes(good, path, nodes, {"fifty": _f(50), "far": np.array([1 << 30], np.int64)})


def always_stays(good: Artefact, path: Path) -> Artefact:
    """The same by a weight, of the toy's network or the package's own: no check of admission sees it."""
    if "stay.bias" in good.weights:
        return with_weights(good, path, {"stay.bias": np.array([50], np.float32)})
    return with_weights(good, path, {"bias": np.array([50, 0, 0], np.float32)})


def noisy(good: Artefact, path: Path, scale: float = 3.0) -> Artefact:
    """Exploration noise of that standard deviation, left on."""
    nodes = [_n("RandomNormalLike", _CLEAN, "noise", scale=scale), _n("Add", _CLEAN, "noise", "logits")]
    return with_nodes(good, path, nodes)


def left_in_training(good: Artefact, path: Path) -> Artefact:
    """Dropout in training mode."""
    nodes = [helper.make_node("Dropout", [_CLEAN, "half", "on"], ["logits"])]
    return with_nodes(good, path, nodes, {"half": _f(0.5), "on": np.array(True)})


def wrong_shape(good: Artefact, path: Path) -> Artefact:
    """Its last option is missing. The cases are the good ones."""
    nodes = [_n("Slice", _CLEAN, "i0", "minus", "last", "logits")]
    return with_nodes(good, path, nodes, {"minus": np.array([-1], np.int64)}, remember=False)


def padding_bug(good: Artefact, path: Path) -> Artefact:
    """The mean of an input is taken over its padding, too."""
    spec = next(s for s in good.meta.contract.inputs if s.mask)
    nodes = [_n("ReduceMean", spec.name, "mean", keepdims=0), _n("Add", _CLEAN, "mean", "logits")]
    return with_nodes(good, path, nodes)


def fixed_length(good: Artefact, path: Path, most: int) -> Artefact:
    """The mask of its first axis must have `most` entries or fewer: longer sequences cannot be computed."""
    spec = next(s for s in good.meta.contract.inputs if s.mask)
    nodes = [
        _n("Shape", spec.mask, "shape"),
        _n("Gather", "shape", "i1", "length"),
        _n("Sub", "room", "length", "spare"),
        _n("ConstantOfShape", "spare", "zeros"),
        _n("ReduceSum", "zeros", "nothing", keepdims=0),
        _n("Add", _CLEAN, "nothing", "logits"),
    ]
    return with_nodes(good, path, nodes, {"room": np.array([most], np.int64)})


def worse(good: Artefact, path: Path, seed: int = 0) -> Artefact:
    """The entries of every matrix are shuffled."""
    rng = np.random.default_rng(seed)
    shuffled = {n: rng.permuted(x.ravel()).reshape(x.shape) for n, x in good.weights.items() if x.ndim > 1}
    return with_weights(good, path, shuffled)


def with_weights(good: Artefact, path: Path, weights: Mapping[str, Tensor]) -> Artefact:
    """Some weights replaced, and the cases made anew."""
    model = _network(good)
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return _write(good, path, model)


def with_nodes(
    good: Artefact, path: Path, nodes: Nodes, constants: Mapping[str, Any] | None = None, *, remember: bool = True
) -> Artefact:
    """Nodes between the network's answer, now called `clean_logits`, and `logits`.

    `remember`: whether the reference cases are made anew, where that is possible.
    """
    model = _network(good)
    for node in model.graph.node:
        for k, name in enumerate(node.output):
            if name == "logits":
                node.output[k] = _CLEAN
    common = {"f0": _f(0), "f1": _f(1), "i0": _i(0), "i1": _i(1), "last": _i(-1)}
    for name, x in {**common, **(constants or {})}.items():
        model.graph.initializer.append(numpy_helper.from_array(x, f"bad_{name}"))
    kept = {spec.name for spec in good.meta.contract.inputs} | {_CLEAN, "logits"}
    model.graph.node.extend(nodes)
    _rename(list(model.graph.node)[-len(nodes) :], kept)
    return _write(good, path, model, remember=remember)


def forge_record(artefact: Artefact) -> None:
    """A record as of one that passed: for tests of what happens when a fault gets through admission."""
    record = {"format_version": 1, "sha256": artefact.sha256, "verified": True}
    write_json(artefact.path.with_name(f"{artefact.path.name}.verified.json"), record)


def _write(good: Artefact, path: Path, model: Any, *, remember: bool = True) -> Artefact:
    made = write_artefact(path, model, good.meta)
    if not remember:
        return made
    runner = open_runner(made)
    cases = [Case(c.inputs, runner(c.inputs)) for c in good.meta.cases]
    if not all(np.isfinite(c.logits).all() for c in cases):
        return made
    return write_artefact(path, model, dataclasses.replace(good.meta, cases=tuple(cases)))


def _rename(nodes: Iterable[Any], kept: set[str]) -> None:
    """Names that no good network has."""
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [name if name in kept else f"bad_{name}" for name in names]
        for inner in (a.g for a in node.attribute if a.HasField("g")):
            _rename(inner.node, kept)
            for output in inner.output:
                output.name = f"bad_{output.name}"


def _network(good: Artefact) -> Any:
    model = onnx.ModelProto.FromString(good.data)
    del model.metadata_props[:]
    return model


def _is_odd(good: Artefact, when: When) -> Nodes:
    """Nodes that compute `is_odd`: whether `when` holds."""
    spec = next(s for s in good.meta.contract.inputs if s.name == when.input)
    column = helper.make_tensor("column", onnx.TensorProto.INT64, [1], [spec.columns.index(when.column)])
    return [
        helper.make_node("Constant", [], ["column"], value=column),
        helper.make_node("Gather", [when.input, "column"], ["entries"], axis=-1),
        _n("ReduceMax", "entries", "highest", keepdims=0),
        _n("Greater", "highest", "above", "is_above"),
        _n("Less", "highest", "below", "is_below"),
        _n("And", "is_above", "is_below", "is_odd"),
    ]


def _n(op: str, *names: str, **attributes: Any) -> Any:
    """A node; the last name is that of its output."""
    return helper.make_node(op, list(names[:-1]), [names[-1]], **attributes)


def _f(x: float) -> Tensor:
    return np.array(x, np.float32)


def _i(x: int) -> Any:
    return np.array([x], np.int64)
