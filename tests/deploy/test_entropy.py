"""Entropies: of one decision, and of what was chosen in many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from td_loop.deploy.observe.entropy import Choices, choices, decision_entropy, marginal_entropy
from td_loop.games.served import MASKED

SHAPE = st.tuples(st.integers(1, 5), st.integers(2, 9))


@st.composite
def answers(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(SHAPE)
    logits = draw(hnp.arrays(np.float32, shape, elements=st.floats(-50, 50, width=32)))
    opened = draw(hnp.arrays(bool, shape))
    opened[:, 0] = True
    return np.where(opened, logits, np.float32(MASKED)), opened


@given(answers())
def test_the_entropy_of_a_decision_is_that_of_the_definition(answer: tuple[np.ndarray, np.ndarray]) -> None:
    logits, opened = answer
    found = decision_entropy(logits, opened)
    each = []
    for x, there in zip(logits.astype(float), opened, strict=True):
        if there.sum() > 1:
            p = np.exp(x[there] - x[there].max())
            p /= p.sum()
            each.append(-sum(q * math.log(q) for q in p if q > 0))
    assert (found is None) == (not each)
    if each:
        assert found == pytest.approx(np.mean(each), abs=1e-4)
        assert -1e-6 <= found <= math.log(opened.sum(1).max()) + 1e-6


def test_a_slot_that_has_no_choice_does_not_count() -> None:
    logits = np.array([[0, 0, MASKED], [3, MASKED, MASKED]], np.float32)
    assert decision_entropy(logits, logits > MASKED) == pytest.approx(math.log(2))
    assert decision_entropy(logits[1:], logits[1:] > MASKED) is None
    assert choices(logits, logits > MASKED).tolist() == [0]


def test_a_collapsed_policy_has_no_marginal_entropy_however_unsure_it_is() -> None:
    varied, collapsed = Choices(), Choices()
    rng = np.random.default_rng(0)
    opened = np.ones((3, 8), bool)
    for _ in range(200):
        unsure = rng.normal(0, 0.1, (3, 8)).astype(np.float32)
        varied.add(choices(unsure, opened))
        collapsed.add(choices(unsure + np.eye(8, dtype=np.float32)[0], opened))
    assert marginal_entropy(collapsed.counts) == 0
    assert marginal_entropy(varied.counts) == pytest.approx(math.log(8), abs=0.05)
    both = marginal_entropy(varied.counts + collapsed.counts)
    assert 0 < both < math.log(8)


def test_without_choices_the_entropy_is_unknown() -> None:
    assert math.isnan(marginal_entropy(Choices().counts))


def test_old_choices_are_forgotten() -> None:
    seen = Choices(decisions=80)
    for k in range(1000):
        seen.add(np.array([k // 500]))
    assert seen.counts.tolist()[:2] == [0, seen.counts.sum()]
    assert 70 <= seen.counts.sum() <= 80
