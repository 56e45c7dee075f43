"""Orbit Wars, as the loop, prepare and the arena see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.games.base import BoolArray, Budget, FloatArray, Player, ReplaySet
from td_loop.games.orbit_wars import choice, engine, seen, wire
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.features import FEATURE_NAMES, N_FEATURES, Tally, features, make_tally
from td_loop.games.orbit_wars.forecast import Forecast, begin, make_forecast
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.session import OrbitSession
from td_loop.games.orbit_wars.sizes import SIZES
from td_loop.games.orbit_wars.state import EPISODE, N_FLEETS, N_PLANETS, Action, Position, State, copy_state
from td_loop.games.orbit_wars.tokens import CONTRACT, policy_inputs
from td_loop.games.orbit_wars.turn import launch
from td_loop.games.served import Inputs, PolicyContract, Tensor
from td_loop.kernels import kernel
from td_loop.value.model import SplineValue


@lru_cache(maxsize=4)
def _buffers(capacity: int, episode_steps: int, gamma: float) -> tuple[Forecast, Tally]:
    return make_forecast(capacity, episode_steps, gamma), make_tally()


@kernel
def _launch_all(state: State, seat: int, action: Action) -> None:
    for j in range(action.shape[0]):
        launch(state, seat, action[j, 0], action[j, 1], action[j, 2])


class OrbitWars:
    """The game protocol of `games/base.py`. A state is a `Position`, an action f64[L, 3] (see `state.py`)."""

    name = "orbit_wars"
    feature_names = FEATURE_NAMES

    def compile(self) -> None:
        """Compile engine, features, search and what a policy needs into the disk cache."""
        # A value function that likes more of everything, so that there is something to launch and to take back.
        knots = np.tile([0.0, 1.0], (N_FEATURES, 1))
        value = SplineValue(knots, np.stack([knots, knots]), FEATURE_NAMES, {"gamma": 0.97})
        search, rng = self.make_search(value), np.random.default_rng(0)
        pos = self.initial(0, 2)
        action = search(pos, 0, Budget(evals=400), rng).action
        search(pos, 0, Budget(evals=2), rng)
        self.features(pos, 0.97)
        self.partial(pos, 0, action, len(action))
        self.outcome(self.step(pos, [action, None]))
        self.options_of(pos, 0, action)
        shape = 1, 1 + len(SIZES) * int(pos.state.head[N_PLANETS])
        self.choose(pos, 0, self.policy_inputs(pos, 0), np.ones(shape, np.float32))

    def open_replays(self, source: Path | None, cache: Path) -> ReplaySet[Position, Action]:
        """See `base.Game`; None opens the games that come with the package."""
        from td_loop.games.orbit_wars.replays import open_replays

        return open_replays(source, cache)

    def initial(self, seed: int, n_players: int) -> Position:
        """The start of the official game of that seed."""
        return new_game(seed, n_players)

    def n_players(self, state: Position) -> int:
        """P."""
        return state.board.n_players

    def alive(self, state: Position) -> BoolArray:
        """bool[4]: seats with a planet or a fleet."""
        return engine.alive(state)

    def outcome(self, state: Position) -> FloatArray | None:
        """None while the game goes on; else f64[4], winners share 1 (if nobody won, alive seats share it)."""
        return engine.outcome(state)

    def features(self, state: Position, gamma: float) -> npt.NDArray[np.float32]:
        """f32[4, F], zeros beyond P."""
        board, s = state
        fc, tally = _buffers(s.p_x.shape[0], int(board.cfg[EPISODE]), gamma)
        out = np.zeros((4, N_FEATURES), np.float32)
        begin(fc, board, path_table(board), s)
        features(fc, tally, out)
        return out

    def step(self, state: Position, actions: Sequence[Action | None]) -> Position:
        """One tick of the engine."""
        return engine.step(state, actions)

    def n_launches(self, action: Action) -> int:
        """L."""
        return len(action)

    def partial(self, state: Position, seat: int, action: Action, m: int) -> Position:
        """`state` with the first `m` launches made: ships have left, fleets stand just outside their planets."""
        s = copy_state(engine.with_room(state.state, m))
        _launch_all(s, seat, np.ascontiguousarray(action[:m]))
        return Position(state.board, s)

    def make_search(self, value: SplineValue) -> OrbitSearch:
        """A search under `value`."""
        return OrbitSearch(value)

    @property
    def players(self) -> Mapping[str, Player[Position, Action]]:
        """See `agents.AGENTS`."""
        from td_loop.games.orbit_wars.agents import AGENTS

        return AGENTS

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The official defaults."""
        from td_loop.games.orbit_wars.environment import CONFIGURATION

        return CONFIGURATION

    @property
    def contract(self) -> PolicyContract:
        """See `tokens.CONTRACT`."""
        return CONTRACT

    def policy_inputs(self, state: Position, seat: int) -> Inputs:
        """See `tokens`."""
        return policy_inputs(state, seat)

    def open_options(self, inputs: Inputs, n_slots: int, n_options: int) -> npt.NDArray[np.bool_]:
        """bool[S, O]; slots are the seat's planets in their order."""
        return choice.open_options(inputs, n_slots, n_options)

    def choose(self, state: Position, seat: int, inputs: Inputs, logits: Tensor) -> Action:
        """See `choice.choose`."""
        return choice.choose(state, seat, inputs, logits)

    def options_of(self, state: Position, seat: int, action: Action) -> npt.NDArray[np.int64]:
        """See `choice.options_of`."""
        return choice.options_of(state, seat, action)

    def compact(self, state: Position) -> Position:
        """`state` without room for more fleets."""
        f = int(state.state.head[N_FLEETS])
        kept = {name: a[:f] if name.startswith("f_") else a for name, a in state.state._asdict().items()}
        return Position(state.board, copy_state(State(**kept)))

    def is_legal(self, state: Position, seat: int, action: Action) -> bool:
        """Whether the engine takes every launch of `action` as it stands."""
        return choice.is_legal(state, seat, action)

    def open_session(self, seed: int, n_players: int) -> OrbitSession:
        """The official game of that seed."""
        return OrbitSession(self.initial(seed, n_players))

    def read_observation(self, observation: Mapping[str, Any]) -> tuple[Position, int]:
        """See `games/served.py`; what cannot be in an official game is refused."""
        return seen.read(observation)

    def pack(self, state: Position, seat: int) -> bytes:
        """See `wire.pack`."""
        return wire.pack(state, seat)

    def unpack(self, body: bytes) -> tuple[Position, int]:
        """See `wire.unpack`."""
        return wire.unpack(body)

    def answer(self, action: Action) -> list[list[Any]]:
        """Moves [planet id, angle (radians), ships]; in official games a planet's id is its index."""
        return [[int(planet), angle, int(ships)] for planet, angle, ships in action.tolist()]

    def rule_of(self, state: Position, seat: int) -> list[list[Any]]:
        """What the rule plays; nothing where it fails."""
        from td_loop.games.orbit_wars.rule import rule

        try:
            return self.answer(rule(state, seat))
        except Exception:  # the last resort: whatever a state may hold, there is an answer
            return []


GAME = OrbitWars()
