"""What plans the search comes to under the weights that are shipped: not single launches but what they lead to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import scores, step
from td_loop.games.orbit_wars.features import FEATURE_NAMES
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import (
    COMET_SPAWN_STEPS,
    DONE,
    EPISODE,
    N_FLEETS,
    N_PLANETS,
    STEP,
    Action,
    Position,
    copy_state,
)
from td_loop.value.io import load_weights
from tests.orbit_wars_agents.positions import positions

WEIGHTS = Path(__file__).parents[2] / "models" / "value_spline_v2.npz"
SEARCH = OrbitSearch(load_weights(WEIGHTS, feature_names=FEATURE_NAMES))


def decide(pos: Position, seat: int, evals: int = 600) -> Action:
    return SEARCH(pos, seat, Budget(evals=evals), np.random.default_rng(0)).action


def idle(pos: Position, turns: int) -> Position:
    """`pos` after turns in which nobody launches anything."""
    for _ in range(turns):
        pos = step(pos, [None] * pos.board.n_players)
    return pos


def still(seed: int) -> tuple[Position, list[int]]:
    """A new game of two without neutrals to take, and its planets that do not move, nearest to the first first."""
    pos = new_game(seed, 2)
    s = copy_state(pos.state)
    n = int(s.head[N_PLANETS])
    s.p_owner[:n], s.p_ships[:n] = -1, 2000
    fixed = [i for i in range(n) if not pos.board.rotates[i]]
    x, y = s.p_x[fixed[0]], s.p_y[fixed[0]]
    return Position(pos.board, s), sorted(fixed, key=lambda i: float(np.hypot(s.p_x[i] - x, s.p_y[i] - y)))


def comet_about_to_leave(seed: int) -> tuple[Position, int]:
    """Seat 0 holds, besides a home far away, a comet with 40 ships that vanishes in the coming tick."""
    pos = new_game(seed, 2)
    while pos.state.head[STEP] <= COMET_SPAWN_STEPS[0]:
        pos = idle(pos, 1)
    length = int(pos.board.comet_len[0])
    while pos.state.comet_at[0] < length - 1:
        pos = idle(pos, 1)
    s = copy_state(pos.state)
    comets = np.flatnonzero(s.p_comet[: s.head[N_PLANETS]] == 0)
    homes = np.flatnonzero(s.p_owner[: s.head[N_PLANETS]] == 0)
    away = [np.hypot(s.p_x[homes[0]] - s.p_x[c], s.p_y[homes[0]] - s.p_y[c]) for c in comets]
    comet = int(comets[np.argmax(away)])
    s.p_owner[comet], s.p_ships[comet] = 0, 40
    return Position(pos.board, s), comet


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("evals", [300, 600])
def test_ships_leave_a_comet_before_it_vanishes(seed: int, evals: int) -> None:
    pos, comet = comet_about_to_leave(seed)
    assert scores(idle(pos, 1))[0] < scores(pos)[0]  # who stays is lost
    action = decide(pos, 0, evals)
    assert action[action[:, 0] == comet, 2].sum() == 40


def test_sources_arrive_together_where_none_of_them_would_do_alone() -> None:
    pos, fixed = still(5)
    s = pos.state
    target, sources = fixed[0], fixed[1:4]
    s.p_owner[sources], s.p_ships[sources] = 0, 40
    s.p_owner[target], s.p_ships[target] = 1, 60
    s.p_owner[fixed[-1]], s.p_ships[fixed[-1]] = 1, 5
    assert s.p_ships[sources].max() < s.p_ships[target]
    taken = step(pos, [decide(pos, 0, 2000), None])
    assert len(set(taken.state.f_from[: taken.state.head[N_FLEETS]].tolist()) & set(sources)) >= 2
    assert idle(taken, 40).state.p_owner[target] == 0


def test_a_planet_that_cannot_be_saved_is_taken_back() -> None:
    pos, fixed = still(5)
    s = pos.state
    weak, strong, theirs = fixed[0], fixed[1], fixed[-1]
    s.p_owner[[weak, strong]], s.p_ships[[weak, strong]] = 0, (5, 80)
    s.p_owner[theirs], s.p_ships[theirs] = 1, 5
    toward = np.arctan2(50.0 - s.p_y[weak], 50.0 - s.p_x[weak]) + 0.9
    s.head[N_FLEETS] = 1
    s.f_owner[0], s.f_ships[0], s.f_id[0], s.f_from[0] = 1, 30, 0, theirs
    s.f_x[0], s.f_y[0] = s.p_x[weak] + 4 * np.cos(toward), s.p_y[weak] + 4 * np.sin(toward)
    s.f_angle[0] = toward + np.pi
    assert idle(pos, 3).state.p_owner[weak] == 1  # sooner than any help could be there
    lost = False
    for _ in range(40):
        pos = step(pos, [decide(pos, 0), None])
        lost = lost or pos.state.p_owner[weak] == 1
    assert lost
    assert pos.state.p_owner[weak] == 0


def test_the_last_turns_are_played_for_ships() -> None:
    """Against one who plays on, playing on leaves more ships than not to launch any more."""
    gained = []
    for seed in (11, 13):
        for turn in range(40, len(positions(seed, 2)) - 1, 10):
            pos = positions(seed, 2)[turn]
            cfg = pos.board.cfg.copy()
            cfg[EPISODE] = turn + 9
            start = Position(pos.board._replace(cfg=cfg), pos.state)
            if scores(start)[:2].min() < 0.3 * scores(start)[:2].max():
                continue  # decided
            for seat in range(2):
                ahead = []
                for plays in (True, False):
                    now = start
                    while not now.state.head[DONE]:
                        one = decide(now, seat, 200) if plays else None
                        other = decide(now, 1 - seat, 200)
                        now = step(now, [one, other] if seat == 0 else [other, one])
                    ahead.append(int(scores(now)[seat] - scores(now)[1 - seat]))
                gained.append(ahead[0] - ahead[1])
    assert len(gained) >= 20
    assert np.mean(gained) > 0
