"""How well weights play: the search under them against rule-based agents and other weights, 2 seats.

    python benchmarks/bench_play.py runs/td_loop_default/latest_good.npz --against models/value_spline_v2.npz

Every map is played twice with seats swapped; searches get an evaluation budget, so a table repeats exactly. The
reference is an even match: 50 %.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.state import Action, Position
from td_loop.value.io import load_weights

Player = Callable[[Position, int, np.random.Generator], Action]
FIRST_SEED = 1_000_000  # far from the seeds of the bundled set


def player(name: str, evals: int) -> Player:
    """A rule-based agent by name, or a search under weights by path."""
    if name in AGENTS:
        return AGENTS[name]
    search = GAME.make_search(load_weights(Path(name), feature_names=GAME.feature_names))
    return lambda pos, seat, rng: search(pos, seat, Budget(evals=evals), rng).action


def play(one: Player, other: Player, seed: int, seat: int) -> tuple[float, int]:
    """Points of `one` in `seat` (1 won, 1/2 shared, 0 lost), and the turns that the game took."""
    pos, rng = GAME.initial(seed, 2), np.random.default_rng(seed)
    players = (one, other) if seat == 0 else (other, one)
    turns = 0
    while (outcome := GAME.outcome(pos)) is None:
        pos = GAME.step(pos, [p(pos, i, rng) for i, p in enumerate(players)])
        turns += 1
    return float(outcome[seat]), turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", help="weights whose search plays")
    parser.add_argument(
        "--against", nargs="+", default=["starter", "greedy", "balanced"], help="agents or weights"
    )
    parser.add_argument("--maps", type=int, default=20, help="maps, each played with seats swapped (20)")
    parser.add_argument("--evals", type=int, default=300, help="candidates a decision (300)")
    args = parser.parse_args()
    one = player(args.weights, args.evals)
    print(f"search under {args.weights}, {args.evals} candidates a decision, {args.maps} maps twice\n")
    print(f"{'against':<44}{'score':>8}{'+- 95 %':>9}{'to even':>9}{'turns':>8}")
    for name in args.against:
        other = player(name, args.evals)
        seeds = range(FIRST_SEED, FIRST_SEED + args.maps)
        games = np.array([[play(one, other, seed, seat) for seat in (0, 1)] for seed in seeds])
        pairs = games[:, :, 0].mean(axis=1)  # the two games of a map are not independent
        score, error = pairs.mean(), 1.96 * pairs.std(ddof=1) / math.sqrt(len(pairs))
        print(f"{name[-43:]:<44}{score:>8.0%}{error:>9.0%}{score / 0.5:>8.2f}x{games[:, :, 1].mean():>8.0f}")


if __name__ == "__main__":
    main()
