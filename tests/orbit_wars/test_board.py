"""Maps, comets and planet positions."""

from __future__ import annotations

import random
from types import ModuleType

import numpy as np
import pytest

from td_loop.errors import UsageError
from td_loop.games.orbit_wars import comets, engine
from td_loop.games.orbit_wars.board import (
    new_game,
    orbits,
    planet_xy,
    speed_table,
)
from td_loop.games.orbit_wars.state import COMET_SPAWN_STEPS, N_PLANETS, STEP, Position


def _official_map(official: ModuleType, seed: int) -> tuple[float, list[list[float]], int]:
    rng = random.Random(seed)
    w = rng.uniform(0.025, 0.05)
    planets = official.generate_planets(rng)
    return w, planets, 4 * rng.randint(0, len(planets) // 4 - 1)


def _rows(pos: Position) -> list[list[float]]:
    s = pos.state
    n = int(s.head[N_PLANETS])
    columns = (s.p_owner, s.p_x, s.p_y, s.p_radius, s.p_ships, s.p_prod)
    return [list(r) for r in zip(range(n), *(c[:n].tolist() for c in columns), strict=True)]


@pytest.mark.parametrize("seed", [*range(60), 1461780796, 2**31 - 1])
def test_maps_are_the_official_ones(official: ModuleType, seed: int) -> None:
    w, planets, home = _official_map(official, seed)
    for n_players, copies in ((2, (0, 3)), (4, (0, 1, 2, 3))):
        pos = new_game(seed, n_players)
        expected = [list(p) for p in planets]
        for seat, k in enumerate(copies):
            expected[home + k][1], expected[home + k][5] = seat, 10
        assert _rows(pos) == expected
        assert pos.board.cfg[0] == w
        assert pos.board.n_players == n_players
        assert pos.board.home_ships.tolist() == [p[5] for p in planets]


@pytest.mark.parametrize(
    ("seed", "speed", "spawns"), [(0, 4.0, 5), (1, 4.0, 3), (2, 6, 3), (3, 2.5, 1), (5, 0.0, 1)]
)
def test_comets_are_the_official_ones(official: ModuleType, seed: int, speed: float, spawns: int) -> None:
    w, planets, _ = _official_map(official, seed)
    board = new_game(seed, 2, comet_speed=speed).board
    for g, spawn in enumerate(COMET_SPAWN_STEPS[:spawns]):
        rng = random.Random(f"orbit_wars-comet-{seed}-{spawn}")
        paths = official.generate_comet_paths(planets, w, spawn, [], speed, rng=rng)
        if not paths:
            assert board.comet_len[g] == 0
            continue
        n = int(board.comet_len[g])
        ours = np.stack([board.comet_x[g, :, :n], board.comet_y[g, :, :n]], axis=-1).tolist()
        assert ours == paths
        assert board.comet_ships[g] == min(rng.randint(1, 99) for _ in range(4))


def test_no_comets_come_where_all_tries_fail() -> None:
    assert new_game(5, 2, comet_speed=0.0).board.comet_len.tolist() == [0] * 5


def test_planets_stand_where_the_engine_puts_them() -> None:
    pos = new_game(7, 2)
    m = len(pos.board.home_x)
    assert pos.board.rotates.any()
    assert not pos.board.rotates.all()
    for _ in range(30):
        there = [planet_xy(pos.board, p, int(pos.state.head[STEP])) for p in range(m)]
        assert there == list(zip(pos.state.p_x[:m].tolist(), pos.state.p_y[:m].tolist(), strict=True))
        pos = engine.step(pos, [None, None])


def test_frames_0_and_1_show_the_same_positions() -> None:
    pos = new_game(3, 2)
    after = engine.step(pos, [None, None])
    np.testing.assert_allclose(after.state.p_x, pos.state.p_x, atol=1e-12)


def test_orbits_know_which_planets_turn() -> None:
    r, angle, rotates = orbits(np.array([60.0, 98.0]), np.array([50.0, 50.0]), np.array([1.0, 2.0]))
    assert r.tolist() == [10.0, 48.0]
    assert angle.tolist() == [0.0, 0.0]
    assert rotates.tolist() == [True, False]


def test_speed_rises_with_ships_and_stays_below_the_limit() -> None:
    table = speed_table(6.0)[1:]
    assert table[0] == 1.0
    assert table[999] == 6.0
    assert (np.diff(table) >= 0).all()
    assert table.max() == 6.0


def test_other_numbers_of_players_are_refused() -> None:
    with pytest.raises(UsageError, match="2 or 4 seats, not 3"):
        new_game(1, 3)


def test_games_share_nothing_that_a_turn_changes() -> None:
    a, b = new_game(1, 2), new_game(1, 2)
    a.state.p_ships[:] = 0
    assert b.state.p_ships.any()


# --- the shortcuts of comet generation ----------------------------------------------------------------------


def _candidates(n: int) -> list[tuple[float, float, float, float]]:
    rng = random.Random(9)
    out = []
    while len(out) < n:
        e, a = rng.uniform(0.75, 0.93), rng.uniform(60, 150)
        if a * (1 - e) >= 11:
            out.append((a, a * (1 - e**2) ** 0.5, a * e, rng.uniform(0.5, 1.1)))
    return out


@pytest.mark.parametrize("speed", [4.0, 0.01, 2.5, 40.0])
def test_the_fast_walk_visits_the_samples_of_the_exact_one(speed: float) -> None:
    table = comets.walk_table()
    fast, exact = np.empty(comets.SAMPLES, np.int64), np.empty(comets.SAMPLES, np.int64)
    decided = 0
    for a, b, c, phi in _candidates(60):
        n = comets.walk(a, b, speed, table, fast)
        m = comets.walk_exact(a, b, c, np.cos(phi), np.sin(phi), speed, 2.0, exact)
        if n >= 0:
            decided += 1
            assert fast[:n].tolist() == exact[:m].tolist()
    assert decided >= 50


def test_a_walk_that_is_too_close_to_call_says_so() -> None:
    a, b = _candidates(1)[0][:2]
    table = comets.walk_table()
    chord = 2.0 * np.sin(0.7 * np.pi / (comets.SAMPLES - 1)) * np.sqrt(b * b + (a * a - b * b) * table[0])
    assert comets.walk(a, b, float(chord), table, np.empty(comets.SAMPLES, np.int64)) == -1


def test_the_fast_clearance_test_agrees_with_the_exact_one() -> None:
    rng = random.Random(4)
    seen = set()
    for k in range(300):
        p = new_game(k % 20, 2)
        b, m = p.board, len(p.board.home_x)
        # short straight paths: long ones are hardly ever clear
        x, y, dx, dy = rng.uniform(0, 100), rng.uniform(0, 100), rng.uniform(-3, 3), rng.uniform(-3, 3)
        xs, ys = x + dx * np.arange(5), y + dy * np.arange(5)
        homes = comets.Homes(
            b.home_x, b.home_y, p.state.p_radius[:m], b.orbit_r, b.orbit_angle, b.rotates, b.cfg[0]
        )
        fast, exact = comets.clear(xs, ys, homes, 50), comets.clear_exact(xs, ys, homes, 50, 2.0)
        assert fast == (1 if exact else -1)
        seen.add(fast)
    assert seen == {1, -1}


def test_a_path_along_the_rim_is_too_close_to_call() -> None:
    none = np.empty(0)
    rim = np.array([50.0 + 11.0 + 1e-9])
    middle, nobody = np.array([50.0]), comets.Homes(none, none, none, none, none, np.empty(0, np.bool_), 0.03)
    assert comets.clear(rim, middle, nobody, 50) == 0
    assert comets.clear_exact(rim, middle, nobody, 50, 2.0)
