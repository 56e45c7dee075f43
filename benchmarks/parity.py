"""Play the same games on the official engine and on ours, and compare every bit of every turn.

    python benchmarks/parity.py --games 200

Needs `kaggle_environments` 1.33.2. Prints a table by kind of game; exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from td_loop.games.orbit_wars.environment import Environment
from td_loop.progress import progress

Agent = Callable[..., Any]
_NO_LIMIT = {"actTimeout": 1000}  # a slow machine must not turn into a TIMEOUT of one side


class Watch:
    """An agent that also remembers what it was shown."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.seen: list[str] = []

    def __call__(self, obs: Any, config: Any) -> Any:
        self.seen.append(repr(sorted(obs.items())) + repr(sorted(config.items())))
        return self.agent(obs)


# --- agents: deterministic in their seed and in what they see --------------------------------------------------


def official(name: str) -> Callable[[int], Agent]:
    """One of the package's own agents. `random` draws from the global generator: it gets a seeded one here."""

    def make(seed: int) -> Agent:
        from kaggle_environments.envs.orbit_wars import orbit_wars

        rng = random.Random(seed)

        def agent(obs: Any) -> Any:
            random.seed(rng.random())
            return orbit_wars.agents[name](obs)

        return agent

    return make


def launch_heavy(seed: int) -> Agent:
    """Small fleets from everywhere in every turn: hundreds in the air."""
    rng = random.Random(seed)

    def agent(obs: Any) -> Any:
        moves = []
        for p in obs["planets"]:
            if p[1] == obs["player"] and p[5] > 0:
                for _ in range(rng.randint(1, 3)):
                    moves.append([p[0], rng.uniform(-7, 7), rng.choice([1, 1, 2, max(1, p[5] // 8)])])
        return moves

    return agent


def hunter(seed: int) -> Agent:
    """Aims at some planet or comet as it stands, with much of what it has: captures, ties, eliminations."""
    rng = random.Random(seed)

    def agent(obs: Any) -> Any:
        mine = [p for p in obs["planets"] if p[1] == obs["player"]]
        others = [p for p in obs["planets"] if p[1] != obs["player"]]
        moves = []
        for p in mine:
            if others and p[5] > 5 and rng.random() < 0.5:
                q = min(others, key=lambda q: math.hypot(q[2] - p[2], q[3] - p[3]) + rng.uniform(0, 40))
                moves.append([p[0], math.atan2(q[3] - p[3], q[2] - p[2]), rng.randint(1, p[5])])
        return moves

    return agent


class BrokenError(Exception):
    """What the adversarial agent raises."""


def adversarial(seed: int) -> Agent:
    """Every malformed action that the official engine survives, among sound ones; now and then it crashes."""
    rng = random.Random(seed)
    sound = hunter(seed + 1)
    nan, inf = math.nan, math.inf

    def agent(obs: Any) -> Any:
        roll = rng.random()
        if roll < 0.002:
            raise BrokenError("boom")
        if roll < 0.004:
            return BrokenError("returned, not raised")
        if roll < 0.08:
            return rng.choice([None, "hello", 7, 1.5, nan, {}, {"a": 1}, (), ((0, 0.0, 1),), True, [], [[]], b"x"])
        mine = [p[0] for p in obs["planets"] if p[1] == obs["player"]] or [-1]
        not_mine = [p[0] for p in obs["planets"] if p[1] != obs["player"]] or [-1]
        p, q = rng.choice(mine), rng.choice(not_mine)
        angle = rng.uniform(-4, 4)
        junk = [
            [p, angle, 0],
            [p, angle, -3],
            [p, angle, 1.9],
            [p, angle, 0.9],
            [p, angle, -0.5],
            [p, angle, 10**30],
            [p, angle, 1e300],
            [p, angle, "2"],
            [p, angle, " 3 "],
            [p, angle, b"1"],
            [p, angle, True],
            [p, angle, False],
            [p, 0, 2],
            [p, True, 2],
            [p, -3, 1],
            [p, 10**15, 1],
            [p, 1e18, 1],
            [p, nan, 1],
            [float(p), angle, 2.0],
            [p + 0.5, angle, 2],
            [-1, angle, 2],
            [10**20, angle, 2],
            [str(p), angle, 2],
            [None, angle, 2],
            [nan, angle, 2],
            [inf, angle, 2],
            [[p], angle, 2],
            [bool(p), angle, 1],
            [q, angle, 2],
            [q, "north", 2],
            [q, None, 2],
            [p, "north", 10**9],
            [p, angle],
            [p, angle, 2, 3],
            [],
            "ab",
            "123",
            {},
            {"items": 1, "b": 2},
            (p, angle, 2),
            [[p, angle, 2], [p, angle, 2]],
        ]
        moves = [rng.choice(junk) for _ in range(rng.randint(0, 6))]
        good = sound(obs)
        at = rng.randint(0, len(moves))
        return moves[:at] + good + moves[at:]

    return agent


# --- games -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of game: who plays, and the configuration."""

    name: str
    agents: Sequence[Callable[[int], Agent]]
    config: dict[str, Any]


STARTER, RANDOM = official("starter"), official("random")

KINDS = (
    Kind("starter v random", (STARTER, RANDOM), {}),
    Kind("starter v starter", (STARTER, STARTER), {}),
    Kind("hunter v hunter", (hunter, hunter), {}),
    Kind("launch-heavy v launch-heavy", (launch_heavy, launch_heavy), {}),
    Kind("adversarial v hunter", (adversarial, hunter), {}),
    Kind("adversarial v adversarial", (adversarial, adversarial), {}),
    Kind(
        "odd speeds and lengths", (hunter, launch_heavy), {"shipSpeed": 3.5, "cometSpeed": 6, "episodeSteps": 180}
    ),
    Kind("4: starter, random, hunters", (STARTER, RANDOM, hunter, hunter), {}),
    Kind("4: hunters", (hunter, hunter, hunter, hunter), {}),
    Kind("4: launch-heavy", (launch_heavy, launch_heavy, launch_heavy, hunter), {}),
    Kind("4: adversarial", (adversarial, hunter, adversarial, adversarial), {}),
)


@dataclass(frozen=True)
class Outcome:
    """What a comparison found: the first difference (None: none), turns compared, most fleets in the air."""

    difference: str | None
    turns: int
    fleets: int


def _first_difference(theirs: Any, ours: Any, path: str = "") -> str | None:
    """Where two JSON-like values first differ in type or in any bit."""
    if repr(theirs) == repr(ours):
        return None
    if isinstance(theirs, dict) and isinstance(ours, dict) and list(theirs) == list(ours):
        return next((d for k in theirs if (d := _first_difference(theirs[k], ours[k], f"{path}.{k}"))), path)
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        pairs = enumerate(zip(theirs, ours, strict=True))
        return next((d for i, (a, b) in pairs if (d := _first_difference(a, b, f"{path}[{i}]"))), path)
    return f"{path}: official {theirs!r:.200}, ours {ours!r:.200}"


def compare(kind: Kind, seed: int, *, episode_steps: int | None = None) -> Outcome:
    """Play one game on both engines.

    Args:
        kind: who plays.
        seed: of the map and of the agents.
        episode_steps: shortens the game.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        from kaggle_environments import make

    config = {"seed": seed, **_NO_LIMIT, **kind.config}
    if episode_steps is not None:
        config["episodeSteps"] = episode_steps
    watched = [[Watch(a(100 * seed + i)) for i, a in enumerate(kind.agents)] for _ in range(2)]
    official_env = make("orbit_wars", configuration=dict(config))
    official_env.run(list(watched[0]))
    env = Environment(config, n_players=len(kind.agents))
    env.run(watched[1])

    difference = None
    most = 0
    if len(env.frames) != len(official_env.steps):
        difference = f"official played {len(official_env.steps)} frames, ours {len(env.frames)}"
    for k, (theirs, frame) in enumerate(zip(official_env.steps, env.frames, strict=False)):
        ours = frame.to_json()
        most = max(most, len(ours[0]["observation"]["fleets"]))
        difference = difference or _first_difference(theirs, ours, f"steps[{k}]")
    for i, (a, b) in enumerate(zip(*watched, strict=True)):
        if a.seen != b.seen:
            difference = difference or f"seat {i} was shown something else"
    theirs, ours = official_env.toJSON(), env.to_json()
    for key in ("rewards", "statuses", "configuration", "info", "version", "module_version"):
        difference = difference or _first_difference(_sorted(theirs[key]), _sorted(ours[key]), key)
    return Outcome(difference, len(official_env.steps) - 1, most)


def _sorted(o: Any) -> Any:
    return sorted(o.items()) if isinstance(o, dict) else o


def main() -> int:
    """Play `--games` games, the kinds in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first game; the others count up")
    args = parser.parse_args()
    found: dict[str, list[Outcome]] = {k.name: [] for k in KINDS}
    start = time.perf_counter()
    with progress("games", args.games) as advance, contextlib.suppress(KeyboardInterrupt):
        for g in range(args.games):  # interrupted, it prints the table of what was played
            kind = KINDS[g % len(KINDS)]
            outcome = compare(kind, args.seed + g)
            found[kind.name].append(outcome)
            if outcome.difference:
                print(f"DIFFERENT: {kind.name}, seed {args.seed + g}: {outcome.difference}", flush=True)
            advance(1)
    print(f"{'kind of game':<30} {'games':>6} {'turns':>8} {'most fleets':>12} {'different':>10}")
    for name, outcomes in found.items():
        turns, most = sum(o.turns for o in outcomes), max((o.fleets for o in outcomes), default=0)
        bad = sum(o.difference is not None for o in outcomes)
        print(f"{name:<30} {len(outcomes):>6} {turns:>8} {most:>12} {bad:>10}")
    everything = [o for outcomes in found.values() for o in outcomes]
    bad = sum(o.difference is not None for o in everything)
    print(f"{'all':<30} {len(everything):>6} {sum(o.turns for o in everything):>8} {'':>12} {bad:>10}")
    print(f"{time.perf_counter() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
