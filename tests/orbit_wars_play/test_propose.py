from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.orbit_wars.aims import make_aims
from td_loop.games.orbit_wars.engine import step
from td_loop.games.orbit_wars.forecast import Forecast, begin, forecast_for, holding, send
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.propose import (
    GROUP,
    SEVERAL,
    SLOTS,
    Pool,
    make_pool,
    order_pairs,
    propose_group,
    propose_single,
)
from td_loop.games.orbit_wars.state import N_PLANETS, Position
from tests.orbit_wars_agents.positions import known_only
from tests.orbit_wars_play.values import played


def proposed(pos: Position, seat: int) -> tuple[Forecast, Pool]:
    """All candidates of `seat`."""
    board, state = pos
    paths = path_table(board)
    fc, pool = forecast_for(pos, 0.97), make_pool(len(state.p_x), make_aims(len(state.p_x)))
    begin(fc, board, paths, state)
    order_pairs(pool, fc, state, seat, np.ones(len(state.p_x), np.bool_))
    for q in range(pool.at[0]):
        propose = propose_group if pool.source[q] == SEVERAL else propose_single
        propose(pool, q, fc, board, paths, state, seat)
    return fc, pool


@settings(max_examples=25)
@given(played(), st.integers(0, 1), st.data())
def test_every_candidate_lands_where_and_when_it_says(pos: Position, seat: int, data: st.DataObject) -> None:
    pos = known_only(pos)
    fc, pool = proposed(pos, seat)
    found = [(q, s) for q in range(pool.at[0]) for s in range(SLOTS) if pool.size[q, s] and pool.wait[q, s] == 0]
    if not found:
        return
    q, s = data.draw(st.sampled_from(found))
    dst, k = int(pool.target[q]), int(pool.size[q, s])
    assert 1 <= k <= GROUP
    sources = pool.src[q, s, :k].tolist()
    assert len(set(sources)) == k
    launches = []
    for j, src in enumerate(sources):
        ships, eta = int(pool.ships[q, s, j]), int(pool.eta[q, s, j])
        assert fc.owner[src] == seat
        assert 1 <= ships <= fc.ships[src]
        launches.append((src, pool.angle[q, s, j], ships))
        send(fc, seat, src, dst, ships, eta)
    # The engine agrees with the forecast of all planets until the last fleet is down.
    actions: list[np.ndarray | None] = [None] * pos.board.n_players
    actions[seat] = np.array(launches)
    now = pos
    for tick in range(1, int(pool.eta[q, s, :k].max()) + 1):
        now = step(now, actions if tick == 1 else [None] * pos.board.n_players)
        if now.state.head[N_PLANETS] != pos.state.head[N_PLANETS]:
            return  # comets left: the planets behind them moved up in the list
        for i in range(now.state.head[N_PLANETS]):
            assert holding(fc, i, tick) == (now.state.p_owner[i], now.state.p_ships[i])


@settings(max_examples=25)
@given(played(), st.integers(0, 1))
def test_what_waits_can_be_paid_for_by_then(pos: Position, seat: int) -> None:
    fc, pool = proposed(pos, seat)
    for q in range(pool.at[0]):
        for s in range(SLOTS):
            wait = int(pool.wait[q, s])
            for j in range(pool.size[q, s] if wait else 0):
                src, ships = int(pool.src[q, s, j]), int(pool.ships[q, s, j])
                assert wait <= fc.mark[1]
                assert wait < fc.gone[src]
                assert ships <= fc.ships[src] + wait * fc.prod[src]
                assert pool.eta[q, s, j] > wait
                assert ships > fc.ships[src] or pool.source[q] == SEVERAL


@settings(max_examples=25)
@given(played(), st.integers(0, 1))
def test_groups_take_what_they_are_sent_for(pos: Position, seat: int) -> None:
    fc, pool = proposed(pos, seat)
    for q in range(pool.at[0]):
        if pool.source[q] != SEVERAL or not pool.size[q, 0]:
            continue
        k, dst = int(pool.size[q, 0]), int(pool.target[q])
        last = int(pool.eta[q, 0, :k].max())
        for sign in (1, -1):
            for j in range(k):
                send(fc, seat, pool.src[q, 0, j], dst, sign * pool.ships[q, 0, j], pool.eta[q, 0, j])
            if sign == 1:
                assert k >= 2
                assert holding(fc, dst, last)[0] == seat


@settings(max_examples=25)
@given(played(), st.integers(0, 1))
def test_pairs_are_named_once_and_sources_are_ones_own(pos: Position, seat: int) -> None:
    fc, pool = proposed(pos, seat)
    pairs = list(zip(pool.source[: pool.at[0]].tolist(), pool.target[: pool.at[0]].tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert all(src != dst and (src == SEVERAL or fc.owner[src] == seat) for src, dst in pairs)


@settings(max_examples=25)
@given(played(), st.integers(0, 1), st.data())
def test_only_wanted_targets_are_paired(pos: Position, seat: int, data: st.DataObject) -> None:
    fc, pool = proposed(pos, seat)
    every = {(int(a), int(b)) for a, b in zip(pool.source, pool.target[: pool.at[0]], strict=False)}
    n = int(pos.state.head[N_PLANETS])
    wanted = np.zeros(len(pos.state.p_x), np.bool_)
    wanted[data.draw(st.lists(st.integers(0, n - 1), max_size=5))] = True
    order_pairs(pool, fc, pos.state, seat, wanted)
    some = {(int(a), int(b)) for a, b in zip(pool.source, pool.target[: pool.at[0]], strict=False)}
    assert some == {pair for pair in every if wanted[pair[1]]}
