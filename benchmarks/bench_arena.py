"""The arena: games/s, what a process of its own costs an agent, and how often a sequential test is wrong.

    python benchmarks/bench_arena.py [--games 400] [--workers 2] [--tests 5000]

References, in the same run: for games/s, the same games in a bare loop, without pool and store; for an outside
agent, the making of its observation; for the sequential test, the error rates that were asked for and a test
of fixed size with the same ones.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from td_loop.arena.contestants import Contestant, parse
from td_loop.arena.game import Fixture, Host, PlayedGame
from td_loop.arena.outside import Limits, OutsideAgent
from td_loop.arena.rounds import round_of
from td_loop.arena.schedule import schedule
from td_loop.arena.sprt import PENTANOMIAL, Sprt, expected_score
from td_loop.arena.standings import standings
from td_loop.arena.tournament import Tournament, run
from td_loop.games.base import Budget
from td_loop.games.orbit_wars.game import GAME

SCORES = np.array(PENTANOMIAL)
SHAPES: dict[str, tuple[float, ...]] = {
    "maps decide": (45, 1, 8, 1, 45),
    "independent games": (1, 0, 2, 0, 1),
    "mostly draws": (1, 10, 40, 10, 1),
}
"""Scores of a round between equals. As in Orbit Wars, where most maps are won twice by the same side; two
independent games; as in chess."""

FAST = """
def agent(obs):
    return [[p[0], 0.5, p[5] // 2] for p in obs.planets if p[1] == obs.player and p[5] >= 20]
"""


def tilted(shape: tuple[float, ...], mean: float) -> npt.NDArray[np.float64]:
    """The distribution nearest to `shape` that has that mean."""
    low, high = -40.0, 40.0
    for _ in range(80):
        t = (low + high) / 2
        p = np.array(shape, float) * np.exp(t * SCORES)
        p /= p.sum()
        low, high = (t, high) if p @ SCORES < mean else (low, t)
    return p


def simulate(test: Sprt, p: npt.NDArray[np.float64], n: int, seed: int = 0) -> tuple[float, float, float]:
    """How often `n` tests of rounds with scores drawn from `p` accept H1 and H0, and how many rounds they take."""
    rng, counts = np.random.default_rng(seed), np.zeros((n, len(SCORES)))
    going, verdict, rounds = np.arange(n), np.zeros(n), 0
    low, high = test.bounds
    while len(going):
        counts[going, rng.choice(len(SCORES), size=len(going), p=p)] += 1
        rounds += len(going)
        llr = test.llr(SCORES, counts[going])
        verdict[going] = (llr >= high).astype(int) - (llr <= low).astype(int)
        going = going[verdict[going] == 0]
    return float((verdict > 0).mean()), float((verdict < 0).mean()), rounds / n


def fixed_size(test: Sprt, shape: tuple[float, ...]) -> float:
    """Rounds that a test of fixed size needs for the same error rates."""
    s0, s1 = (expected_score(elo) for elo in (test.elo0, test.elo1))
    p = tilted(shape, (s0 + s1) / 2)
    variance = float(p @ SCORES**2 - (p @ SCORES) ** 2)
    z = NormalDist().inv_cdf(1 - test.alpha) + NormalDist().inv_cdf(1 - test.beta)
    return z * z * variance / (s1 - s0) ** 2


def sequential(n: int) -> None:
    noise = 100 * 1.96 * math.sqrt(0.05 * 0.95 / n)
    print(f"wrong answers of the sequential test, {n} simulated tests each (noise at 5 %: +- {noise:.1f} %)\n")
    print("| scores | Elo | asked, % | false H1, % | false H0, % | rounds at elo0 | at elo1 | fixed size |")
    print("|---|---|---|---|---|---|---|---|")
    for name, shape in SHAPES.items():
        for test in (Sprt(0, 30), Sprt(0, 80), Sprt(-10, 40, 0.01, 0.1)):
            at0, at1 = (tilted(shape, expected_score(elo)) for elo in (test.elo0, test.elo1))
            false1, _, rounds0 = simulate(test, at0, n)
            _, false0, rounds1 = simulate(test, at1, n, seed=1)
            asked = f"{100 * test.alpha:g}, {100 * test.beta:g}"
            print(
                f"| {name} | {test.elo0:g} or {test.elo1:g} | {asked} | {100 * false1:.1f} | {100 * false0:.1f} | "
                f"{rounds0:.0f} | {rounds1:.0f} | {fixed_size(test, shape):.0f} |"
            )


def contestants(*names: str) -> tuple[Contestant, ...]:
    return tuple(parse(name, GAME, Budget(evals=1), {}) for name in names)


def speed(games: int, workers: int) -> None:
    print("| players | seats | games | bare loop, games/s | 1 worker | ratio |", end="")
    print(f" {workers} workers | ratio |" if workers > 1 else "")
    print("|---|---|---|---|---|---|" + ("---|---|" if workers > 1 else ""))
    for seats, names in ((2, ("starter", "random")), (2, ("greedy", "balanced")), (4, ("greedy", "balanced"))):
        found = contestants(*names)
        per_round = 2 if seats == 2 else 8
        rounds = max(1, games // per_round)
        with tempfile.TemporaryDirectory() as folder:
            config = Tournament(found, Path(folder) / "one", seats=seats, rounds=rounds, workers=1)
            host = Host(GAME, {c.identity: c for c in found}, Limits())
            host.warm_up()
            start = time.perf_counter()
            for fixtures in schedule(config.plan):
                for fixture in fixtures:
                    host.play(fixture)
            bare = rounds * per_round / (time.perf_counter() - start)
            rates = []
            for n in sorted({1, workers}):
                start = time.perf_counter()
                run(Tournament(found, Path(folder) / f"{n}", seats=seats, rounds=rounds, workers=n))
                rates.append(rounds * per_round / (time.perf_counter() - start))
        cells = " | ".join(f"{rate:.1f} | {rate / bare:.2f}x" for rate in rates)
        print(f"| {' v '.join(names)} | {seats} | {rounds * per_round} | {bare:.1f} | {cells} |")


def outside() -> None:
    position = GAME.open_session(1, 2)
    obs, config = position.observation(0, 60.0), dict(GAME.configuration)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.py"
        path.write_text(FAST)
        start = time.perf_counter()
        with OutsideAgent(path, Limits()) as agent:
            agent.ask(obs, config)
            first = time.perf_counter() - start
            n = 500
            start = time.perf_counter()
            for _ in range(n):
                agent.ask(position.observation(0, 60.0), config)
            each = (time.perf_counter() - start) / n
    start = time.perf_counter()
    for _ in range(n):
        position.observation(0, 60.0)
    made = (time.perf_counter() - start) / n
    print(f"an outside agent: {1e3 * first:.0f} ms to start, {1e6 * each:.0f} µs a move there and back, of which")
    print(f"making the official observation takes {1e6 * made:.0f} µs")


def rating(rounds: int) -> None:
    names = ("idle", "random", "starter", "rusher", "greedy", "balanced", "settler")
    found = contestants(*names)
    rng = np.random.default_rng(0)

    def played(fixture: Fixture) -> PlayedGame:
        won = float(rng.random() < 0.5)
        return PlayedGame(fixture, (won, 1 - won), 9, (), (1, 1), (0.1, 0.1), (0.1, 0.1))

    plan = Tournament(found, Path("-"), rounds=rounds).plan
    made = [round_of([played(f) for f in fixtures]) for fixtures in schedule(plan)]
    start = time.perf_counter()
    standings(made, found, 2)
    seconds = time.perf_counter() - start
    print(f"standings of {len(names)} contestants, {2 * len(made)} games, 1000 resamples: {seconds:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=400, help="games for each line of the first table (400)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (2)")
    parser.add_argument("--tests", type=int, default=5000, help="simulated tests for each error rate (5000)")
    args = parser.parse_args()
    speed(args.games, args.workers)
    print()
    outside()
    rating(100)
    print()
    sequential(args.tests)


if __name__ == "__main__":
    main()
