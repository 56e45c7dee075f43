"""How a submission fares in whole official games: errors, time-outs, move times, overage, wins against `starter`.

    td-loop export --weights models/value_spline_v2.npz --out submission
    python benchmarks/bench_submission.py submission/main.py --games 200 --jobs 1

Half of the games have 2 seats, half 4, on maps of their own, the submission in every seat in turn. Every game is
played by a process of its own, from a cold start as on Kaggle, and printed when it is done. The reference is the
official limits: 1 s a move, 60 s of overage a game.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from td_loop.games.orbit_wars.trial import Report, Setting

FIRST_SEED = 3_000_000
OVERAGE_S = 60.0


def settings(main: str, games: int, act_timeout: float) -> Iterator[Setting]:
    """The games to play."""
    for k in range(games):
        n_players = 2 if k % 2 == 0 else 4
        seat = k // 2 % n_players
        yield Setting(main, FIRST_SEED + k, n_players, seat, act_timeout=act_timeout)


def play(setting: Setting) -> Report:
    """One game in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        asked = json.dumps({**asdict(setting), "cache": folder})
        command = [sys.executable, "-m", "td_loop.games.orbit_wars.trial", asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        return Report(
            False, [0.0], [f"the game broke off: {done.stderr.strip().splitlines()[-1]}"], {}, 0.0, False
        )
    return Report(**json.loads(done.stdout))


def row(name: str, reports: list[Report]) -> str:
    """One line of the table."""
    later = np.array([s for r in reports for s in r.seconds[1:]] or [0.0])
    faults = [f for r in reports for f in r.faults]
    timeouts = sum("TIMEOUT" in f for f in faults)
    spent = np.array([OVERAGE_S - r.overage for r in reports])
    rule = sum(sum(r.fallbacks.values()) for r in reports)
    return (
        f"{name:<8}{len(reports):>6}{len(faults) - timeouts:>8}{timeouts:>10}"
        f"{max(r.seconds[0] for r in reports):>11.2f}{np.percentile(later, 50):>8.3f}"
        f"{np.percentile(later, 99.9):>8.3f}{later.max():>8.3f}"
        f"{spent.mean():>10.1f}{spent.max():>9.1f}{rule / max(1, sum(r.turns for r in reports)):>8.2%}"
        f"{np.mean([r.won for r in reports]):>8.1%}{np.mean([r.turns for r in reports]):>8.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("main", type=Path, help="main.py of an unpacked submission")
    parser.add_argument("--games", type=int, default=200, help="games (200)")
    parser.add_argument(
        "--jobs", type=int, default=1, help="games at a time; more than free cores disturb the clock (1)"
    )
    parser.add_argument("--act-timeout", type=float, default=1.0, help="seconds a move (1, the official limit)")
    args = parser.parse_args()
    where = "the official environment" if find_spec("kaggle_environments") else "our environment"
    print(f"{args.main}, {args.games} games in {where}, {args.jobs} at a time, {args.act_timeout:g} s a move\n")
    reports: dict[int, list[Report]] = {2: [], 4: []}
    with ThreadPoolExecutor(args.jobs) as pool:
        games = list(settings(str(args.main.resolve()), args.games, args.act_timeout))
        for setting, report in zip(games, pool.map(play, games), strict=True):
            reports[setting.n_players].append(report)
            fate = f"{'won' if report.won else 'not won'} in {report.turns} turns"
            trouble = "; ".join(
                [*report.faults, *(f"rule {n} times: {why}" for why, n in report.fallbacks.items())]
            )
            print(
                f"seed {setting.seed}, {setting.n_players} seats: {fate}" + (f"; {trouble}" if trouble else ""),
                flush=True,
            )
    head = (
        "errors",
        "time-outs",
        "first move",
        "p50 s",
        "p99.9",
        "max s",
        "overage",
        "worst",
        "rule",
        "won",
        "turns",
    )
    widths = (8, 10, 11, 8, 8, 8, 10, 9, 8, 8, 8)
    print(f"\n{'seats':<8}{'games':>6}" + "".join(f"{h:>{w}}" for h, w in zip(head, widths, strict=True)))
    for n_players, played in reports.items():
        if played:
            print(row(str(n_players), played))
    if reports[2] and reports[4]:
        print(row("all", reports[2] + reports[4]))


if __name__ == "__main__":
    main()
