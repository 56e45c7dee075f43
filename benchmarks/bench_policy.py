"""What a decision of a policy takes: inputs, network, choice; beside the search it was fitted to.

    python benchmarks/bench_policy.py [--policy ONNX] [--weights NPZ] [--replays PATH] [--states 600] [--evals 300]

States are drawn evenly from all games of a replay set, one seat that is alive decides in each. The clock is the
thread's processor time, as on a quiet core: what other programs take does not count. `--wall` looks at the clock
on the wall. One thread everywhere. The reference, against which the last column counts, is the search at `--evals`
candidates a decision, in the same states of the same run. `crowded` is one state of 4 seats with as many planets
as there can be and 300 fleets under way. A served request comes with a board that nobody has seen before: `new
board` is the table of its planets' ways, which is made once a game where boards are kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import alive, with_room
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, Position, copy_state
from td_loop.games.orbit_wars.turn import launch
from td_loop.kernels import cache_dir
from td_loop.policy.artefact import read_artefact
from td_loop.policy.player import policy_player
from td_loop.policy.runtimes import RUNTIMES, open_runner
from td_loop.value.io import load_weights

ROOT = Path(__file__).parents[1]
CROWD = 300


def crowded(seed: int = 5) -> Position:
    """Turn 60 of a game of 4 seats on a large map: comets are there, every planet sends fleets to all sides."""
    sizes = [(int(new_game(s, 4).state.head[N_PLANETS]), s) for s in range(seed, seed + 40)]
    position = new_game(max(sizes)[1], 4)
    for _ in range(60):
        position = GAME.step(position, [None] * 4)
    s = copy_state(with_room(position.state, CROWD))
    n, rng = int(s.head[N_PLANETS]), np.random.default_rng(seed)
    s.p_owner[:n] = np.arange(n) % 4
    s.p_ships[:n] = 1000
    while s.head[N_FLEETS] < CROWD:
        p = int(rng.integers(n))
        launch(s, int(s.p_owner[p]), p, float(rng.uniform(-np.pi, np.pi)), int(rng.integers(1, 60)))
    return Position(position.board, s)


def spread(path: Path | None, n: int) -> list[tuple[Position, int]]:
    """`n` states and seats, evenly from all games."""
    store = GAME.open_replays(path, cache_dir())
    every = [(g, t) for g, info in enumerate(store.games) for t in range(info.n_frames - 1)]
    out = []
    for k in range(n):
        position = store.state(*every[k * len(every) // n])
        seats = np.flatnonzero(alive(position))
        out.append((position, int(seats[k % len(seats)])))
    return out


class Watch:
    """Times calls, in microseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.found: dict[str, list[float]] = {}

    def __call__(self, name: str, f: Callable[[], object]) -> object:
        start = self._clock()
        out = f()
        self.found.setdefault(name, []).append((self._clock() - start) / 1e3)
        return out


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", type=Path, default=ROOT / "models" / "policy_v1.onnx")
    parser.add_argument("--weights", type=Path, default=ROOT / "models" / "value_spline_v2.npz")
    parser.add_argument("--replays", type=Path, help="default: the games that come with the package")
    parser.add_argument("--states", type=int, default=600)
    parser.add_argument("--evals", type=int, default=300)
    parser.add_argument("--wall", action="store_true")
    args = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    artefact = read_artefact(args.policy, GAME.contract)
    runners = {name: open_runner(artefact, name) for name in RUNTIMES}
    players = {name: policy_player(GAME, runner) for name, runner in runners.items()}
    search, rng = GAME.make_search(load_weights(args.weights)), np.random.default_rng(0)
    states = spread(args.replays, args.states)
    watch = Watch(time.perf_counter_ns if args.wall else time.thread_time_ns)
    reference = f"search {args.evals}"

    def decide(position: Position, seat: int, run: str, label: str, watch: Watch) -> None:
        inputs = watch(f"inputs{label}", lambda: GAME.policy_inputs(position, seat))
        logits = watch(f"{run}{label}", lambda: runners[run](inputs)[0])  # type: ignore[arg-type,index]
        watch(f"choice{label}", lambda: GAME.choose(position, seat, inputs, logits))  # type: ignore[arg-type]

    def whole(position: Position, seat: int, run: str, label: str) -> None:
        watch(f"decision, {run}{label}", lambda: players[run](position, seat, rng))

    for warm in (True, False):
        if not warm:
            watch.found.clear()
        for position, seat in states[:20] if warm else states:
            for run in RUNTIMES:
                decide(position, seat, run, "", watch)
                whole(position, seat, run, "")
            watch(reference, lambda p=position, s=seat: search(p, s, Budget(evals=args.evals), rng))  # type: ignore[misc]
        full = crowded()
        for _ in range(20 if warm else 200):
            for run in RUNTIMES:
                whole(full, 0, run, ", crowded")
        for _ in range(100):
            board = full.board._replace(home_x=full.board.home_x.copy())
            watch("new board", lambda b=board: path_table(b))  # type: ignore[misc]

    slow = float(np.median(watch.found[reference]))
    print(f"{args.policy.name} {artefact.sha256[:12]}, {len(states)} states, one thread, microseconds")
    print(f"{'':<32}{'p50':>8}{'p99':>8}{'most':>8}   {reference} / p50")
    for name, times in watch.found.items():
        p50, p99 = np.percentile(times, [50, 99])
        print(f"{name:<32}{p50:>8.0f}{p99:>8.0f}{max(times):>8.0f}   {slow / p50:.1f}")


if __name__ == "__main__":
    main()
