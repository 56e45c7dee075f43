"""The search: evaluated candidates a second, and how much of a long think a short one already finds.

    python benchmarks/bench_search.py [--weights NPZ] [--replays PATH] [--frames 200] [--short 0.02] [--long 1.0]

Frames are drawn evenly from all games. The reference for the first figure is what a search without a forecast
would do with each candidate: make the launch, play the engine MARK_FAR turns on, and compute the features of what
is there then (the turns in one compiled loop, the engine at its fastest). Beside it: what it takes to judge one
candidate, that is to launch it in the forecast, compute features and V, and take it back.

A decision counts as equal when the same fleets leave the same planets at the same angles; ships sent the same way
are the part of the longer think's ships that the shorter one sends from the same planets at the same angles. Both
use one random stream; the long search with another stream shows how much of the difference is no more than an even
choice.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.aims import forget, make_aims
from td_loop.games.orbit_wars.engine import alive, with_room
from td_loop.games.orbit_wars.features import N_FEATURES, Tally, features, make_tally
from td_loop.games.orbit_wars.forecast import MARK_FAR, Forecast, begin, forecast_for
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.paths import PathTable, path_table
from td_loop.games.orbit_wars.plan import (
    MIN_GAIN,
    Judge,
    Plan,
    affordable,
    evaluate_candidate,
    log_odds,
    make_plan,
    start_plan,
)
from td_loop.games.orbit_wars.propose import (
    SEVERAL,
    SLOTS,
    Pool,
    make_pool,
    propose_group,
    propose_single,
)
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import F64, N_FLEETS, Action, Board, Position, State, copy_state
from td_loop.games.orbit_wars.turn import advance, launch, make_scratch
from td_loop.kernels import allocating, cache_dir, kernel
from td_loop.value.io import load_weights
from td_loop.value.kernel import segment_of
from td_loop.value.model import SplineValue

ROOT = Path(__file__).parents[1]
NO_MOVES = np.zeros((0, 4))


@allocating
def play_on(board: Board, state: State, seat: int, move: F64, turns: int) -> None:
    """Make one launch and play `turns` turns, in place."""
    launch(state, seat, move[0], move[1], move[2])
    scratch = make_scratch(len(state.p_owner))
    for _ in range(turns):
        advance(board, state, NO_MOVES, 0, 0, scratch)


def resimulated_per_second(pos: Position, seat: int, action: Action, v: SplineValue, repeats: int) -> float:
    """Candidates a second when each is played on by the engine."""
    board, start = pos
    state = copy_state(with_room(start, 8))
    fc, tally = forecast_for(pos, v.gamma), make_tally()
    judge = Judge(
        v.knots, v.coef[segment_of(board.n_players)], alive(pos), tally, np.zeros((4, N_FEATURES), np.float32)
    )
    paths = path_table(board)
    began = time.thread_time()
    for _ in range(repeats):
        for now, then in zip(state, start, strict=True):
            now[: len(then)] = then
        play_on(board, state, seat, action[0], MARK_FAR)
        begin(fc, board, paths, state)
        log_odds(fc, judge, seat)
    return repeats / (time.thread_time() - began)


@kernel
def judge_all(plan: Plan, pool: Pool, fc: Forecast, judge: Judge) -> int:
    """Judge every candidate of the pool; how many there were."""
    n = 0
    for q in range(pool.at[0]):
        for s in range(SLOTS):
            if pool.size[q, s] > 0 and affordable(pool, fc, q, s):
                evaluate_candidate(plan, pool, fc, judge, q, s)
                n += 1
    return n


@kernel
def propose_all(pool: Pool, fc: Forecast, board: Board, paths: PathTable, state: State, seat: int) -> None:
    """Propose the candidates of every pair."""
    for q in range(pool.at[0]):
        if pool.source[q] == SEVERAL:
            propose_group(pool, q, fc, board, paths, state, seat)
        else:
            propose_single(pool, q, fc, board, paths, state, seat)


def judging_us(pos: Position, seat: int, v: SplineValue, repeats: int) -> tuple[float, float]:
    """(features alone, one candidate judged), microseconds; nan where there is no candidate."""
    board, state = pos
    capacity = len(state.p_x)
    fc, tally, row = forecast_for(pos, v.gamma), make_tally(), np.zeros((4, N_FEATURES), np.float32)
    judge = Judge(v.knots, v.coef[segment_of(board.n_players)], alive(pos), tally, row)
    paths, pool = path_table(board), make_pool(capacity, make_aims(capacity))
    forget(pool.aims)
    plan = make_plan(pool)
    begin(fc, board, paths, state)
    start_plan(plan, pool, fc, judge, state, seat, np.ones(capacity, np.bool_), 1, MIN_GAIN)
    propose_all(pool, fc, board, paths, state, seat)
    judged = judge_all(plan, pool, fc, judge)
    began = time.thread_time()
    for _ in range(repeats):
        judge_all(plan, pool, fc, judge)
    took = time.thread_time() - began
    many_features(fc, tally, row, 1)
    began = time.thread_time()
    many_features(fc, tally, row, 100 * repeats)
    alone = time.thread_time() - began
    return 1e4 * alone / repeats, 1e6 * took / (repeats * judged) if judged else np.nan


@kernel
def many_features(fc: Forecast, tally: Tally, row: npt.NDArray[np.float32], n: int) -> None:
    """Compute the features `n` times."""
    for _ in range(n):
        features(fc, tally, row)


def launches(action: Action) -> dict[tuple[int, float], float]:
    """Ships by planet and angle."""
    return {(int(p), round(float(angle), 3)): float(ships) for p, angle, ships in action}


def shared_ships(short: Action, long: Action) -> float:
    """Part of the ships of `long` that `short` sends the same way; 1.0 when neither launches."""
    a, b = launches(short), launches(long)
    if not b:
        return float(not a)
    return sum(min(ships, a.get(key, 0.0)) for key, ships in b.items()) / sum(b.values())


def frames(replays: Path | None, n: int) -> list[tuple[Position, int]]:
    """`n` (position, seat alive in it), evenly over all games and turns."""
    store = GAME.open_replays(replays, cache_dir())
    every = [(g, t) for g, info in enumerate(store.games) for t in range(info.n_frames - 1)]
    rng = np.random.default_rng(0)
    chosen = []
    for j in np.linspace(0, len(every) - 1, n).astype(int):
        pos = store.state(*every[j])
        chosen.append((pos, int(rng.choice(np.flatnonzero(alive(pos))))))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=ROOT / "models" / "value_spline_v2.npz")
    parser.add_argument("--replays", type=Path, default=None, help="default: the bundled games")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--short", type=float, default=0.02, help="seconds")
    parser.add_argument("--long", type=float, default=1.0, help="seconds")
    args = parser.parse_args()
    GAME.compile()
    v = load_weights(args.weights, feature_names=GAME.feature_names)
    search = OrbitSearch(v, clock=time.thread_time)  # what else the machine does is not counted

    def think(pos: Position, seat: int, seconds: float, seed: int) -> tuple[Action, int, float]:
        began = time.thread_time()
        decision = search(pos, seat, Budget(seconds=seconds), np.random.default_rng(seed))
        return decision.action, decision.evals, time.thread_time() - began

    chosen = frames(args.replays, args.frames)
    think(*chosen[0], args.short, 0)
    rate, reference, equal, same_ships, noise, late = [], [], [], [], [], []
    evals = {"short": 0, "long": 0}
    for pos, seat in chosen:
        quick, n_quick, took = think(pos, seat, args.short, 0)
        deep, n_deep, took_long = think(pos, seat, args.long, 0)
        again, _, _ = think(pos, seat, args.long, 1)
        evals["short"] += n_quick
        evals["long"] += n_deep
        late.append(took - args.short)
        equal.append(launches(quick) == launches(deep))
        same_ships.append(shared_ships(quick, deep))
        noise.append(launches(again) == launches(deep))
        if len(deep):
            rate.append(n_deep / took_long)
            if len(reference) == 0:
                resimulated_per_second(pos, seat, deep, v, 2)  # compiles
            reference.append(resimulated_per_second(pos, seat, deep, v, 20))
    costs = {
        seats: np.nanmean([judging_us(p, s, v, 20) for p, s in chosen if p.board.n_players == seats], axis=0)
        for seats in (2, 4)
    }
    fleets = np.mean([pos.state.head[N_FLEETS] for pos, _ in chosen])
    print(f"{len(chosen)} frames, mean of {fleets:.0f} fleets under way")
    print(f"\n{'candidates a second':<44}{'':>10}{'ratio':>8}")
    ours, theirs = float(np.mean(rate)), float(np.mean(reference))
    print(f"{'search, proposals and second thoughts included':<46}{ours:>8,.0f}{ours / theirs:>8.1f}x")
    print(f"{f'engine re-simulation, {MARK_FAR} turns a candidate':<46}{theirs:>8,.0f}{1.0:>8.1f}x")
    print(f"\n{'microseconds':<46}{'features':>10}{'candidate':>11}")
    for seats, (alone, judged) in costs.items():
        print(f"{f'judging a candidate, {seats} seats':<46}{alone:>10.2f}{judged:>11.2f}")
    print(f"\n{f'{args.short} s against {args.long} s':<46}{'':>8}")
    print(f"{'decisions that are equal':<46}{np.mean(equal):>8.1%}")
    print(f"{'ships sent the same way':<46}{np.mean(same_ships):>8.1%}")
    print(f"{f'the same, {args.long} s with two random streams':<46}{np.mean(noise):>8.1%}")
    for name, n in evals.items():
        print(f"{f'candidates a decision, {name}':<46}{n / len(chosen):>8,.0f}")
    print(f"{'over the short budget, worst of all (ms)':<46}{1e3 * max(late):>8.1f}")


if __name__ == "__main__":
    main()
