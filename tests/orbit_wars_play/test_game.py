from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games import get_game
from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.state import DONE, N_FLEETS, N_PLANETS, Position, State
from tests.orbit_wars_play.values import played


def live(s: State) -> list[np.ndarray]:
    """The parts of a state that are not scrap."""
    n, f = s.head[N_PLANETS], s.head[N_FLEETS]
    return [s.head, *(a[:n] for a in s[1:9]), s.comet_at, *(a[:f] for a in s[10:])]


def test_the_registry_finds_it() -> None:
    assert get_game("orbit_wars") is GAME


@settings(max_examples=40)
@given(played(), st.data())
def test_launches_made_before_the_tick_are_launches_made_in_it(pos: Position, data: st.DataObject) -> None:
    seat = data.draw(st.integers(0, pos.board.n_players - 1))
    action = AGENTS["balanced"](pos, seat, np.random.default_rng(0))
    m = data.draw(st.integers(0, len(action)))
    before = [a.copy() for a in pos.state]
    partial = GAME.partial(pos, seat, action, m)
    assert all(np.array_equal(a, b) for a, b in zip(pos.state, before, strict=True))
    assert partial.state.head[N_FLEETS] == pos.state.head[N_FLEETS] + m
    assert GAME.n_launches(action) == len(action)
    rest: list[np.ndarray | None] = [None] * pos.board.n_players
    whole = list(rest)
    rest[seat], whole[seat] = action[m:], action
    for a, b in zip(live(GAME.step(partial, rest).state), live(GAME.step(pos, whole).state), strict=True):
        assert np.array_equal(a, b)


def test_a_game_runs_to_an_outcome() -> None:
    pos = GAME.initial(7, 4)
    assert GAME.n_players(pos) == 4
    assert GAME.alive(pos).tolist() == [True] * 4
    rng = np.random.default_rng(0)
    agents = [AGENTS["balanced"], AGENTS["idle"], AGENTS["idle"], AGENTS["idle"]]
    while GAME.outcome(pos) is None:
        pos = GAME.step(pos, [agent(pos, seat, rng) for seat, agent in enumerate(agents)])
    assert pos.state.head[DONE]
    outcome = GAME.outcome(pos)
    assert outcome is not None
    assert outcome.tolist() == [1.0, 0.0, 0.0, 0.0]


IN_A_FRESH_PROCESS = """
import gc
import numpy as np
from numba.core.dispatcher import Dispatcher
from td_loop.games.base import Budget
from td_loop.games.orbit_wars.game import GAME
from tests.orbit_wars_play.values import value_by_hand

def known():
    return {(d.py_func.__module__, d.py_func.__name__, str(s)) for d in gc.get_objects()
            if isinstance(d, Dispatcher) and d.py_func.__module__.startswith("td_loop") for s in d.signatures}

GAME.compile()
before = known()
assert any(name == "take_back" for _, name, _ in before), "second thoughts were not compiled"
pos = GAME.initial(3, 4)
search = GAME.make_search(value_by_hand())
for turn in range(60):
    action = search(pos, 1, Budget(evals=3 + 4 * turn), np.random.default_rng(0)).action
    GAME.features(GAME.partial(pos, 1, action, len(action)), 0.9)
    pos = GAME.step(pos, [None, action, None, None])
    GAME.outcome(pos)
print(sorted(known() - before))
"""


def test_compile_leaves_nothing_to_compile() -> None:
    """Workers only load kernels: no search, feature or engine call may need one that `compile` did not make."""
    done = subprocess.run([sys.executable, "-c", IN_A_FRESH_PROCESS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
