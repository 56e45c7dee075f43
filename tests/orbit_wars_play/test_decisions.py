"""What `benchmarks/bench_decisions.py` claims of 100,000 states, of fewer; and that it would notice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_decisions as bench
from td_loop.games.base import Budget, Decision
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.replays import open_replays
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import N_PLANETS, Action, Position
from td_loop.kernels import cache_dir
from td_loop.value.io import load_weights

WEIGHTS = Path(__file__).parents[2] / "models" / "value_spline_v2.npz"


@pytest.fixture(scope="module")
def store() -> bench.Store:
    return open_replays(None, cache_dir())


@pytest.fixture(scope="module")
def search() -> OrbitSearch:
    return OrbitSearch(load_weights(WEIGHTS))


class Cheat:
    """Answers with the same action whatever it is asked."""

    def __init__(self, action: list[list[float]]) -> None:
        self.action = np.array(action, np.float64).reshape(-1, 3)

    def __call__(self, pos: Position, seat: int, budget: Budget, rng: np.random.Generator) -> Decision[Action]:
        return Decision(self.action, 1)


def test_every_decision_is_legal_in_states_of_every_kind(search: OrbitSearch, store: bench.Store) -> None:
    found = bench.check(search, store, 1600, 400, np.random.default_rng(7))
    assert tuple(found) == bench.KINDS
    for tally in found.values():
        assert tally.decisions == 400
        assert tally.launches > 200  # a search that never launches would be legal, too
        assert tally.refused == 0


def test_an_illegal_launch_is_noticed() -> None:
    pos = new_game(5, 2)
    s = pos.state
    n = int(s.head[N_PLANETS])
    mine, theirs = (int(np.flatnonzero(s.p_owner[:n] == seat)[0]) for seat in (0, 1))
    have = int(s.p_ships[mine])
    assert bench.legal(pos, 0, np.array([[mine, 0.5, have]]))
    assert bench.legal(pos, 0, np.zeros((0, 3)))
    for wrong in (
        [[mine, 0.5, have + 1]],
        [[mine, 0.5, have], [mine, 0.5, 1]],  # together more than there are
        [[mine, 0.5, 0]],
        [[mine, 0.5, 1.5]],
        [[mine, np.nan, 1]],
        [[theirs, 0.5, 1]],
        [[n, 0.5, 1]],
    ):
        assert not bench.legal(pos, 0, np.array(wrong, np.float64))


def test_decisions_with_an_illegal_launch_are_counted(store: bench.Store) -> None:
    found = bench.check(Cheat([[0, 0.0, 10**9]]), store, 8, 10, np.random.default_rng(0))
    assert all(tally == bench.Tally(2, 2, 2) for tally in found.values())


def test_recorded_states_come_from_all_games(store: bench.Store) -> None:
    boards = {id(pos.board.home_x) for pos in bench.recorded(store, 3000)}
    assert len(boards) > 0.9 * len(store.games)


def test_states_of_random_play_have_fleets_comets_and_new_maps() -> None:
    made = bench.random_play(np.random.default_rng(0))
    some = [next(made) for _ in range(300)]
    assert {pos.board.n_players for pos in some} == {2, 4}
    assert len({id(pos.board) for pos in some}) > 2
    assert any(pos.state.head[bench.N_FLEETS] > 20 for pos in some)
    assert any((pos.state.p_comet[: pos.state.head[N_PLANETS]] >= 0).any() for pos in some)


def test_a_long_game_leaves_nothing_behind(search: OrbitSearch, store: bench.Store) -> None:
    more, arrays, turns = bench.growth(search, store, evals=40)
    assert turns >= 498
    assert more < bench.GROWTH
    assert arrays == 0


def test_a_search_that_keeps_things_is_noticed(store: bench.Store) -> None:
    kept = []

    class Hoarder(Cheat):
        def __call__(self, pos: Position, seat: int, budget: Budget, rng: np.random.Generator) -> Decision[Action]:
            kept.append(pos.state.p_ships.copy())
            return super().__call__(pos, seat, budget, rng)

    assert bench.growth(Hoarder([]), store)[0] > bench.GROWTH


def test_the_table_of_times_has_every_decision_in_one_line_and_in_the_last() -> None:
    ms = np.arange(1.0, 1001.0)
    planets, fleets = np.tile([20.0, 30.0, 40.0, 30.0], 250), np.repeat([0.0, 10.0, 29.0, 30.0], 250)
    *lines, everything = bench.times_table(bench.Times(ms, planets, fleets))
    assert sum(n for _, _, n, _ in lines) == everything[2] == 1000
    assert everything[3] == pytest.approx([500.5, 990.01, 999.001, 1000])
    (worst,) = (marks for p, f, _, marks in lines if (p, f) == ("below 28", "30 or more"))
    assert worst[3] == 997.0


def test_times_are_those_of_the_decisions(store: bench.Store) -> None:
    times = bench.timed(Cheat([]), store, 40, 0.01, False, np.random.default_rng(0))
    assert len(times.ms) == 40
    assert (times.ms >= 0).all()
    assert (times.planets >= 20).all()
