"""Reference statistics: bins hold what they say, and a value that many share stands alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from td_loop.errors import DataError
from td_loop.games.served import PolicyContract, TensorSpec
from td_loop.policy.reference import bins, column_of, real_entries, reference_of
from tests.deploy.toy_policy import decisions
from tests.deploy.toy_served import CONTRACT, GAME

VALUES = hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-1e6, 1e6, width=32))
FEW = hnp.arrays(np.float32, st.integers(1, 300), elements=st.sampled_from([0.0, 0.25, 1.0, 3.0]))


@given(x=VALUES | FEW)
def test_shares_are_those_of_the_bins(x: np.ndarray) -> None:
    column = column_of(x)
    assert column.count == len(x)
    assert column.low == x.min()
    assert column.high == x.max()
    assert (np.diff(column.edges) > 0).all()
    np.testing.assert_allclose(column.shares, bins(column.edges, x) / len(x))
    assert sum(column.shares) == pytest.approx(1)
    assert len(column.shares) <= 20


@given(x=FEW)
def test_a_value_that_many_share_stands_alone_and_survives_rounding(x: np.ndarray) -> None:
    column = column_of(x)
    for value, count in zip(*np.unique(x, return_counts=True), strict=True):
        if count > 0.1 * len(x):
            for near in (value, np.nextafter(value, np.inf), np.nextafter(value, -np.inf)):
                assert column.shares[int(bins(column.edges, np.array([near])).argmax())] == count / len(x)


@pytest.mark.parametrize("change", [-0.5, 0.5])
def test_a_constant_column_shows_a_change_in_either_direction(change: float) -> None:
    column = column_of(np.full(100, 1.0, np.float32))
    then, now = (bins(column.edges, np.full(10, v)) for v in (1.0, 1.0 + change))
    assert then.argmax() != now.argmax()


def test_padding_is_no_part_of_the_reference() -> None:
    inputs = GAME.policy_inputs(*next(decisions(range(2, 3))))
    padded = {name: np.concatenate([x, np.full_like(x[:, :1], 7)], axis=1) for name, x in inputs.items()}
    padded["present"][:, -1] = 0
    np.testing.assert_array_equal(real_entries(CONTRACT, CONTRACT.inputs[0], padded), inputs["seats"][0])
    assert reference_of(CONTRACT, [padded]) == reference_of(CONTRACT, [inputs])


def test_an_input_of_which_nothing_was_seen_is_named() -> None:
    inputs = GAME.policy_inputs(*next(decisions(range(2, 3))))
    nobody = inputs | {"present": np.zeros_like(inputs["present"])}
    with pytest.raises(DataError, match=r"any of: seats; play more games"):
        reference_of(CONTRACT, [nobody, nobody])


@pytest.mark.parametrize(
    ("axes", "there", "wanted"),
    [
        (("B", "S"), [[1, 0], [1, 1]], [0, 1, 2, 6, 7, 8, 9, 10, 11]),
        (("B", "N"), [[1, 1, 0], [1, 0, 1]], [0, 1, 3, 4, 6, 8, 9, 11]),
        (("B", "S", "N"), [[[1, 1, 0], [0, 0, 0]], [[1, 0, 1], [0, 1, 1]]], [0, 1, 6, 8, 10, 11]),
    ],
)
def test_a_mask_is_laid_along_its_own_axes(axes: tuple[str, ...], there: list[Any], wanted: list[int]) -> None:
    pairs = TensorSpec("pairs", ("B", "S", "N", 1), ("eta",), mask="mask")
    contract = PolicyContract("chess", 1, (pairs, TensorSpec("mask", axes)), "S", {"N": 9, "S": 9})
    inputs = {"pairs": np.arange(12, dtype=np.float32).reshape(2, 2, 3, 1), "mask": np.array(there, np.float32)}
    assert real_entries(contract, pairs, inputs)[:, 0].tolist() == wanted
