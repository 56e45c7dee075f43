"""The artefact: one ONNX file that holds a policy network and all that has to be known of it.

    <network: a ModelProto without metadata> <ModelProto with two metadata_props: `td_loop`, `td_loop_sha256`>

Two messages of Protocol Buffers in a row are one message with the fields of both
(https://protobuf.dev/programming-guides/encoding/#last-one-wins), so any reader of ONNX takes the file as it is.
`td_loop` is the JSON of `meta.py`; `td_loop_sha256` is the digest of network and JSON, since a flipped bit in a
weight would open without a complaint. The identity of an artefact is the SHA-256 of the whole file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from td_loop.errors import DataError, UsageError
from td_loop.files import dumps_json, write_bytes
from td_loop.games.served import PolicyContract, Tensor
from td_loop.policy.meta import ArtefactMeta, as_json, contract_json, from_json

META_KEY, DIGEST_KEY = "td_loop", "td_loop_sha256"
OUTPUT = "logits"
"""The one output of a network, f32[B, S, O]."""
OPSET, IR_VERSION = 17, 8
"""What a network is written in: read by every onnxruntime that the extra allows."""

_REMEDY = "export the policy again with `td-loop policy fit`, or give another file"


@dataclass(frozen=True)
class Artefact:
    """An artefact that was read and checked.

    Attributes:
        path: where it lay.
        sha256: hex, of the file: its identity.
        meta: what it says of itself.
        weights: name -> array, the floating-point initializers.
        data: the whole file, for onnxruntime.
    """

    path: Path
    sha256: str
    meta: ArtefactMeta = field(repr=False)
    weights: Mapping[str, Tensor] = field(repr=False)
    data: bytes = field(repr=False)


def write_artefact(path: Path, network: Any, meta: ArtefactMeta) -> Artefact:
    """Write a network (an `onnx.ModelProto` without metadata) and `meta`, atomically; read back what was written.

    Raises:
        DataError: it is not an artefact that `read_artefact` would take back.
        StorageError: the disk is full, read-only or failing.
    """
    graph = network.SerializeToString(deterministic=True)
    text = dumps_json(as_json(meta))
    data = graph + _tail(text, graph)
    artefact = _parse(path, data)
    write_bytes(path, data)
    return artefact


def read_artefact(path: Path, contract: PolicyContract | None = None) -> Artefact:
    """Read and check an artefact.

    Args:
        path: the file.
        contract: what it has to be made for (`game.contract`); None: whatever it says.

    Raises:
        DataError: missing, truncated, damaged, no ONNX, without metadata or with such of an unknown version, made
            for another game or contract, with weights that are not finite or lie in another file.
        UsageError: the package onnx is not installed.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as e:
        raise DataError(f"{path}: no such file; {_REMEDY}") from e
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}; see to the disk and the permissions") from e
    artefact = _parse(path, data)
    if contract is not None and artefact.meta.contract != contract:
        raise DataError(f"{path}: {_difference(artefact.meta.contract, contract)}; {_REMEDY}")
    return artefact


