"""Kernels that do not look at their arguments: they are only ever given what they were settled for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.base import Budget
from td_loop.games.orbit_wars import search as module
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.calls import Calls
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import Position
from td_loop.kernels import kernel, layout, settled
from tests.orbit_wars_play.values import played, value_by_hand


def frozen(a: np.ndarray) -> np.ndarray:
    a.flags.writeable = False
    return a


FORMS: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda a: a,
    lambda a: a.copy(),
    lambda a: np.concatenate([a, a])[len(a) :],
    lambda a: np.repeat(a, 2, 0)[::2],
    lambda a: frozen(a.copy()),
    lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    lambda a: a.astype(np.float32),
    lambda a: a.astype(np.int64),
    lambda a: a[None],
    lambda a: np.asfortranarray(np.stack([a, a])),
]


@given(st.sampled_from(FORMS), st.sampled_from(FORMS), st.sampled_from([np.arange(3.0), np.ones((2, 5))]))
def test_arrays_of_one_layout_are_of_one_type(
    one: Callable[[np.ndarray], np.ndarray], other: Callable[[np.ndarray], np.ndarray], a: np.ndarray
) -> None:
    a, b = one(a), other(a)
    same = layout([a, 1]) == layout([b, 2])
    if same:
        assert numba.typeof(a) == numba.typeof(b)
    assert same or one is not other
    assert layout([a, 1]) != layout([b, 2.0])


@kernel
def _weighted(a: np.ndarray, weight: int) -> float:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * weight
    return total


def test_settled_code_does_what_the_kernel_does() -> None:
    code = settled(_weighted, np.zeros(1), 0)
    for n in range(5):
        assert code(np.arange(n) + 0.5, n) == _weighted(np.arange(n) + 0.5, n)


@settings(max_examples=20)
@given(played(), st.integers(0, 1), st.integers(1, 400))
def test_a_search_decides_the_same_with_kernels_that_look(pos: Position, seat: int, evals: int) -> None:
    def decide() -> tuple[int, bytes]:
        decision = OrbitSearch(value_by_hand())(pos, seat, Budget(evals=evals), np.random.default_rng(0))
        return decision.evals, decision.action.tobytes()

    without = decide()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "settled_calls", lambda *_: Calls())
        assert decide() == without


def test_a_position_of_another_layout_gets_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pos, search, asked = new_game(5, 2), OrbitSearch(value_by_hand()), []
    frames = [Position(pos.board, pos.state._replace(f_x=f(pos.state.f_x))) for f in FORMS[:5]]

    def settle(pos: Position, *_: Any) -> Calls:
        asked.append(numba.typeof(pos.state.f_x))
        return Calls(*[lambda *_: None] * len(Calls._fields))

    monkeypatch.setattr(module, "settled_calls", settle)
    monkeypatch.setattr(module, "begin", lambda *_: None)
    for frame in frames * 2:
        search(frame, 0, Budget(evals=1), np.random.default_rng(0))
    assert asked == list(dict.fromkeys(numba.typeof(f.state.f_x) for f in frames))
    assert len(asked) == 3
