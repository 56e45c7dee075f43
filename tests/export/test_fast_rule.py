"""fast_rule: legal moves everywhere, and better than the official starter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.fast_rule import decide
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.launches import legal_launches, to_action
from td_loop.games.orbit_wars.observe import observation
from td_loop.games.orbit_wars.state import Position
from tests.export import fakes
from tests.orbit_wars_play.values import played


@given(played())
@settings(max_examples=40)
def test_all_its_moves_are_launches(pos: Position) -> None:
    for seat in range(GAME.n_players(pos)):
        moves = decide(observation(pos, seat))
        assert len(legal_launches(pos, seat, moves)) == len(moves)


@pytest.mark.parametrize("seed", range(5000, 5003))
def test_it_beats_the_starter(seed: int) -> None:
    pos, rng, seat = GAME.initial(seed, 2), np.random.default_rng(0), seed % 2
    while (outcome := GAME.outcome(pos)) is None:
        ours = to_action(legal_launches(pos, seat, decide(observation(pos, seat))))
        theirs = AGENTS["starter"](pos, 1 - seat, rng)
        pos = GAME.step(pos, [ours, theirs] if seat == 0 else [theirs, ours])
    assert outcome[seat] == 1.0


def test_it_never_flies_through_the_sun() -> None:
    across = [[0, 0, 1.0, 50.0, 2.0, 200, 3], [1, -1, 99.0, 50.0, 2.0, 60, 5]]
    assert decide(fakes.observation(1, planets=across)) == []
    beside = [[0, 0, 1.0, 10.0, 2.0, 200, 3], [1, -1, 99.0, 10.0, 2.0, 60, 5]]
    assert [move[2] for move in decide(fakes.observation(1, planets=beside))] == [61]


def test_it_keeps_what_a_threatened_planet_needs() -> None:
    attack = [[0, 1, 20.0, 10.0, np.pi, 2, 110]]  # lands on planet 0 and its 100 ships
    assert decide(fakes.observation(1, fleets=attack)) == []


def test_it_sends_nothing_where_enough_is_under_way() -> None:
    angle = np.arctan2(-5.0, 20.0)
    under_way = [[0, 0, 10.0 + 4.0 * np.cos(angle), 10.0 + 4.0 * np.sin(angle), angle, 0, 6]]
    assert decide(fakes.observation(1)) != []
    assert decide(fakes.observation(1, fleets=under_way)) == []
