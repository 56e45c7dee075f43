"""Speed of the engine beside the official one, on one core.

    python benchmarks/bench_engine.py [--replays FOLDER] [--official N]

First table: one turn of states with few, about 40 and about 300 fleets. Second table: recorded games from seed and
actions, map and comets included (the folder defaults to `../shared/replays` beside the checkout); all of them are
checked to come out exactly as recorded, and N of them (default 3) are played by the official engine in the same
run. The official engine is measured in both ways that there are: `env.step`, which is how games are played, and
its interpreter called directly, which leaves out the environment's copies and checks. Times are CPU times, so that
a busy machine does not count. Exit status 1: a game did not come out as recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gzip
import io
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from td_loop.games.orbit_wars import board, engine, observe, playthrough
from td_loop.games.orbit_wars.replays.frames import move_rows
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.record import GameRecord
from td_loop.games.orbit_wars.replays.verify import EXACT, verdict
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, Position, State, copy_state
from td_loop.games.orbit_wars.turn import advance, make_scratch
from td_loop.kernels import allocating

ROOT = Path(__file__).parents[1]
NO_MOVES = np.empty((0, 4))


@allocating
def _repeat(b: board.Board, s: State, work: State, n: int) -> None:
    """Play the same turn `n` times, each time from a fresh copy (the copy counts as ours)."""
    scratch = make_scratch(len(s.p_owner))
    for _ in range(n):
        for i in range(len(s.head)):
            work.head[i] = s.head[i]
        for g in range(len(s.comet_at)):
            work.comet_at[g] = s.comet_at[g]
        for i in range(s.head[N_PLANETS]):
            work.p_owner[i] = s.p_owner[i]
            work.p_x[i] = s.p_x[i]
            work.p_y[i] = s.p_y[i]
            work.p_ships[i] = s.p_ships[i]
        for f in range(s.head[N_FLEETS]):
            work.f_id[f] = s.f_id[f]
            work.f_owner[f] = s.f_owner[f]
            work.f_x[f] = s.f_x[f]
            work.f_y[f] = s.f_y[f]
            work.f_angle[f] = s.f_angle[f]
            work.f_from[f] = s.f_from[f]
            work.f_ships[f] = s.f_ships[f]
        advance(b, work, NO_MOVES, 0, 0, scratch)


def best_of(f: Callable[[], Any], repeats: int) -> float:
    """Shortest CPU time of a call, seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        f()
        times.append(time.process_time() - start)
    return min(times)


def official() -> tuple[ModuleType, Any]:
    """The official package, and the interpreter of this game."""
    with contextlib.redirect_stdout(io.StringIO()):
        import kaggle_environments
        from kaggle_environments.envs.orbit_wars.orbit_wars import interpreter
    return kaggle_environments, interpreter


def official_turn(pos: Position) -> float:
    """Seconds that the official interpreter takes for the next turn of `pos`."""
    interpreter = official()[1]
    env = SimpleNamespace(
        configuration=SimpleNamespace(shipSpeed=6.0, episodeSteps=500, cometSpeed=4.0),
        done=False,
        info={"seed": 0},
    )

    def state() -> list[Any]:
        return [
            SimpleNamespace(
                observation=SimpleNamespace(**observe.observation(pos, i)), action=[], status="ACTIVE", reward=0
            )
            for i in range(pos.board.n_players)
        ]

    times = []
    for _ in range(20):
        fresh = copy.deepcopy(state())
        start = time.process_time()
        interpreter(fresh, env)
        times.append(time.process_time() - start)
    return min(times)


def official_step(pos: Position) -> float:
    """Seconds that `step` of the official environment takes for it."""
    make = official()[0].make
    seats = [
        {"observation": observe.observation(pos, i), "action": [], "reward": 0, "info": {}, "status": "ACTIVE"}
        for i in range(pos.board.n_players)
    ]
    times = []
    for _ in range(7):
        env = make("orbit_wars", configuration={"seed": 0}, steps=[copy.deepcopy(seats)], info={"seed": 0})
        start = time.process_time()
        env.step([[] for _ in seats])
        times.append(time.process_time() - start)
    return min(times)