def import_onnx() -> Any:
    """The package onnx.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import onnx
        import onnx.checker
        import onnx.numpy_helper
    except ImportError as e:
        raise UsageError(
            "policies are ONNX files, which need the package onnx; pip install 'td-loop[deploy]'"
        ) from e
    return onnx


def _parse(path: Path, data: bytes) -> Artefact:
    try:
        return Artefact(path, hashlib.sha256(data).hexdigest(), *_contents(data), data)
    except DataError as e:
        raise DataError(f"{path}: {e}; {_REMEDY}") from e


def _contents(data: bytes) -> tuple[ArtefactMeta, Mapping[str, Tensor]]:
    """Metadata and weights.

    Raises:
        DataError: a fault, without the file's name.
    """
    onnx = import_onnx()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as e:  # DecodeError of whichever protobuf is there
        raise DataError(f"is truncated, damaged or no ONNX file ({e})") from e
    meta = _meta(data, {p.key: p.value for p in model.metadata_props})
    _refuse_other_files(onnx, model)
    _refuse_other_versions(model)
    try:
        onnx.checker.check_model(model)
    except Exception as e:  # a ValidationError, or what its C++ raises
        raise DataError(f"is no valid ONNX model ({' '.join(str(e).split())[:200]})") from e
    _refuse_other_shapes(onnx, model.graph, meta.contract)
    return meta, _weights(onnx, model.graph)


def _tail(text: bytes, graph: bytes) -> bytes:
    tail = import_onnx().ModelProto()
    for key, value in ((META_KEY, text.decode()), (DIGEST_KEY, hashlib.sha256(graph + text).hexdigest())):
        tail.metadata_props.add(key=key, value=value)
    tailed: bytes = tail.SerializeToString(deterministic=True)
    return tailed


def _meta(data: bytes, props: Mapping[str, str]) -> ArtefactMeta:
    if META_KEY not in props:
        raise DataError(f"has no metadata {META_KEY!r}: it is truncated, or was not written by td_loop")
    try:
        text = props[META_KEY].encode()
        content = orjson.loads(text)
    except (orjson.JSONDecodeError, AttributeError) as e:  # what is no UTF-8 comes as bytes
        raise DataError(f"its metadata {META_KEY!r} is not JSON ({e})") from e
    try:
        meta = from_json(content)
    except DataError as e:
        raise DataError(f"its metadata {META_KEY!r} {e}") from e
    # The version goes first: another version may have another digest.
    end = len(data) - len(_tail(text, b""))
    if data[end:] != _tail(text, data[:end]):
        raise DataError("does not have the digest in its metadata: a byte was changed after it was written")
    return meta


def _refuse_other_files(onnx: Any, model: Any) -> None:
    for tensor in _tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise DataError(f"its tensor {tensor.name!r} lies in another file: an artefact is one file")


def _tensors(graph: Any) -> Iterator[Any]:
    """Every tensor of a graph and of the graphs inside its nodes."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _refuse_other_versions(model: Any) -> None:
    opsets = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    if opsets != {"ai.onnx": OPSET} or model.ir_version != IR_VERSION or model.functions:
        raise DataError(
            f"is written in IR version {model.ir_version} and {opsets}, must be {IR_VERSION} and ai.onnx {OPSET}"
        )


def _refuse_other_shapes(onnx: Any, graph: Any, contract: PolicyContract) -> None:
    weights = {t.name for t in graph.initializer}
    wanted = {spec.name: tuple(a if isinstance(a, int) else None for a in spec.axes) for spec in contract.inputs}
    for kind, given, must in (
        ("inputs", [x for x in graph.input if x.name not in weights], wanted),
        ("outputs", list(graph.output), {OUTPUT: (None, None, None)}),
    ):
        found = {x.name: _axes(onnx, x) for x in given}
        if list(found) != list(must):
            raise DataError(f"its network has the {kind} {list(found)}, must be {list(must)}")
        for name, axes in found.items():
            # The number of options may be fixed, all other lengths of the answer come with the request.
            free = (*axes[:2], None) if kind == "outputs" and axes else axes
            if free != must[name]:
                raise DataError(f"its network's {name!r} is {_shown(axes)}, must be {_shown(must[name])}")


def _axes(onnx: Any, value: Any) -> tuple[int | None, ...] | None:
    """Lengths of the axes, None for one of variable length; None altogether for what is no f32 tensor."""
    kind = value.type.tensor_type
    if kind.elem_type != onnx.TensorProto.FLOAT:
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)


def _shown(axes: tuple[int | None, ...] | None) -> str:
    if axes is None:
        return "no f32 tensor"
    return f"f32[{', '.join('?' if a is None else str(a) for a in axes)}]"


def _weights(onnx: Any, graph: Any) -> Mapping[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for tensor in graph.initializer:
        try:
            x: npt.NDArray[Any] = onnx.numpy_helper.to_array(tensor)
        except Exception as e:  # whatever a tensor whose bytes do not fit its shape raises
            raise DataError(f"its weight {tensor.name!r} cannot be read ({e})") from e
        if not np.issubdtype(x.dtype, np.floating):
            continue
        bad = np.argwhere(~np.isfinite(x))
        if len(bad):
            raise DataError(f"its weight {tensor.name!r} holds {x[tuple(bad[0])]} at {bad[0].tolist()}")
        weights[tensor.name] = x
    return weights


def _difference(found: PolicyContract, wanted: PolicyContract) -> str:
    if found.game != wanted.game:
        return f"is a policy for {found.game!r}, not for {wanted.game!r}"
    a, b = contract_json(found), contract_json(wanted)
    key = next(key for key in b if a[key] != b[key])
    return f"its contract is not that of {wanted.game!r}: '{key}' is {_short(a[key])}, must be {_short(b[key])}"


def _short(value: Any) -> str:
    text = dumps_json(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."
