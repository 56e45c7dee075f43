"""The artefact file: what goes in comes out, and every kind of damage is refused by name."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import DataError, UsageError
from td_loop.policy.artefact import META_KEY, Artefact, read_artefact, write_artefact
from td_loop.policy.meta import ArtefactMeta, Case
from td_loop.policy.runtimes import open_runner
from tests.deploy.toy_policy import make_meta, make_network, make_weights, run_numpy, write_good
from tests.deploy.toy_served import CONTRACT


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return write_good(tmp_path_factory.mktemp("artefact") / "policy.onnx")


def test_what_was_written_is_read_back(good: Artefact) -> None:
    read = read_artefact(good.path, CONTRACT)
    assert read.sha256 == hashlib.sha256(good.path.read_bytes()).hexdigest() == good.sha256
    meta = make_meta(make_weights())
    assert read.meta.contract == meta.contract
    assert read.meta.reference == meta.reference
    assert read.meta.parents == meta.parents
    assert read.meta.training == meta.training
    for a, b in zip(read.meta.cases, meta.cases, strict=True):
        np.testing.assert_array_equal(a.logits, b.logits)
        for name in b.inputs:
            np.testing.assert_array_equal(a.inputs[name], b.inputs[name])
    np.testing.assert_array_equal(read.weights["query"], make_weights()["query"])


def test_equal_policies_are_equal_files(good: Artefact, tmp_path: Path) -> None:
    assert write_good(tmp_path / "again.onnx").sha256 == good.sha256
    assert write_good(tmp_path / "other.onnx", seed=1).sha256 != good.sha256


def test_any_reader_of_onnx_takes_it(good: Artefact) -> None:
    model = onnx.load(good.path)
    onnx.checker.check_model(model, full_check=True)
    assert META_KEY in {p.key for p in model.metadata_props}


def test_onnxruntime_computes_the_reference_cases(good: Artefact) -> None:
    runner = open_runner(good.path)
    for case in good.meta.cases:
        np.testing.assert_allclose(runner(case.inputs), case.logits, atol=1e-5)


def test_an_unknown_runtime_is_a_usage_error(good: Artefact) -> None:
    with pytest.raises(UsageError, match="no runtime 'tensorflow'"):
        open_runner(good, "tensorflow")  # type: ignore[arg-type]


@given(part=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(
    good: Artefact, tmp_path_factory: pytest.TempPathFactory, part: float
) -> None:
    path = tmp_path_factory.mktemp("cut") / "cut.onnx"
    path.write_bytes(good.data[: int(part * len(good.data))])
    with pytest.raises(DataError, match=r"cut\.onnx: .*(truncated|digest)"):
        read_artefact(path)


@given(part=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused(good: Artefact, part: float, bit: int) -> None:
    data = bytearray(good.data)
    data[int(part * len(data))] ^= 1 << bit
    path = good.path.with_name("flip.onnx")
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"flip\.onnx: "):
        read_artefact(path)


def test_a_missing_file_a_folder_and_another_kind_of_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello, this is no model\n")
    (tmp_path / "folder.onnx").mkdir()
    for name, fault in (("no.onnx", "no such file"), ("folder.onnx", "cannot be read"), ("text.onnx", "no ONNX")):
        with pytest.raises(DataError, match=f"{name}: .*{fault}"):
            read_artefact(tmp_path / name)


def test_onnx_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bare.onnx"
    onnx.save(make_network(make_weights()), path)
    with pytest.raises(DataError, match=r"bare\.onnx: has no metadata 'td_loop'"):
        read_artefact(path)


def test_another_game_and_another_contract_are_refused(good: Artefact) -> None:
    with pytest.raises(DataError, match=r"is a policy for 'tests\.deploy\.toy_served:GAME', not for 'chess'"):
        read_artefact(good.path, dataclasses.replace(CONTRACT, game="chess"))
    with pytest.raises(DataError, match="'version' is 1, must be 2"):
        read_artefact(good.path, dataclasses.replace(CONTRACT, version=2))
    with pytest.raises(DataError, match="'inputs' is"):
        read_artefact(good.path, dataclasses.replace(CONTRACT, inputs=CONTRACT.inputs[:1]))


def _nan_weight(model: Any) -> None:
    weights = make_weights()
    weights["out"][3, 1] = np.nan
    for k, tensor in enumerate(model.graph.initializer):
        if tensor.name == "out":
            model.graph.initializer[k].CopyFrom(onnx.numpy_helper.from_array(weights["out"], "out"))


def _external(model: Any) -> None:
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    tensor.ClearField("raw_data")


def _other_opset(model: Any) -> None:
    model.opset_import[0].version = 20


def _other_input(model: Any) -> None:
    model.graph.input[0].name = "planets"
    for node in model.graph.node:
        for k, name in enumerate(node.input):
            if name == "seats":
                node.input[k] = "planets"


def _fixed_length(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4


def _unknown_op(model: Any) -> None:
    model.graph.node[0].op_type = "Frobnicate"


FAULTY: list[tuple[Callable[[Any], None], str]] = [
    (_nan_weight, r"its weight 'out' holds nan at \[3, 1\]"),
    (_external, "lies in another file"),
    (_other_opset, "'ai.onnx': 20"),
    (_other_input, r"inputs \['planets', 'present'\]"),
    (_fixed_length, r"'seats' is f32\[\?, 4, 5\], must be f32\[\?, \?, 5\]"),
    (_unknown_op, "no valid ONNX model"),
]


@pytest.mark.parametrize(("change", "fault"), FAULTY, ids=lambda x: getattr(x, "__name__", ""))
def test_a_faulty_network_is_not_even_written(tmp_path: Path, change: Callable[[Any], None], fault: str) -> None:
    model = make_network(make_weights())
    change(model)
    with pytest.raises(DataError, match=f"bad.onnx: .*{fault}"):
        write_artefact(tmp_path / "bad.onnx", model, make_meta(make_weights()))
    assert not (tmp_path / "bad.onnx").exists()


def _without_cases(meta: ArtefactMeta) -> ArtefactMeta:
    return dataclasses.replace(meta, cases=())


def _without_a_column(meta: ArtefactMeta) -> ArtefactMeta:
    return dataclasses.replace(meta, reference={k: v for k, v in meta.reference.items() if k != "seats.land"})


def _with_a_nan_logit(meta: ArtefactMeta) -> ArtefactMeta:
    logits = np.full_like(meta.cases[0].logits, np.nan)
    return dataclasses.replace(meta, cases=(Case(meta.cases[0].inputs, logits),))


def _with_a_case_of_other_shape(meta: ArtefactMeta) -> ArtefactMeta:
    inputs = {**meta.cases[0].inputs, "present": np.ones((1, 7), np.float32)}
    return dataclasses.replace(meta, cases=(Case(inputs, meta.cases[0].logits),))


def _with_falling_edges(meta: ArtefactMeta) -> ArtefactMeta:
    column = meta.reference["seats.land"]
    turned = dataclasses.replace(column, edges=column.edges[::-1])
    return dataclasses.replace(meta, reference={**meta.reference, "seats.land": turned})


FAULTY_META: list[tuple[Callable[[ArtefactMeta], ArtefactMeta], str]] = [
    (_without_cases, "'cases' is empty"),
    (_without_a_column, "differ in 'seats.land'"),
    (_with_a_nan_logit, "not finite"),
    (_with_a_case_of_other_shape, r"'present' has the shape \(1, 7\)"),
    (_with_falling_edges, "edges of 'seats.land' do not rise"),
]


@pytest.mark.parametrize(("change", "fault"), FAULTY_META, ids=lambda x: getattr(x, "__name__", ""))
def test_faulty_metadata_is_not_even_written(
    tmp_path: Path, change: Callable[[ArtefactMeta], ArtefactMeta], fault: str
) -> None:
    weights = make_weights()
    with pytest.raises(DataError, match=f"bad.onnx: its metadata 'td_loop' .*{fault}"):
        write_artefact(tmp_path / "bad.onnx", make_network(weights), change(make_meta(weights)))


def test_an_unknown_version_is_refused_before_all_else(good: Artefact, tmp_path: Path) -> None:
    model = onnx.load(good.path)
    prop = next(p for p in model.metadata_props if p.key == META_KEY)
    prop.value = prop.value.replace('"format_version":1', '"format_version":99')
    (tmp_path / "new.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DataError, match=r"new\.onnx: its metadata 'td_loop' is of format version 99"):
        read_artefact(tmp_path / "new.onnx")


def test_the_hand_made_network_is_the_graph(good: Artefact) -> None:
    case = good.meta.cases[0]
    np.testing.assert_array_equal(run_numpy(good.weights, case.inputs), case.logits)
