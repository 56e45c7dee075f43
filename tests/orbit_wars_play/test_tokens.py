"""tokens: the numbers of seats and planets mean nothing, arrivals are merged, all is within the contract."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, Position, copy_state
from td_loop.games.orbit_wars.tokens import ARRIVAL, CONTRACT, PLANET, policy_inputs, slots_of
from td_loop.games.orbit_wars.tokens_fill import ARRIVAL_LIMIT
from td_loop.policy.network import NumpyNetwork
from td_loop.policy.shape import NetworkSize, start
from tests.orbit_wars_agents.positions import GAMES, positions

RUN = NumpyNetwork(start(CONTRACT, NetworkSize(), np.random.default_rng(0)), CONTRACT)
ALL = [pos for seed, seats in GAMES for pos in positions(seed, seats)]
places = st.sampled_from(range(len(ALL)))


def with_seats(position: Position, number: list[int]) -> Position:
    """`position` with seat k called `number[k]`."""
    s = copy_state(position.state)
    names = np.array([*number, -1])  # -1 stays -1
    s.p_owner[:] = names[s.p_owner]
    s.f_owner[:] = names[s.f_owner]
    return Position(position.board, s)


def with_planets(position: Position, order: np.ndarray) -> Position:
    """`position` with its home planets in another order: planet k was `order[k]`."""
    b, s = position.board, copy_state(position.state)
    m = len(b.home_x)
    board = b._replace(
        **{
            name: getattr(b, name)[order]
            for name in ("home_x", "home_y", "home_ships", "orbit_r", "orbit_angle", "rotates")
        }
    )
    for name, column in s._asdict().items():
        if name.startswith("p_"):
            column[:m] = column[:m][order]
    return Position(board, s)


@given(places, st.permutations(range(4)))
def test_what_a_seat_sees_does_not_depend_on_the_numbers_of_seats(k: int, names: list[int]) -> None:
    position = ALL[k]
    p = position.board.n_players
    number = [x for x in names if x < p]
    for seat in np.flatnonzero(alive(position)).tolist():
        a = policy_inputs(position, seat)
        b = policy_inputs(with_seats(position, number), number[seat])
        for name, x in a.items():
            if name not in ("events", "lands"):  # equal ticks are listed by seat
                np.testing.assert_array_equal(x, b[name], err_msg=name)
        np.testing.assert_allclose(RUN(a), RUN(b), rtol=1e-4, atol=1e-4)


@given(places, st.integers(0, 2**32 - 1))
def test_renumbered_planets_have_the_same_options(k: int, luck: int) -> None:
    position = ALL[k]
    n, m = int(position.state.head[N_PLANETS]), len(position.board.home_x)
    order = np.random.default_rng(luck).permutation(m)
    moved = with_planets(position, order)
    whole = np.concatenate([order, np.arange(m, n)])  # node j was node whole[j]
    for seat in range(position.board.n_players):
        if not len(slots_of(position, seat)):
            continue
        a, b = policy_inputs(position, seat), policy_inputs(moved, seat)
        np.testing.assert_allclose(b["nodes"], a["nodes"][:, whole], atol=1e-6)
        la, lb = RUN(a)[0], RUN(b)[0]
        was = a["slots"][0].argmax(1)
        now = whole[b["slots"][0].argmax(1)]
        same = [int(np.flatnonzero(was == x)[0]) for x in now]
        la = la[same]
        np.testing.assert_allclose(lb[:, 0], la[:, 0], rtol=1e-4, atol=1e-4)
        by_target = la[:, 1:].reshape(len(same), n, -1)[:, whole]
        np.testing.assert_allclose(lb[:, 1:].reshape(len(same), n, -1), by_target, rtol=1e-4, atol=1e-4)


@given(places)
def test_inputs_are_those_of_the_contract(k: int) -> None:
    position = ALL[k]
    for seat in range(position.board.n_players):
        inputs = policy_inputs(position, seat)
        lengths = {"B": 1}
        assert list(inputs) == [spec.name for spec in CONTRACT.inputs]
        for spec in CONTRACT.inputs:
            x = inputs[spec.name]
            assert x.dtype == np.float32
            assert x.flags.c_contiguous
            assert np.isfinite(x).all()
            assert np.abs(x).max() <= 20, spec.name
            for axis, n in zip(spec.axes, x.shape, strict=True):
                assert n == (axis if isinstance(axis, int) else lengths.setdefault(axis, n))
        assert all(1 <= lengths[axis] <= most for axis, most in CONTRACT.limits.items())


def test_fleets_that_land_together_are_one_arrival_and_the_soonest_are_shown() -> None:
    position = max(ALL, key=lambda pos: int(pos.state.head[N_FLEETS]))
    s = position.state
    f = int(s.head[N_FLEETS])
    doubled = {
        name: np.concatenate([a[:f], a[:f]]) if name.startswith("f_") else a for name, a in s._asdict().items()
    }
    twice = s._replace(**{**doubled, "head": s.head.copy()})
    twice.head[N_FLEETS] = 2 * f
    a = policy_inputs(position, 0)["events"][0]
    b = policy_inputs(Position(position.board, twice), 0)["events"][0]
    assert 1 <= len(a) == len(b) <= ARRIVAL_LIMIT
    eta, ships = ARRIVAL.index("eta"), ARRIVAL.index("ships")
    assert (np.diff(a[:, eta]) >= 0).all()
    np.testing.assert_array_equal(a[:, eta], b[:, eta])
    assert (b[:, ships] > a[:, ships]).all()


def test_a_seat_without_planets_has_one_masked_slot() -> None:
    position = ALL[0]
    s = copy_state(position.state)
    s.p_owner[s.p_owner == 1] = 0
    inputs = policy_inputs(Position(position.board, s), 1)
    assert inputs["slot_mask"].tolist() == [[0.0]]
    assert not inputs["pair_mask"].any()
    assert not inputs["open"].any()
    assert not inputs["slots"].any()
    assert inputs["event_mask"].tolist() == [[0.0]]


@pytest.mark.parametrize("seat", [0, 1])
def test_own_and_enemy_change_places_with_the_seat(seat: int) -> None:
    position = positions(11, 2)[40]
    nodes = policy_inputs(position, seat)["nodes"][0]
    owner = position.state.p_owner[: len(nodes)]
    np.testing.assert_array_equal(nodes[:, PLANET.index("own")] == 1, owner == seat)
    np.testing.assert_array_equal(nodes[:, PLANET.index("enemy")] == 1, owner == 1 - seat)
    np.testing.assert_array_equal(nodes[:, PLANET.index("neutral")] == 1, owner == -1)


def test_the_game_says_what_its_tokens_are() -> None:
    assert GAME.contract == CONTRACT
    assert CONTRACT.limits["N"] == 44
