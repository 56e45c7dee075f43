"""Strength against budget: what a longer think buys.

    python benchmarks/bench_strength.py [--weights NPZ] [--budgets 0.02 0.1 0.2 1.0] [--maps 50] [--seats 2]

Every budget plays the one before it (and the rule-based agent `balanced`), on maps never used elsewhere. With 2
seats every map is played twice with seats swapped; with 4, two seats opposite each other get one budget, the two
others the other one, and then the other way round. Budgets are in the thread's processor time, so what else the
machine does changes nothing. `--evals` takes budgets in evaluations instead, and repeats exactly. The reference is
an even match, 50 %. Time: about 200 turns a game, 2 games a map, so 50 maps take 5.5 hours for every second of
budget of the two sides together.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.search import OrbitSearch
from td_loop.games.orbit_wars.state import Action, Position
from td_loop.value.io import load_weights
from td_loop.value.model import SplineValue

ROOT = Path(__file__).parents[1]
FIRST_SEED = 2_000_000
SIDES = {2: ((0,), (1,)), 4: ((0, 3), (1, 2))}
"""Seats of the two sides."""

Player = Callable[[Position, int, np.random.Generator], Action]


def thinker(v: SplineValue, budget: float, *, evals: bool) -> Player:
    """A search with a budget in seconds or in evaluations."""
    search = OrbitSearch(v, clock=time.thread_time)
    allowed = Budget(evals=int(budget)) if evals else Budget(seconds=budget)
    return lambda pos, seat, rng: search(pos, seat, allowed, rng).action


def points(one: Player, other: Player, seed: int, seats: int, swapped: bool) -> float:
    """What the side of `one` gets: 1 won, 1/2 shared, 0 lost."""
    pos, rng = GAME.initial(seed, seats), np.random.default_rng(seed)
    mine = SIDES[seats][swapped]
    while (outcome := GAME.outcome(pos)) is None:
        living = alive(pos)
        actions: list[Action | None] = [
            (one if i in mine else other)(pos, i, rng) if living[i] else None for i in range(seats)
        ]
        pos = GAME.step(pos, actions)
    return float(sum(outcome[i] for i in mine))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=ROOT / "models" / "value_spline_v2.npz")
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.02, 0.1, 0.2, 1.0])
    parser.add_argument("--evals", action="store_true", help="budgets are evaluations")
    parser.add_argument("--maps", type=int, default=50)
    parser.add_argument("--seats", type=int, choices=(2, 4), default=2)
    args = parser.parse_args()
    v = load_weights(args.weights, feature_names=GAME.feature_names)
    GAME.compile()
    players = {f"{b:g}": thinker(v, b, evals=args.evals) for b in args.budgets}
    names = list(players)
    pairs = [(name, "balanced") for name in names] + list(zip(names[1:], names, strict=False))
    print(f"{'budget':<10}{'against':<12}{'score':>8}{'+- 95 %':>9}{'Elo':>7}{'to even':>9}")
    for name, against in pairs:
        other = players.get(against) or AGENTS[against]
        seeds = range(FIRST_SEED, FIRST_SEED + args.maps)
        each = np.array(
            [
                np.mean([points(players[name], other, seed, args.seats, swapped) for swapped in (False, True)])
                for seed in seeds
            ]
        )
        score = float(each.mean())
        error = 1.96 * each.std(ddof=1) / math.sqrt(len(each)) if len(each) > 1 else math.nan
        elo = -400.0 * math.log10(1.0 / min(max(score, 1e-3), 1.0 - 1e-3) - 1.0)
        print(f"{name:<10}{against:<12}{score:>8.1%}{error:>9.1%}{elo:>7.0f}{score / 0.5:>8.2f}x", flush=True)


if __name__ == "__main__":
    main()
