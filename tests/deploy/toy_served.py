"""The toy game of `tests/toy_game.py`, as `policy` and `deploy` see a game: one input with a mask, 3 options.

Every seat is a slot: the focal seat decides what part of its troops marches there. Option k sends k / (2 P).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import DataError, OutputError
from td_loop.games.base import MAX_SEATS
from td_loop.games.served import STAY, Inputs, PolicyContract, Tensor, TensorSpec
from tests.toy_game import LAST, Action, State, Toy, ToySession

COLUMNS = ("land", "troops", "own", "players", "turn")
OPTIONS = 3
CONTRACT = PolicyContract(
    game="tests.deploy.toy_served:GAME",
    version=1,
    inputs=(
        TensorSpec("seats", ("B", "S", len(COLUMNS)), COLUMNS, mask="present"),
        TensorSpec("present", ("B", "S")),
    ),
    slots="S",
    limits={"S": 8},
)
_BODY = struct.Struct("<4B8i")


class ServedToy(Toy):
    name = CONTRACT.game
    contract = CONTRACT

    def open_session(self, seed: int, n_players: int) -> ServedSession:
        return ServedSession(self.initial(seed, n_players))

    def policy_inputs(self, state: State, seat: int) -> Inputs:
        n = state.n
        x = np.zeros((1, n, len(COLUMNS)), np.float32)
        x[0, :, 0], x[0, :, 1] = state.land[:n] / 8, np.log1p(state.troops[:n])
        x[0, seat, 2], x[0, :, 3], x[0, :, 4] = 1, n / 4, state.turn / LAST
        return {"seats": x, "present": np.ones((1, n), np.float32)}

    def open_options(self, inputs: Inputs, n_slots: int, n_options: int) -> npt.NDArray[np.bool_]:
        seats = inputs["seats"][0]
        n = len(seats)
        troops = round(float(np.expm1(seats[seats[:, 2] == 1, 1][0])))
        opened = np.zeros((n_slots, n_options), bool)
        opened[:, STAY] = True
        for k in range(1, OPTIONS):
            opened[:n, k] = _sent(troops, n, k) >= 1
        return opened

    def choose(self, state: State, seat: int, inputs: Inputs, logits: Tensor) -> Action:
        n = state.n
        if logits.ndim != 2 or len(logits) < n or logits.shape[1] != OPTIONS:
            raise OutputError(f"logits have the shape {logits.shape}, must be [{n} or more, {OPTIONS}]")
        opened = self.open_options(inputs, n, OPTIONS)
        if not np.isfinite(logits[:n][opened]).all():
            raise OutputError("a logit is not finite")
        best = np.where(opened, logits[:n], -np.inf).argmax(1)
        launches = [(on, _sent(int(state.troops[seat]), n, int(k))) for on, k in enumerate(best) if k != STAY]
        return np.array(launches, np.int64).reshape(-1, 2)

    def is_legal(self, state: State, seat: int, action: Action) -> bool:
        left = int(state.troops[seat])
        for on, sent in action:
            if not (0 <= on < state.n and 1 <= sent <= left):
                return False
            left -= int(sent)
        return True

    def read_observation(self, observation: Mapping[str, Any]) -> tuple[State, int]:
        try:
            turn, n, seat = (int(observation[key]) for key in ("turn", "n", "player"))
            land, troops = (np.array(observation[key], np.int64) for key in ("land", "troops"))
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(f"observation: no {e}") from e
        if not (2 <= n <= MAX_SEATS and 0 <= seat < n and land.shape == troops.shape == (MAX_SEATS,)):
            raise DataError(f"observation: {n} players, seat {seat}, land {land.shape}, troops {troops.shape}")
        return State(turn, n, land, troops, np.zeros((MAX_SEATS, MAX_SEATS), np.int64)), seat

    def pack(self, state: State, seat: int) -> bytes:
        return _BODY.pack(1, state.turn, state.n, seat, *state.land, *state.troops)

    def unpack(self, body: bytes) -> tuple[State, int]:
        if len(body) != _BODY.size or body[0] != 1:
            raise DataError(f"body: {len(body)} bytes, must be {_BODY.size} of version 1")
        _, turn, n, seat, *rest = _BODY.unpack(body)
        observation = {"turn": turn, "n": n, "player": seat, "land": rest[:4], "troops": rest[4:]}
        return self.read_observation(observation)

    def answer(self, action: Action) -> list[list[Any]]:
        return [[int(on), int(sent)] for on, sent in action]

    def rule_of(self, state: State, seat: int) -> list[list[Any]]:
        """All troops settle."""
        return [[seat, int(state.troops[seat])]] if state.troops[seat] >= 1 else []


class ServedSession(ToySession):
    def observation(self, seat: int, overage_s: float) -> dict[str, Any]:
        return {**super().observation(seat, overage_s), "turn": self.state.turn, "n": self.state.n}

    def step(self, actions: Any) -> None:
        self.state = ServedToy().step(self.state, actions)


def _sent(troops: int, n: int, option: int) -> int:
    return troops * option // (2 * n)


GAME: Any = ServedToy()
