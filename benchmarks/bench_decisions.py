"""Are decisions legal, in time, and free of growing memory?

    python benchmarks/bench_decisions.py [--weights NPZ] [--replays PATH] [--states 100000] [--timed 10000]

- Legality: states in equal parts recorded (drawn evenly from all games), recorded and spoilt (owners, garrisons
  and the turn are drawn anew, half the fleets fly elsewhere), of random play on new maps, and such spoilt. One
  seat that is alive decides, with 1 to EVALS evaluations (evenly by their logarithm, so that it is stopped in
  every phase). A decision is legal when its numbers are finite and whole and the official rules make every launch.
- Time: decisions under a budget in seconds, by planets and fleets. The clock is the thread's processor time, as on
  a quiet core: what other programs take does not count. `--wall` looks at the clock on the wall, as play does.
- Memory: what Python, numpy and the kernels hold more after the longest recorded game (one of 500 turns, in the
  bundled set) than after its 100th turn, a decision in each, seats in turn.

`--states 0` or `--timed 0` leaves a part out. Exit status 1: a decision was illegal, more than one in a thousand
was over 10 ms late, or memory grew.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba.core.runtime import _nrt_python, rtsys

from td_loop.games.base import Budget, ReplaySet, Search
from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.launches import legal_launches
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import DONE, N_FLEETS, N_PLANETS, STEP, Action, Position, copy_state
from td_loop.kernels import cache_dir
from td_loop.progress import progress
from td_loop.value.io import load_weights

ROOT = Path(__file__).parents[1]
KINDS = ("recorded", "recorded, spoilt", "random play", "random play, spoilt")
PLANETS = ((0, 28), (28, 36), (36, 99))
FLEETS = ((0, 10), (10, 30), (30, 9999))
LATE_MS = 10.0
GROWTH = 4096
"""Bytes that a game may leave behind: a number or two of what measures. Ten bytes a decision are more."""

Store = ReplaySet[Position, Action]
Player = Search[Position, Action]


# --- legality ----------------------------------------------------------------------------------------------------


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


def recorded(store: Store, n: int) -> Iterator[Position]:
    """`n` frames, evenly from all games; a frame comes again when there are fewer."""
    every = [(g, t) for g, info in enumerate(store.games) for t in range(info.n_frames - 1)]
    for k in range(n):
        yield store.state(*every[k * len(every) // n])


def random_play(rng: np.random.Generator) -> Iterator[Position]:
    """Every few turns of endless games of players that launch at random, every game on a new map."""
    for seed in range(10**9):
        pos = GAME.initial(10**6 + seed, 2 + 2 * (seed % 2))
        while not pos.state.head[DONE]:
            if rng.random() < 0.2:
                yield pos
            pos = GAME.step(pos, [AGENTS["random"](pos, i, rng) for i in range(pos.board.n_players)])


def states(store: Store, n: int, rng: np.random.Generator) -> Iterator[tuple[str, Position]]:
    """`n` states and of what kind they are, the kinds in turn."""
    frames, made = recorded(store, (n + 1) // 2), random_play(rng)
    for k in range(n):
        pos = next(made if k % 4 >= 2 else frames)
        yield KINDS[k % 4], spoilt(pos, rng) if k % 2 else pos


def legal(pos: Position, seat: int, action: Action) -> bool:
    """Whether the official rules make every launch of the action."""
    if not np.isfinite(action).all() or (action[:, [0, 2]] % 1).any():
        return False
    moves = [[int(planet), float(angle), int(ships)] for planet, angle, ships in action]
    return len(legal_launches(pos, seat, moves)) == len(moves)


class Tally(NamedTuple):
    """Decisions of one kind of state."""

    decisions: int = 0
    launches: int = 0
    refused: int = 0  # decisions with an illegal launch


def check(search: Player, store: Store, n: int, most_evals: int, rng: np.random.Generator) -> dict[str, Tally]:
    """Decide in `n` states; see the top of the file."""
    found = dict.fromkeys(KINDS, Tally())
    with progress("decisions", n) as done:
        for kind, pos in states(store, n, rng):
            # Only spoiling can leave a board to nobody, and hardly ever; a seat that has nothing decides then.
            seats = np.flatnonzero(alive(pos)) if alive(pos).any() else np.arange(pos.board.n_players)
            seat, evals = int(rng.choice(seats)), int(most_evals ** rng.random())
            action = search(pos, seat, Budget(evals=evals), rng).action
            t = found[kind]
            ok = legal(pos, seat, action)
            found[kind] = Tally(t.decisions + 1, t.launches + len(action), t.refused + (not ok))
            done(1)
    return found


# --- time ------------------------------------------------------------------------------------------------------


class Times(NamedTuple):
    """Timed decisions. N of them."""

    ms: np.ndarray[Any, Any]  # [N]
    planets: np.ndarray[Any, Any]  # [N]
    fleets: np.ndarray[Any, Any]  # [N]


def timed(search: Player, store: Store, n: int, seconds: float, wall: bool, rng: np.random.Generator) -> Times:
    """Time `n` decisions of recorded states."""
    clock = time.perf_counter if wall else time.thread_time
    rows = []
    with progress("timed", n) as done:
        for pos in recorded(store, n):
            seat = int(rng.choice(np.flatnonzero(alive(pos))))
            began = clock()
            search(pos, seat, Budget(seconds=seconds), rng)
            took = clock() - began
            rows.append((1e3 * took, int(pos.state.head[N_PLANETS]), int(pos.state.head[N_FLEETS])))
            done(1)
    ms, planets, fleets = np.array(rows).T
    return Times(ms, planets, fleets)


def times_table(times: Times) -> list[tuple[str, str, int, list[float]]]:
    """(planets, fleets, decisions, [p50, p99, p99.9, worst] in ms) of every kind of board seen, and of all."""
    marks = [50.0, 99.0, 99.9, 100.0]
    table = []
    for p in PLANETS:
        for f in FLEETS:
            some = times.ms[
                (p[0] <= times.planets) & (times.planets < p[1]) & (f[0] <= times.fleets) & (times.fleets < f[1])
            ]
            if len(some):
                table.append((span(p), span(f), len(some), np.percentile(some, marks).tolist()))
    return [*table, ("all", "all", len(times.ms), np.percentile(times.ms, marks).tolist())]


def span(bounds: tuple[int, int]) -> str:
    """What a line of the table is called."""
    low, high = bounds
    return f"below {high}" if not low else f"{low} or more" if high in (99, 9999) else f"{low}-{high - 1}"


# --- memory ----------------------------------------------------------------------------------------------------


def held() -> int:
    """Bytes that Python and numpy hold, as far as they are traced."""
    # The interpreter's method cache keeps names that compiled code asks objects for; it fills, and is not ours.
    getattr(sys, "_clear_internal_caches", getattr(sys, "_clear_type_cache", gc.collect))()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def arrays_of_kernels() -> int:
    """Arrays that compiled code made and that are still there."""
    stats = rtsys.get_allocation_stats()
    return int(stats.mi_alloc - stats.mi_free)


def growth(search: Player, store: Store, evals: int = 300, settled: int = 100) -> tuple[int, int, int]:
    """(bytes held more, kernels' arrays held more, turns): a whole game, against its turn `settled`."""
    game = max(range(len(store.games)), key=lambda g: store.games[g].n_frames)
    turns, rng = store.games[game].n_frames - 1, np.random.default_rng(0)
    _nrt_python.memsys_enable_stats()
    tracemalloc.start()
    before = after = (0, 0)
    for turn in range(turns):
        pos = store.state(game, turn)
        search(pos, turn % pos.board.n_players, Budget(evals=evals), rng)
        if turn + 1 in (settled, turns):
            del pos
            before, after = after, (held(), arrays_of_kernels())
    tracemalloc.stop()
    _nrt_python.memsys_disable_stats()
    return after[0] - before[0], after[1] - before[1], turns


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=ROOT / "models" / "value_spline_v2.npz")
    parser.add_argument("--replays", type=Path, default=None, help="default: the bundled games")
    parser.add_argument("--states", type=int, default=100_000, help="decisions that are checked (100000)")
    parser.add_argument("--evals", type=int, default=600, help="most evaluations of each of those (600)")
    parser.add_argument("--timed", type=int, default=10_000, help="decisions that are timed (10000)")
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.02], help="budgets of those (0.02)")
    parser.add_argument("--wall", action="store_true", help="time by the clock on the wall")
    args = parser.parse_args()
    GAME.compile()
    value = load_weights(args.weights, feature_names=GAME.feature_names)
    search = OrbitSearch(value, clock=time.perf_counter if args.wall else time.thread_time)
    store = GAME.open_replays(args.replays, cache_dir())
    rng = np.random.default_rng(0)
    failed = False

    if args.states:
        print("| states | decisions | launches | with an illegal launch |\n|---|---|---|---|")
        for kind, t in check(search, store, args.states, args.evals, rng).items():
            print(f"| {kind} | {t.decisions:,} | {t.launches:,} | {t.refused} |")
            failed |= t.refused > 0

    for seconds in args.seconds if args.timed else ():
        times = timed(search, store, args.timed, seconds, args.wall, rng)
        print(f"\ndecisions of {1e3 * seconds:g} ms, ms by {'the wall' if args.wall else 'processor time'}\n")
        print("| planets | fleets | decisions | p50 | p99 | p99.9 | worst |\n|---|---|---|---|---|---|---|")
        table = times_table(times)
        for planets, fleets, n, ms in table:
            print(f"| {planets} | {fleets} | {n:,} | " + " | ".join(f"{x:.1f}" for x in ms) + " |")
        over = table[-1][3][2] - 1e3 * seconds
        print(f"\nover the budget at p99.9: {over:+.1f} ms (at most {LATE_MS:g} is allowed)")
        failed |= over > LATE_MS

    more, arrays, turns = growth(search, store)
    print(f"\nafter {turns} turns {more:+,} bytes and {arrays:+d} arrays of kernels against turn 100")
    return int(failed or more > GROWTH or arrays > 0)


if __name__ == "__main__":
    sys.exit(main())