def our_turn(pos: Position) -> float:
    """Seconds that our kernel takes for the same."""
    work = copy_state(pos.state)
    n = 20_000
    _repeat(pos.board, pos.state, work, 10)
    return best_of(lambda: _repeat(pos.board, pos.state, work, n), 5) / n


# --- states and games -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Game:
    """A recorded game: what was observed, raw actions [T - 1][P], and the rows and offsets for `playthrough`."""

    record: GameRecord
    actions: list[list[Any]]
    moves: np.ndarray[Any, Any]
    offsets: np.ndarray[Any, Any]

    def start(self) -> Position:
        """Its first position, from the seed."""
        assert self.record.seed is not None
        return board.new_game(self.record.seed, self.record.n_players)


def load_game(path: Path) -> Game:
    """Read an episode file."""
    data = gzip.decompress(path.read_bytes())
    record = parse_episode(data, path.name)
    moves, ends = move_rows(record.frames.launch, record.frames.launch_end)
    actions = [[seat["action"] for seat in step] for step in json.loads(data)["steps"][1:]]
    return Game(record, actions, moves, np.array([0, *ends[:-1]]))


def official_game_by_steps(game: Game) -> tuple[float, Any]:
    """Seconds that the official environment takes for a game, and the planets that its last frame shows."""
    make = official()[0].make
    start = time.process_time()
    env = make("orbit_wars", configuration={"seed": game.record.seed})
    env.reset(game.record.n_players)
    for actions in game.actions:
        env.step(actions)
    seconds = time.process_time() - start
    return seconds, env.steps[-1][0].observation.planets


def official_game_direct(game: Game) -> tuple[float, Any]:
    """The same by calls of the interpreter alone."""
    interpreter = official()[1]
    start = time.process_time()
    env = SimpleNamespace(
        configuration=SimpleNamespace(shipSpeed=6.0, episodeSteps=500, cometSpeed=4.0, seed=game.record.seed),
        done=False,
        info={},
    )
    state = [
        SimpleNamespace(observation=SimpleNamespace(step=0), action=[], status="ACTIVE", reward=0)
        for _ in range(game.record.n_players)
    ]
    interpreter(state, env)
    for step, actions in enumerate(game.actions):
        state[0].observation.step = step
        for seat, action in zip(state, actions, strict=True):
            seat.action = action
        interpreter(state, env)
    return time.process_time() - start, state[0].observation.planets


def our_game(game: Game) -> tuple[float, Any]:
    """The same by our engine."""

    def play() -> Position:
        board.forget()
        start = game.start()
        return Position(start.board, playthrough.play_moves(start, game.moves, game.offsets)[0])

    return best_of(play, 5), observe.planets(play())


