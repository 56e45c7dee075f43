"""Identical states: their answers are compared, and nothing else is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.observe.replays import Replays, key_of
from tests.deploy.toy_policy import decisions
from tests.deploy.toy_served import GAME


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2))))
def test_the_counters_are_those_of_a_plain_account(asked: list[tuple[int, int]]) -> None:
    replays, last = Replays(), {}
    replayed = differing = 0
    for state, answer in asked:
        same = last.get(state, answer) == answer
        assert replays.add(state, answer) is same
        replayed += state in last
        differing += not same
        last[state] = answer
    assert (replays.replayed, replays.differing) == (replayed, differing)


def test_a_policy_without_noise_never_differs() -> None:
    replays = Replays()
    for state in list(range(50)) * 3:
        assert replays.add(state, ("launch", state))
    assert (replays.replayed, replays.differing) == (100, 0)


def test_memory_is_bounded_and_the_states_asked_for_last_are_kept() -> None:
    replays = Replays(states=10)
    for state in range(100):
        replays.add(state, 0)
    assert replays.add(0, 1)  # forgotten, so there is nothing that it differs from
    assert not replays.add(99, 1)
    assert replays.replayed == 1


def test_a_state_has_the_same_key_each_time_and_another_state_another() -> None:
    inputs = [GAME.policy_inputs(state, seat) for state, seat in decisions(range(10))]
    distinct = {tuple(x.tobytes() for x in i.values()) for i in inputs}
    assert len({key_of(i) for i in inputs}) == len(distinct)
    assert key_of(inputs[0]) == key_of({k: np.asfortranarray(x) for k, x in inputs[0].items()})
