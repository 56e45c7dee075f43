"""Are decisions legal, in time, and free of growing memory?

    python benchmarks/bench_decisions.py [--weights NPZ] [--replays PATH] [--states 100000] [--timed 2000]

- Legality: states drawn evenly from all replays, every other one spoilt at random (owners, garrisons and the turn
  are drawn anew, half the fleets fly elsewhere), one seat each, a few dozen evaluations. A decision is legal when
  the engine takes every launch of it.
- Time: decisions under a budget in seconds, by planets and fleets. The clock is the thread's processor time, as on
  a quiet core: what other programs take does not count.
- Memory: what Python and numpy hold more after a game of 500 turns than after its 50th turn, a decision in each.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
import tracemalloc
from pathlib import Path

import numpy as np

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, STEP, Position, copy_state
from td_loop.kernels import cache_dir
from td_loop.progress import progress
from td_loop.value.io import load_weights

ROOT = Path(__file__).parents[1]


def spoilt(pos: Position, rng: np.random.Generator) -> Position:
    """A state that no game would come to."""
    s = copy_state(pos.state)
    n, f = int(s.head[N_PLANETS]), int(s.head[N_FLEETS])
    s.p_owner[:n] = rng.integers(-1, pos.board.n_players, n)
    s.p_ships[:n] = np.floor(np.exp(rng.uniform(0.0, 6.0, n))) - 1
    s.f_owner[:f] = rng.integers(0, pos.board.n_players, f)
    s.f_angle[:f] = np.where(rng.random(f) < 0.5, rng.uniform(-math.pi, math.pi, f), s.f_angle[:f])
    if (s.p_comet[:n] < 0).all():  # a comet's place on its path belongs to its turn
        s.head[STEP] = rng.integers(1, 498)
    return Position(pos.board, s)


def illegal(search: OrbitSearch, pos: Position, seat: int, evals: int, rng: np.random.Generator) -> bool:
    """Whether the engine refuses some launch of the decision."""
    action = search(pos, seat, Budget(evals=evals), rng).action
    made = GAME.partial(pos, seat, action, len(action)).state
    return bool(made.head[N_FLEETS] != pos.state.head[N_FLEETS] + len(action))


def growth(search: OrbitSearch) -> tuple[int, int]:
    """(bytes held more at the end of a long game than at its 50th turn, turns)."""
    pos, rng = GAME.initial(11, 2), np.random.default_rng(0)
    tracemalloc.start()
    first, turns = 0, 0
    while GAME.outcome(pos) is None:
        mine = search(pos, 0, Budget(evals=300), rng).action
        # Both stand still after turn 50, or the game would be short; the search decides all the same.
        actions = [mine, AGENTS["starter"](pos, 1, rng)] if turns < 50 else [None, None]
        pos = GAME.step(pos, actions)
        turns += 1
        if turns == 50:
            gc.collect()
            first = tracemalloc.get_traced_memory()[0]
    gc.collect()
    last = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return last - first, turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=ROOT / "models" / "value_spline_v2.npz")
    parser.add_argument("--replays", type=Path, default=None, help="default: the bundled games")
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument("--evals", type=int, default=40, help="of each decision that is checked for legality (40)")
    parser.add_argument("--timed", type=int, default=2000, help="decisions that are timed (2000)")
    parser.add_argument("--seconds", type=float, default=0.02, help="budget of those (0.02)")
    args = parser.parse_args()
    GAME.compile()
    search = OrbitSearch(load_weights(args.weights, feature_names=GAME.feature_names), clock=time.thread_time)
    store = GAME.open_replays(args.replays, cache_dir())
    every = [(g, t) for g, info in enumerate(store.games) for t in range(info.n_frames - 1)]
    rng = np.random.default_rng(0)

    refused = 0
    with progress("decisions", args.states) as done:
        for k in range(args.states):
            pos = store.state(*every[int(k * len(every) / args.states)])
            if k % 2:
                pos = spoilt(pos, rng)
            seats = np.flatnonzero(alive(pos))
            if len(seats):
                refused += illegal(search, pos, int(rng.choice(seats)), args.evals, rng)
            done(1)
    print(f"{args.states:,} states, half of them spoilt: {refused} decisions with an illegal launch\n")

    late, size = [], []
    for j in np.linspace(0, len(every) - 1, args.timed).astype(int):
        pos = store.state(*every[j])
        seat = int(rng.choice(np.flatnonzero(alive(pos))))
        began = time.thread_time()
        search(pos, seat, Budget(seconds=args.seconds), rng)
        late.append(1e3 * (time.thread_time() - began))
        size.append((int(pos.state.head[N_PLANETS]), int(pos.state.head[N_FLEETS])))
    ms, sizes = np.array(late), np.array(size)
    print(f"decisions of {1e3 * args.seconds:.0f} ms, ms\n")
    print(f"{'planets':<10}{'fleets':<10}{'decisions':>10}{'p50':>8}{'p99':>8}{'p99.9':>8}{'worst':>8}")
    for planets in ((0, 28), (28, 36), (36, 99)):
        for fleets in ((0, 10), (10, 30), (30, 9999)):
            inside = [(low <= x) & (x < high) for x, (low, high) in zip(sizes.T, (planets, fleets), strict=True)]
            table_row(f"{planets[0]}-{planets[1] - 1}", f"{fleets[0]}-{fleets[1] - 1}", ms[inside[0] & inside[1]])
    table_row("all", "all", ms)
    grown, turns = growth(search)
    print(f"\nheld more after {turns} turns than after 50: {grown / 1024:.1f} KiB")


def table_row(planets: str, fleets: str, ms: np.ndarray) -> None:
    """One line of the table of times."""
    if len(ms):
        p = np.percentile(ms, [50, 99, 99.9])
        print(f"{planets:<10}{fleets:<10}{len(ms):>10}{p[0]:>8.1f}{p[1]:>8.1f}{p[2]:>8.1f}{ms.max():>8.1f}")


if __name__ == "__main__":
    main()
