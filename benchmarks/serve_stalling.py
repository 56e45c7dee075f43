"""Orbit Wars whose policy stalls on some states: the game of `bench_serve.py`, found by its module's name."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from td_loop.games.orbit_wars.game import OrbitWars
from td_loop.games.orbit_wars.state import NEXT_FLEET_ID
from td_loop.games.served import Inputs, PolicyContract

STALLS, STALL_S = 7, 0.2
"""The `next_fleet_id` of a state that stalls, and for how long."""

_never = threading.Event()


class Stalling(OrbitWars):
    name = "benchmarks.serve_stalling:GAME"

    @property
    def contract(self) -> PolicyContract:
        return replace(super().contract, game=self.name)

    def policy_inputs(self, state: Any, seat: int) -> Inputs:
        if state.state.head[NEXT_FLEET_ID] == STALLS:
            _never.wait(STALL_S)
        return super().policy_inputs(state, seat)


GAME: Any = Stalling()
