"""What prepare costs beside what it must cost: `python benchmarks/bench_prepare.py --help`.

Three tables: the wall time of Branch A against the ideal `n_a * budget_s / workers`; the rest, per 10,000 replay
rows, against one thread that only reads states and computes features; the peak memory against the rows themselves.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from td_loop.games import get_game
from td_loop.games.base import Budget
from td_loop.kernels import cache_dir
from td_loop.machine import physical_cores
from td_loop.prepare.branch_data import BranchData
from td_loop.prepare.config import PrepareConfig
from td_loop.prepare.rows import sample_rows, training_spans
from td_loop.prepare.run import prepare
from td_loop.prepare.split import validation_games
from td_loop.value.io import load_weights, save_weights
from td_loop.value.model import SplineValue


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="orbit_wars", help="a built-in game, or package.module:ATTRIBUTE")
    parser.add_argument("--replays", type=Path, help="replay set (default: the bundled one)")
    parser.add_argument("--weights", type=Path, help="V_snap (default: a flat value function)")
    parser.add_argument("--workers", type=int, default=min(2, physical_cores()))
    parser.add_argument("--budget-s", type=float, default=0.2)
    parser.add_argument("--searches", type=int, default=300, help="agent rows of the first table")
    parser.add_argument("--rows", type=int, default=10_000, help="replay rows of the second table")
    parser.add_argument("--sizes", default="10000,100000,400000", help="n of the third table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "branch_data.npz"
        weights = args.weights or flat_weights(args.game, Path(folder) / "V_snap.npz")
        base = {"weights": weights, "out": out, "game": args.game, "replays": args.replays, "cache": cache_dir()}
        base["workers"] = args.workers
        cache_dir().mkdir(parents=True, exist_ok=True)
        prepare(PrepareConfig(n=1, k=0.0, **base))  # compiles, imports and converts, whatever there is
        started = seconds(PrepareConfig(n=args.workers, k=0.0, **base))
        print(f"{args.game}, {args.workers} workers; start and end of a run {started:.2f} s, in all wall times\n")
        searches(args, base, started)
        rest(args, base, started)
        memory(args, base)


def flat_weights(name: str, path: Path) -> Path:
    """A value function that finds all states alike."""
    game = get_game(name)
    f = len(game.feature_names)
    knots = np.tile(np.linspace(0.0, 1.0, 16), (f, 1))
    save_weights(
        path, SplineValue(knots, np.zeros((2, f, 16)), game.feature_names, {"game": game.name, "gamma": 0.97})
    )
    return path


def seconds(config: PrepareConfig) -> float:
    began = time.perf_counter()
    prepare(config)
    return time.perf_counter() - began


def searches(args: argparse.Namespace, base: dict[str, object], started: float) -> None:
    """Branch A, at the budget and at a tenth of it (the same time in all)."""
    print(f"{'searches':>9} {'budget s':>9} {'ideal s':>9} {'wall s':>9} {'wall/ideal':>11} {'less start':>11}")
    for n, budget in ((args.searches, args.budget_s), (10 * args.searches, args.budget_s / 10)):
        ideal = n * budget / args.workers
        wall = seconds(PrepareConfig(n=n, k=1.0, budget=Budget(seconds=budget), **base))
        print(
            f"{n:9d} {budget:9.3f} {ideal:9.1f} {wall:9.1f} {wall / ideal:11.3f} {(wall - started) / ideal:11.3f}"
        )
    print("Below 1: searches that ended before their time, with nothing left to try.\n")


def rest(args: argparse.Namespace, base: dict[str, object], started: float) -> None:
    """Branch R beside the bare minimum for the same rows in one thread."""
    game = get_game(args.game)
    value = load_weights(base["weights"])  # type: ignore[arg-type]
    replays = game.open_replays(args.replays, cache_dir())
    spans = training_spans(game, replays, validation_games(replays.games, replays.content_hash))
    rows = sample_rows(spans, args.rows, 0.0, 0)
    began = time.perf_counter()
    for g, turn in zip(rows.game.tolist(), rows.turn.tolist(), strict=True):
        game.features(replays.state(g, turn), value.gamma)
        game.features(replays.state(g, turn + 1), value.gamma)
    bare = (time.perf_counter() - began) * 1e4 / args.rows
    wall = (seconds(PrepareConfig(n=args.rows, k=0.0, **base)) - started) * 1e4 / args.rows
    print(f"{'10,000 replay rows':<52} {'s':>7} {'ratio':>7}")
    print(f"{'states and features alone, one thread':<52} {bare:7.2f} {1.0:7.2f}")
    print(f"{f'prepare, {args.workers} workers, without the start':<52} {wall:7.2f} {wall / bare:7.2f}\n")


def memory(args: argparse.Namespace, base: dict[str, object]) -> None:
    """Peak resident memory of the parent, in a process of its own for each n."""
    n_features = len(get_game(args.game).feature_names)
    print(f"{'n':>9} {'peak MB':>9} {'rows MB':>9} {'(peak - first) / rows':>22} {'wall s':>9}")
    first = None
    for n in (1, *map(int, args.sizes.split(","))):
        program = (
            "import sys; from td_loop.cli import main; code = main(sys.argv[1:]);"
            "print([x for x in open('/proc/self/status') if x.startswith('VmHWM')][0]); sys.exit(code)"
        )
        flags = [
            "prepare",
            "--game",
            args.game,
            "--weights",
            base["weights"],
            "--out",
            base["out"],
            "--n",
            n,
            "--k",
            0,
        ]
        flags += ["--workers", args.workers]
        flags += ["--replays", args.replays] if args.replays else []
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, flags)], stdout=subprocess.PIPE, text=True, check=True
        )
        wall = time.perf_counter() - began
        found = re.search(r"VmHWM:\s+(\d+) kB", done.stdout)
        assert found
        peak, rows = int(found[1]) / 1e3, BranchData.bytes_needed(n, n_features) / 1e6
        first = first or peak
        print(f"{n:9d} {peak:9.0f} {rows:9.1f} {(peak - first) / rows:22.2f} {wall:9.1f}")


if __name__ == "__main__":
    main()
