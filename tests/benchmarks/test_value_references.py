"""What a value function is measured against: the rows, the constant and the rule."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calibration import log_loss
from benchmarks.value_references import PROD_WORTH, States, constant, inside, rule, seat_inputs, worth
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import step
from td_loop.games.orbit_wars.state import N_PLANETS, Position, copy_state

SHARPNESS = 4.0


@pytest.fixture(scope="module")
def rows() -> States:
    """Games in which a larger part wins more often in the first 20 turns, and a smaller part afterwards."""
    rng = np.random.default_rng(0)
    n = 3000
    n_players = np.where(np.arange(n) % 3 == 0, 4, 2).astype(np.int8)
    alive = np.arange(4) < n_players[:, None]
    part = np.where(alive, rng.random((n, 4)), 0)
    part /= part.sum(axis=1, keepdims=True)
    turn = rng.choice([0, 16, 20, 36], n).astype(np.int16)
    sign = np.where(turn < 20, 1, -1)
    chance = np.where(alive, np.exp(SHARPNESS * sign[:, None] * part), 0)
    chance /= chance.sum(axis=1, keepdims=True)
    outcome = np.array([rng.multinomial(1, p) for p in chance], float)
    game = np.arange(n, dtype=np.int32)
    return States(np.zeros((n, 4, 3), np.float32), part, n_players, alive, outcome, turn, game, game % 5 == 0)


def test_worth_counts_ships_everywhere_and_production() -> None:
    pos = new_game(3, 2)
    s = copy_state(pos.state)
    n = int(s.head[N_PLANETS])
    s.p_owner[:n], s.p_ships[:n] = -1, 50
    s.p_owner[:3], s.p_ships[:3], s.p_prod[:3] = (0, 0, 1), (30, 4, 7), (2, 3, 5)
    held = Position(pos.board, s)
    assert worth(held).tolist() == [34 + PROD_WORTH * 5, 7 + PROD_WORTH * 5, 0, 0]
    sent = step(held, [np.array([[0, 0.0, 10.0]]), None])
    lost = np.array([34 + 5, 7 + 5, 0, 0]) - worth(sent) + PROD_WORTH * np.array([5, 5, 0, 0])
    assert lost.tolist() == [0, 0, 0, 0]  # ten ships are under way


def test_the_constant_is_even_among_the_living(rows: States) -> None:
    assert set(np.unique(constant(rows))) == {0.0, 0.25, 0.5}


def test_the_rule_learns_each_bucket_from_the_rows_it_is_given(rows: States) -> None:
    learn, judge = np.flatnonzero(~rows.held_out), np.flatnonzero(rows.held_out)
    p = rule(rows)(learn)(judge)
    assert p.sum(axis=1) == pytest.approx(1)
    assert (p[~rows.alive[judge]] == 0).all()
    early = inside(rows, (0, 20))[judge]
    leader = rows.part[judge].argmax(axis=1)
    assert (p.argmax(axis=1) == leader)[early].all()
    assert (p.argmax(axis=1) != leader)[~early].all()
    even = constant(rows)[judge]
    for bucket in (early, ~early):
        target = rows.outcome[judge][bucket]
        assert log_loss(p[bucket], target).mean() < log_loss(even[bucket], target).mean()


def test_the_rule_knows_nothing_of_a_bucket_it_has_never_seen(rows: States) -> None:
    early, later = np.flatnonzero(rows.turn < 20), np.flatnonzero(rows.turn >= 20)
    assert rule(rows)(early)(later) == pytest.approx(constant(rows)[later])


def test_boosting_is_shown_the_mean_of_the_living_opponents(rows: States) -> None:
    x = np.zeros((1, 4, 3), np.float32)
    x[0, :, 0] = [1, 2, 4, 100]
    alive = np.array([[True, True, True, False]])
    one = States(x, x[:, :, 0], np.array([4], np.int8), alive, np.zeros((1, 4)), *[np.zeros(1, int)] * 3)
    seen = seat_inputs(one)
    assert seen[0, :3, 0].tolist() == [1, 2, 4]
    assert seen[0, :3, 3].tolist() == [3, 2.5, 1.5]
    assert (seen[0, :, 6:] == [4, 3]).all()
