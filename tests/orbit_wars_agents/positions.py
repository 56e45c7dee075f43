"""Positions to test on: every turn of a few games of lively, blundering players."""

from __future__ import annotations

from functools import cache

import numpy as np

from td_loop.games.orbit_wars.agents import BALANCED, RUSHER, planned, weakened
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import step
from td_loop.games.orbit_wars.state import DONE, N_FLEETS, Position, copy_state

GAMES = ((11, 2), (12, 4), (13, 2))
"""(seed, seats)."""
TURNS = 170


@cache
def positions(seed: int, n_players: int) -> list[Position]:
    """Every turn of one game, at most TURNS + 1. Comets fly from turn 50 and 150 on."""
    agents = [planned(weakened(style, 0.3)) for style in (BALANCED, RUSHER, BALANCED, RUSHER)[:n_players]]
    rng = np.random.default_rng(seed)
    game = [new_game(seed, n_players)]
    while len(game) <= TURNS and not game[-1].state.head[DONE]:
        game.append(step(game[-1], [agent(game[-1], seat, rng) for seat, agent in enumerate(agents)]))
    return game


def known_only(position: Position) -> Position:
    """`position` in a game in which no comet appears any more: what a player can know."""
    board, state = position
    to_come = board.comet_spawn > state.head[0]
    return Position(board._replace(comet_len=np.where(to_come, 0, board.comet_len)), state)


def without_fleets(position: Position) -> Position:
    """`position` with nothing under way."""
    state = copy_state(position.state)
    state.head[N_FLEETS] = 0
    return Position(position.board, state)
