"""States to examine a policy on: games of the game's own players, with 2 and with 4 seats."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from td_loop.deploy.admission.check import Decision
from td_loop.games.served import Served

_SEATS = (2, 4)
_ROUNDS = 4
DECISIONS = 300
"""How many are taken, evenly from all that were played."""


def decisions(game: Served[Any, Any], seed: int = 0, count: int = DECISIONS) -> list[Decision]:
    """`count` decisions of living seats (fewer where the games have fewer), equal for equal seeds."""
    moments = [moment for k in range(_ROUNDS * len(_SEATS)) for moment in _play(game, seed + k, _SEATS[k % 2])]
    places = np.unique(np.linspace(0, len(moments) - 1, min(count, len(moments))).astype(int))
    return [Decision(state, seat, game.policy_inputs(state, seat)) for state, seat in (moments[i] for i in places)]


def _play(game: Served[Any, Any], seed: int, n_players: int) -> list[tuple[Any, int]]:
    """(state, seat) of every living seat in every turn of one game. Each seat is another of the game's players."""
    players = [game.players[name] for name in sorted(game.players)]
    turn_of = itertools.islice(itertools.cycle(players), seed % len(players), None)
    seated = [next(turn_of) for _ in range(n_players)]
    rngs = np.random.default_rng(seed).spawn(n_players)
    state, moments = game.initial(seed, n_players), []
    while game.outcome(state) is None:
        alive = game.alive(state)
        moments += [(state, seat) for seat in range(n_players) if alive[seat]]
        actions = [seated[i](state, i, rngs[i]) if alive[i] else None for i in range(n_players)]
        state = game.step(state, [*actions, *[None] * (4 - n_players)])
    return moments
