"""Value functions made by hand, and positions to use them on."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from td_loop.games.orbit_wars.features import FEATURE_NAMES, N_FEATURES
from td_loop.games.orbit_wars.state import Position
from td_loop.value.model import SplineValue
from tests.orbit_wars_agents.positions import GAMES, TURNS, positions

SLOPES = {
    "wealth_log": 4.0,
    "c_prod": 3.0,
    "prod_far": 2.0,
    "ships_far": 2.0,
    "danger": -1.0,
    "hold": 1.0,
    "reach": 0.5,
}


def value_by_hand(gamma: float = 0.97) -> SplineValue:
    """Straight lines: rich is good, exposed is bad."""
    knots = np.tile(np.linspace(-8.0, 8.0, 3), (N_FEATURES, 1))
    slopes = np.array([SLOPES.get(name, 0.0) for name in FEATURE_NAMES])
    return SplineValue(knots, np.repeat((knots * slopes[:, None])[None], 2, 0), FEATURE_NAMES, {"gamma": gamma})


class Played(Position):
    """A position that prints as where it comes from: hypothesis shows failing examples by their repr."""

    origin: tuple[int, int, int]

    def __repr__(self) -> str:
        return f"positions{self.origin[:2]}[{self.origin[2]}]"


@st.composite
def played(draw: st.DrawFn) -> Position:
    """Some turn of some game, comets to come included."""
    name = draw(st.sampled_from(GAMES))
    game = positions(*name)
    turn = draw(st.integers(0, min(TURNS, len(game) - 2)))
    pos = Played(*game[turn])
    pos.origin = (*name, turn)
    return pos
