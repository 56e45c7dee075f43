"""The network three times: numpy, torch and onnxruntime say the same of any lengths, and padding says nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.errors import DataError, UsageError
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.served import MASKED, Inputs, PolicyContract, Tensor, TensorSpec
from td_loop.policy.graph import build
from td_loop.policy.network import NumpyNetwork
from td_loop.policy.onnx_runner import import_onnxruntime
from td_loop.policy.shape import NetworkSize, check, shapes, start
from td_loop.policy.torch_module import PolicyModule
from tests.policy.tensors import padded, random_inputs

CONTRACT = GAME.contract
SMALL = NetworkSize(width=12, heads=3, hidden=8, pointer=5)
SIZES = len(CONTRACT.inputs[-1].columns)
Run = Callable[[Inputs], Tensor]


def parameters(seed: int) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    noise = {n: rng.normal(size=s).astype(np.float32) * 0.3 for n, s in shapes(CONTRACT, SMALL).items()}
    return {n: x + noise[n] for n, x in start(CONTRACT, SMALL, rng).items()}


@cache
def runners(seed: int) -> dict[str, Run]:
    import torch

    p = parameters(seed)
    module = PolicyModule(p, CONTRACT)
    session = import_onnxruntime().InferenceSession(build(p, CONTRACT).SerializeToString())

    def by_torch(inputs: Inputs) -> Tensor:
        with torch.inference_mode():
            out: Tensor = module({n: torch.from_numpy(x) for n, x in inputs.items()}).numpy()
        return out

    def by_onnx(inputs: Inputs) -> Tensor:
        out: Tensor = session.run(None, dict(inputs))[0]
        return out

    return {"numpy": NumpyNetwork(p, CONTRACT), "torch": by_torch, "onnxruntime": by_onnx}


lengths = st.fixed_dictionaries(
    {"B": st.integers(1, 3), "N": st.integers(1, 44), "A": st.integers(1, 64), "S": st.integers(1, 44)}
)


@settings(max_examples=40)
@given(lengths, st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_the_three_say_the_same(n: dict[str, int], seed: int, luck: int) -> None:
    inputs = random_inputs(CONTRACT, n, np.random.default_rng(luck))
    found = {name: run(inputs) for name, run in runners(seed).items()}
    for logits in found.values():
        assert logits.dtype == np.float32
        assert logits.shape == (n["B"], n["S"], 1 + n["N"] * SIZES)
        np.testing.assert_allclose(logits, found["numpy"], rtol=1e-4, atol=1e-4)


@settings(max_examples=25)
@given(lengths, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_padding_changes_nothing(n: dict[str, int], nodes: int, events: int, slots: int, luck: int) -> None:
    rng = np.random.default_rng(luck)
    inputs = random_inputs(CONTRACT, n, rng)
    more = padded(CONTRACT, inputs, {"N": nodes, "A": events, "S": slots}, rng)
    for run in runners(0).values():
        plain = run(inputs)
        long = run(more)[:, : n["S"], : plain.shape[2]]
        np.testing.assert_allclose(long, plain, rtol=1e-4, atol=1e-4)


@given(st.integers(0, 2**32 - 1))
def test_a_closed_option_is_masked_and_an_open_one_finite(luck: int) -> None:
    inputs = random_inputs(CONTRACT, {"B": 2, "N": 9, "A": 4, "S": 5}, np.random.default_rng(luck))
    opened = inputs["open"] * inputs["pair_mask"][..., None] > 0
    for run in runners(1).values():
        logits = run(inputs)
        assert np.isfinite(logits).all()
        send = logits[:, :, 1:].reshape(opened.shape)
        assert (send[~opened] == MASKED).all()
        assert (send[opened] > MASKED / 2).all()


def test_several_threads_may_run_one_network() -> None:
    inputs = [
        random_inputs(CONTRACT, {"B": 1, "N": k + 3, "A": k + 1, "S": k + 1}, np.random.default_rng(k))
        for k in range(40)
    ]
    run = runners(0)["numpy"]
    alone = [run(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, inputs))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("name", ["pairs.w", "near.bias", "query.w", "send.b"])
def test_parameters_that_do_not_fit_are_refused_by_name(name: str) -> None:
    good = parameters(0)
    assert check(good, CONTRACT) == SMALL
    for wrong in (
        {k: v for k, v in good.items() if k != name},
        {**good, name: good[name][:-1]},
        {**good, name: good[name] * np.float32(np.nan)},
    ):
        with pytest.raises(DataError, match="policy network"):
            NumpyNetwork(wrong, CONTRACT)


def test_another_contract_is_refused(tmp_path: Path) -> None:
    other = PolicyContract("other", 1, (TensorSpec("seats", ("B", "S", 2), ("a", "b")),), "S", {"S": 2})
    with pytest.raises(DataError, match="has others"):
        shapes(other, SMALL)


@pytest.mark.parametrize("wrong", [{"width": 10, "heads": 4}, {"hidden": 0}, {"pointer": -1}])
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="multiple of heads"):
        NetworkSize(**wrong)
