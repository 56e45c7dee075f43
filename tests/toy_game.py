"""A game for 2..4 seats in plain numpy: the whole of what a game must be, and nothing of Orbit Wars.

Land raises troops each turn. A launch marches troops on a seat: on their own land they settle (three make one
land), elsewhere they fight its troops and raze what is left undefended. Without land a seat is out. After LAST
turns, or with one seat left, the largest land + troops wins. A replay file is a JSON list of seeds; the outcome of
a game whose seed is 5 modulo 7 is not known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.errors import ReplayError
from td_loop.games.base import MAX_SEATS, Budget, Decision, GameInfo, replay_set_hash
from td_loop.value.evaluate import evaluate
from td_loop.value.model import SplineValue

LAST = 18
Ints = Action = npt.NDArray[np.int64]  # an action is [L, 2] launches in order: seat marched on, troops


class State(NamedTuple):
    turn: int
    n: int  # P
    land: Ints  # [4]
    troops: Ints  # [4]
    marching: Ints  # [4, 4] troops by (from, on), sent this turn


def random_action(state: State, seat: int, rng: np.random.Generator) -> Action:
    launches, left = [], int(state.troops[seat])
    while left > 0 and len(launches) < 3 and rng.random() < 0.7:
        on = seat if rng.random() < 0.6 else int(rng.integers(state.n))
        launches.append((on, int(rng.integers(1, left + 1)) // 2 + 1))
        left -= launches[-1][1]
    return np.array(launches, np.int64).reshape(-1, 2)


def idle(state: State, seat: int, rng: np.random.Generator) -> Action:
    return np.zeros((0, 2), np.int64)


def rusher(state: State, seat: int, rng: np.random.Generator) -> Action:
    """Half its troops settle, the other half march on the weakest of the others."""
    others = [i for i in range(state.n) if i != seat and state.land[i] > 0]
    on = min(others, key=lambda i: (int(state.troops[i]), i))
    half = int(state.troops[seat]) // 2
    return np.array([(seat, half), (on, half)], np.int64)


class ToySession:
    def __init__(self, state: State) -> None:
        self.state = state

    def observation(self, seat: int, overage_s: float) -> dict[str, Any]:
        s = self.state
        return {
            "player": seat,
            "land": s.land.tolist(),
            "troops": s.troops.tolist(),
            "remainingOverageTime": overage_s,
        }

    def read(self, seat: int, raw: Any) -> Action:
        return np.array([(int(on), int(sent)) for on, sent in raw or []], np.int64).reshape(-1, 2)

    def step(self, actions: Sequence[Action | None]) -> None:
        self.state = Toy().step(self.state, actions)


class Toy:
    name = "toy"
    feature_names = ("land", "troops", "c_prod", "settling", "marching", "threat")

    def compile(self) -> None: ...

    def open_replays(self, source: Path | None, cache: Path) -> ToyReplays:
        if source is None:
            (source := cache / "toy_seeds.json").write_text(json.dumps([*range(40)]))
        return ToyReplays(source)

    def initial(self, seed: int, n_players: int) -> State:
        land = np.random.default_rng(seed).integers(3, 7, MAX_SEATS) * (np.arange(MAX_SEATS) < n_players)
        return State(0, n_players, land, 2 * land, np.zeros((MAX_SEATS, MAX_SEATS), np.int64))

    def n_players(self, state: State) -> int:
        return state.n

    def alive(self, state: State) -> npt.NDArray[np.bool_]:
        return state.land > 0

    def outcome(self, state: State) -> npt.NDArray[np.float64] | None:
        alive = state.land > 0
        score = (state.land + state.troops) * alive
        won = alive & (score == score.max()) if alive.any() else np.arange(MAX_SEATS) < state.n
        return None if state.turn < LAST and alive.sum() > 1 else won / won.sum()

    def features(self, state: State, gamma: float) -> npt.NDArray[np.float32]:
        c_prod, own = state.land * sum(gamma**t for t in range(LAST - state.turn)), state.marching.diagonal()
        out, threat = state.marching.sum(1) - own, state.marching.sum(0) - own
        return np.stack((state.land, state.troops, c_prod, own, out, threat), axis=1).astype(np.float32)

    def partial(self, state: State, seat: int, action: Action, m: int) -> State:
        troops, marching = state.troops.copy(), state.marching.copy()
        for on, sent in action[:m]:
            if 0 <= on < state.n and 1 <= sent <= troops[seat]:
                troops[seat] -= sent
                marching[seat, on] += sent
        return state._replace(troops=troops, marching=marching)

    def step(self, state: State, actions: Sequence[Action | None]) -> State:
        for seat in np.flatnonzero(state.land):
            if (action := actions[seat]) is not None:
                state = self.partial(state, int(seat), action, len(action))
        own, left = (on := state.marching).diagonal(), state.troops + on.diagonal() - on.sum(0)
        land = np.where(state.land > 0, np.maximum(state.land + own // 3 + left.clip(max=0), 0), 0)
        troops = (left.clip(min=0) + land) * (land > 0)
        return State(state.turn + 1, state.n, land, troops, np.zeros_like(state.marching))

    def n_launches(self, action: Action) -> int:
        return len(action)

    players: ClassVar = {"random": random_action, "idle": idle, "rusher": rusher}
    configuration: ClassVar = {"turns": LAST}

    def open_session(self, seed: int, n_players: int) -> ToySession:
        return ToySession(self.initial(seed, n_players))

    def make_search(self, value: SplineValue) -> Any:
        # Random actions, the best under V; "no launch" is the first candidate.
        def search(state: State, seat: int, budget: Budget, rng: np.random.Generator) -> Decision[Action]:
            end = time.perf_counter() + (np.inf if budget.seconds is None else budget.seconds)
            best, best_v, evals = np.zeros((0, 2), np.int64), -1.0, 0
            while time.perf_counter() < end and (budget.evals is None or evals < budget.evals):
                action = random_action(state, seat, rng) if evals else best
                f = self.features(self.partial(state, seat, action, len(action)), value.gamma)
                v = evaluate(value, f[None], np.array([state.n], np.int8), self.alive(state)[None])[0, seat]
                best, best_v = (action, v) if v > best_v else (best, best_v)
                evals += 1
            return Decision(best, evals)

        return search


@lru_cache(maxsize=512)
def play(seed: int) -> tuple[list[State], list[list[Action]]]:
    """The frames of the game of a seed, and every seat's action in all of them but the last."""
    rng, states, actions = np.random.default_rng(seed), [Toy().initial(seed, 2 + seed % 3)], []
    while Toy().outcome(s := states[-1]) is None:
        actions.append([random_action(s, i, rng) if s.land[i] > 0 else np.zeros((0, 2), int) for i in range(4)])
        states.append(Toy().step(s, actions[-1]))
    return states, actions


class ToyReplays:
    def __init__(self, path: Path) -> None:
        try:
            self.path, self.seeds = path, [int(s) for s in json.loads(path.read_text())]
            self.games = [_info(s) for s in self.seeds]
        except (OSError, ValueError, TypeError) as e:
            raise ReplayError(f"{path}: not a JSON list of seeds ({e})") from e
        if not self.seeds:
            raise ReplayError(f"{path}: holds no game; give a file with seeds in it")
        self.content_hash = replay_set_hash(self.games)

    def state(self, game: int, turn: int) -> State:
        return play(self.seeds[game])[0][turn]

    def action(self, game: int, turn: int, seat: int) -> Action:
        return play(self.seeds[game])[1][turn][seat]


def _info(seed: int) -> GameInfo:
    states = play(seed)[0]
    outcome = None if seed % 7 == 5 else Toy().outcome(states[-1])
    return GameInfo(f"{seed:064x}"[::-1], states[0].n, len(states), outcome, f"seed {seed}")


GAME: Any = Toy()
