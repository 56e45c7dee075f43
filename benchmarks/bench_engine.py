"""Speed of the engine beside the official one, on one core.

    python benchmarks/bench_engine.py [--replays FOLDER]

First table: one turn of states with few, about 40 and about 300 fleets, in the same run by the official
environment (`env.step`), by the official interpreter called directly, and by our kernel. Second table: recorded
games from seed and actions, map and comets included (the folder defaults to `../shared/replays` beside the
checkout). Times are CPU times, so that a busy machine does not count.
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
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from td_loop.games.orbit_wars import board, engine, observe, playthrough
from td_loop.games.orbit_wars.launches import recorded_action
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, Position, State, copy_state
from td_loop.games.orbit_wars.turn import advance, make_scratch
from td_loop.kernels import kernel

ROOT = Path(__file__).parents[1]
NO_MOVES = np.empty((0, 4))


@kernel
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


def official_turn(pos: Position) -> float:
    """Seconds that the official interpreter takes for the next turn of `pos`."""
    with contextlib.redirect_stdout(io.StringIO()):
        from kaggle_environments.envs.orbit_wars.orbit_wars import interpreter
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
    with contextlib.redirect_stdout(io.StringIO()):
        from kaggle_environments import make
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


def load_game(path: Path) -> tuple[int, int, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Seed, number of players, launches and offsets of a recorded game."""
    replay = json.loads(gzip.decompress(path.read_bytes()))
    rows = [engine.join_actions([recorded_action(s["action"]) for s in step]) for step in replay["steps"][1:]]
    offsets = np.cumsum([0, *(len(r) for r in rows)])
    return replay["info"]["seed"], len(replay["steps"][0]), np.concatenate([NO_MOVES, *rows]), offsets


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


def turns_table(games: list[Any]) -> None:
    """Print microseconds a turn by number of fleets."""
    rows = [("made: few", crowded(3)), ("made: about 40", crowded(40)), ("made: about 300", crowded(300))]
    if games:
        seed, n_players, moves, offsets = games[0]
        first = board.new_game(seed, n_players)
        frames = playthrough.record(first, moves, offsets)
        for what, wanted in (("recorded: early", 2), ("recorded: middle", 12), ("recorded: most fleets", 10**6)):
            t = int(np.abs(np.diff(frames.fleet_start)[:-1] - wanted).argmin())
            rows.append((f"{what} (turn {t})", Position(first.board, frames.state(t))))
    print(f"{'':<32} {'':>6} {'official (us)':>15} {'ours':>6} {'ratio to':>13}")
    print(f"{'state':<32} {'fleets':>6} {'env.step':>8} {'direct':>6} {'(us)':>6} {'env.step':>8} {'direct':>6}")
    for what, pos in rows:
        env, direct, ours = official_step(pos), official_turn(pos), our_turn(pos)
        print(
            f"{what:<32} {int(pos.state.head[N_FLEETS]):>6} {env * 1e6:>8.0f} {direct * 1e6:>6.0f} "
            f"{ours * 1e6:>6.2f} {env / ours:>7.0f}x {direct / ours:>5.0f}x"
        )


def games_table(games: list[Any]) -> None:
    """Print games a second, from seed and actions to the last frame."""

    def make() -> None:
        board.forget()
        for seed, n_players, _, _ in games:
            board.new_game(seed, n_players)

    def play() -> None:
        for seed, n_players, moves, offsets in games:
            playthrough.play_moves(board.new_game(seed, n_players), moves, offsets)

    def record() -> None:
        for seed, n_players, moves, offsets in games:
            playthrough.record(board.new_game(seed, n_players), moves, offsets)

    for f in (make, play, record):
        f()
    made, played, recorded = (best_of(f, 3) for f in (make, play, record))
    turns = sum(len(offsets) - 1 for *_, offsets in games)
    print(f"\n{len(games)} recorded games, {turns} turns, launches included")
    print(f"  map and five comet groups  {made / len(games) * 1e3:8.3f} ms a game")
    print(
        f"  turns                      {played / len(games) * 1e3:8.3f} ms a game, "
        f"{played / turns * 1e6:.2f} us each"
    )
    print(f"  whole games                {len(games) / (made + played):8.0f} games/s")
    print(f"  whole games, all frames    {len(games) / (made + recorded):8.0f} games/s")
    print("  measured elsewhere on this kind of machine: public native engines 118 to 350, official 6 to 8")


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=Path, default=ROOT.parent / "shared" / "replays")
    args = parser.parse_args()
    games = [load_game(p) for p in sorted(args.replays.glob("*.json.gz"))]
    turns_table(games)
    if games:
        games_table(games)
    else:
        print(f"no recorded games in {args.replays}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
