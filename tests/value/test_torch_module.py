from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from td_loop.value.evaluate import evaluate
from td_loop.value.torch_module import SplineModule
from tests.synthetic import value_function
from tests.value.strategies import batches, values


@given(st.data())
def test_torch_and_numba_agree(data: st.DataObject) -> None:
    v = data.draw(values())
    features, players, alive = data.draw(batches(v))
    with torch.no_grad():
        log_v = SplineModule(v)(torch.from_numpy(features), torch.from_numpy(players), torch.from_numpy(alive))
    assert np.allclose(log_v.exp().numpy(), evaluate(v, features, players, alive), rtol=0, atol=1e-6)


@given(st.data())
def test_the_gradient_is_finite_with_seats_dead(data: st.DataObject) -> None:
    v = data.draw(values())
    features, players, alive = data.draw(batches(v))
    module = SplineModule(v)
    log_v = module(torch.from_numpy(features), torch.from_numpy(players), torch.from_numpy(alive))
    log_v.masked_fill(~torch.from_numpy(alive), 0.0).sum().backward()
    assert module.coef.grad is not None
    assert torch.isfinite(module.coef.grad).all()


def test_only_the_coefficients_are_trained() -> None:
    assert [name for name, _ in SplineModule(value_function()).named_parameters()] == ["coef"]