def crowded(fleets: int) -> Position:
    """A self-made state, 120 turns into a game of small launches in all directions, with about so many fleets."""
    rng = random.Random(0)
    pos = board.new_game(17, 2)
    for _ in range(120):
        s = pos.state
        actions = []
        for seat in range(2):
            rows = []
            for p in np.flatnonzero(s.p_owner[: s.head[N_PLANETS]] == seat):
                if rng.random() < fleets / 150 and s.head[N_FLEETS] < fleets:
                    rows += [[p, rng.uniform(-3, 3), 1 + int(s.p_ships[p]) // 12] for _ in range(3)]
            actions.append(np.array(rows, np.float64).reshape(-1, 3))
        pos = engine.step(pos, actions)
    return pos


def turns_table(games: list[Game]) -> None:
    """Print microseconds a turn by number of fleets."""
    rows = [("made: few", crowded(3)), ("made: about 40", crowded(40)), ("made: about 300", crowded(300))]
    if games:
        first = games[0].start()
        frames = playthrough.record(first, games[0].moves, games[0].offsets)
        for what, wanted in (("recorded: early", 2), ("recorded: middle", 12), ("recorded: most fleets", 10**6)):
            t = int(np.abs(np.diff(frames.fleet_start)[:-1] - wanted).argmin())
            rows.append((f"{what} (turn {t})", Position(first.board, frames.state(t))))
    print(
        "One turn. Official: by env.step, and by a direct call of its interpreter. Ratio: official time / ours.\n"
    )
    print(f"{'':<32} {'':>6} {'official, us':^15} {'ours,':>6} {'ratio to':^15}")
    print(f"{'state':<32} {'fleets':>6} {'env.step':>8} {'direct':>6} {'us':>6} {'env.step':>8} {'direct':>6}")
    for what, pos in rows:
        env, direct, ours = official_step(pos), official_turn(pos), our_turn(pos)
        print(
            f"{what:<32} {int(pos.state.head[N_FLEETS]):>6} {env * 1e6:>8.0f} {direct * 1e6:>6.0f} "
            f"{ours * 1e6:>6.2f} {env / ours:>7.0f}x {direct / ours:>5.0f}x"
        )


def games_table(games: list[Game], n_official: int) -> bool:
    """Print games a second, from seed and actions to the last frame; say whether all came out as recorded."""

    def make() -> None:
        board.forget()
        for game in games:
            game.start()

    def play() -> None:
        for game in games:
            playthrough.play_moves(game.start(), game.moves, game.offsets)

    def record() -> None:
        for game in games:
            playthrough.record(game.start(), game.moves, game.offsets)

    for f in (make, play, record):
        f()
    made, played, recorded = (best_of(f, 3) for f in (make, play, record))
    turns = sum(len(game.actions) for game in games)
    print(f"\n{len(games)} recorded games, {turns} turns, launches included; ours\n")
    print(f"  map and five comet groups  {made / len(games) * 1e3:8.3f} ms a game")
    print(
        f"  turns                      {played / len(games) * 1e3:8.3f} ms a game, "
        f"{played / turns * 1e6:.2f} us each"
    )
    print(f"  whole games                {len(games) / (made + played):8.0f} games/s")
    print(f"  whole games, all frames    {len(games) / (made + recorded):8.0f} games/s")

    wrong = [game.record.name for game in games if verdict(game.record).status != EXACT]
    print(f"  as recorded in every frame, comet path and reward: {len(games) - len(wrong)} of {len(games)}")
    chosen = [games[i] for i in np.linspace(0, len(games) - 1, n_official).astype(int)]  # names sort by seats
    if chosen:
        print("\nWhole games on both engines, map and comets included. Ratio: official time / ours.\n")
        print(f"{'':<16} {'':>5} {'':>5} {'official, ms':^15} {'ours,':>6} {'ratio to':^15} {'same':>5}")
        print(
            f"{'game':<16} {'seats':>5} {'turns':>5} {'env.step':>8} {'direct':>6} {'ms':>6} "
            f"{'env.step':>8} {'direct':>6} {'end':>5}"
        )
    for game in chosen:
        (by_steps, a), (direct, b), (ours, c) = (
            f(game) for f in (official_game_by_steps, official_game_direct, our_game)
        )
        same = a == b == c
        wrong += [] if same else [game.record.name]
        print(
            f"{game.record.name:<16} {game.record.n_players:>5} {len(game.actions):>5} {by_steps * 1e3:>8.0f} "
            f"{direct * 1e3:>6.0f} {ours * 1e3:>6.2f} {by_steps / ours:>7.0f}x {direct / ours:>5.0f}x "
            f"{'yes' if same else 'NO':>5}"
        )
    if wrong:
        print("DIFFERENT: " + ", ".join(wrong))
    return not wrong


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=Path, default=ROOT.parent / "shared" / "replays")
    parser.add_argument("--official", type=int, default=3, help="games that the official engine plays as well")
    args = parser.parse_args()
    games = [load_game(p) for p in sorted(args.replays.glob("*.json.gz"))]
    turns_table(games)
    if not games:
        print(f"no recorded games in {args.replays}")
        return 0
    return 0 if games_table(games, args.official) else 1


if __name__ == "__main__":
    sys.exit(main())
