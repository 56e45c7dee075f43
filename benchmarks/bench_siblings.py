"""Does V order sibling moves as play does? Rank correlations within positions, by turn and seats.

    python benchmarks/bench_siblings.py [--weights NPZ] [--replays PATH] [--positions 200] [--siblings 10]

Siblings are single launches that the search proposes for one seat in one position (a random choice of them), and
no launch. Each is played on several times by the rule-based agent `balanced`, a little misjudging, in all seats,
with the same luck for all siblings; what counts is the seat's mean part of `ships + 20 * production` of all seats
then. The table shows the mean over positions of Spearman's rank correlation between that and

- the rule: the same part as it will be MARK_FAR turns on if nobody launches any more,
- V after the launch, and
- V after the launch and the opponents' answers to it, as the search judges its plans.

A position counts when its siblings differ in play.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from td_loop.games.base import Budget
from td_loop.games.orbit_wars.agents import BALANCED, planned
from td_loop.games.orbit_wars.aims import make_aims
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.features import FAR, N_FEATURES, PROD_FAR, make_tally
from td_loop.games.orbit_wars.forecast import begin, forecast_for
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.meter import Meter, Scene
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.plan import (
    MIN_GAIN,
    N_PLAN,
    Judge,
    log_odds,
    make_candidate,
    make_plan,
    send_candidate,
    start_plan,
)
from td_loop.games.orbit_wars.propose import SEVERAL, SLOTS, make_pool, propose_single
from td_loop.games.orbit_wars.reply import Replies
from td_loop.games.orbit_wars.state import N_FLEETS, N_PLANETS, Action, Position
from td_loop.kernels import cache_dir
from td_loop.value.io import load_weights
from td_loop.value.kernel import segment_of
from td_loop.value.model import SplineValue

ROOT = Path(__file__).parents[1]
BUCKETS = (0, 20, 40, 60, 80, 500)
PROD_WORTH = 20.0
AGENT = planned(BALANCED._replace(noise=0.2))
Row = npt.NDArray[np.float64]


class Siblings(NamedTuple):
    """Moves of one position and what is thought of them; row 0 is no launch."""

    actions: list[Action]
    rule: Row
    v: Row
    v_answered: Row


def siblings(pos: Position, seat: int, v: SplineValue, n: int, rng: np.random.Generator) -> Siblings:
    """No launch, and up to n - 1 launches of `seat`."""
    board, state = pos
    capacity = len(state.p_x)
    fc, tally, aims = forecast_for(pos, v.gamma), make_tally(), make_aims(capacity)
    paths = path_table(board)
    begin(fc, board, paths, state)
    row = np.zeros((4, N_FEATURES), np.float32)
    judge = Judge(v.knots, v.coef[segment_of(board.n_players)], alive(pos), tally, row)
    scene, meter = Scene(pos, paths, fc, judge), Meter(Budget(evals=1 << 40), lambda: 0.0)
    pools = [make_pool(capacity, aims) for _ in range(2)]
    plan, theirs = (make_plan(pool) for pool in pools)
    pool, everywhere = pools[0], np.ones(capacity, np.bool_)
    replies = Replies(pools[1], theirs, capacity)
    replies.begin(scene, seat, meter)

    def start() -> None:
        start_plan(plan, pool, fc, judge, state, seat, everywhere, 64, MIN_GAIN)

    start()
    found = []
    for q in range(pool.at[0]):
        if pool.source[q] != SEVERAL:
            propose_single(pool, q, fc, board, paths, state, seat)
            found += [(q, s) for s in range(SLOTS) if pool.size[q, s] and pool.wait[q, s] == 0]
    chosen = [found[k] for k in rng.permutation(len(found))[: n - 1]]
    actions, rule, plain, answered = [], [], [], []
    for q, s in [(-1, 0), *chosen]:
        plan.at[N_PLAN] = 0  # no launches
        if q >= 0:
            make_candidate(plan, pool, fc, q, s)
        src, angle, ships = (
            plan.src[: plan.at[N_PLAN]],
            plan.angle[: plan.at[N_PLAN]],
            plan.ships[: plan.at[N_PLAN]],
        )
        actions.append(np.column_stack([src, angle, ships]).astype(np.float64))
        plain.append(log_odds(fc, judge, seat))
        worth = tally.sums[FAR] + PROD_WORTH * tally.sums[PROD_FAR]
        rule.append(worth[seat] / max(worth.sum(), 1.0))
        replies.answer(scene, plan, meter)
        answered.append(log_odds(fc, judge, seat))
        replies.accept()
        replies.withdraw_standing(scene)
        if q >= 0:
            send_candidate(pool, fc, seat, q, s, -1)
    return Siblings(actions, np.array(rule), np.array(plain), np.array(answered))


def part_of(pos: Position, seat: int) -> float:
    """Part of all ships + 20 * production that `seat` has."""
    s = pos.state
    n, f = s.head[N_PLANETS], s.head[N_FLEETS]
    worth = s.p_ships[:n] + PROD_WORTH * s.p_prod[:n]
    total = worth[s.p_owner[:n] >= 0].sum() + s.f_ships[:f].sum()
    mine = worth[s.p_owner[:n] == seat].sum() + s.f_ships[:f][s.f_owner[:f] == seat].sum()
    return float(mine / max(total, 1.0))


def played_on(pos: Position, seat: int, action: Action, turns: int, luck: int) -> float:
    """`part_of` after `action` and `turns` turns of `AGENT` in all seats."""
    rng = np.random.default_rng(luck)
    for turn in range(turns):
        if GAME.outcome(pos) is not None:
            break
        actions: list[Action | None] = [AGENT(pos, i, rng) for i in range(pos.board.n_players)]
        if turn == 0:
            actions[seat] = action
        pos = GAME.step(pos, actions)
    return part_of(pos, seat)


def ranks(x: Row) -> Row:
    """Ranks, the mean rank where values are equal."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    upto = np.cumsum(counts)
    mean: Row = upto - (counts - 1) / 2
    return mean[inverse]


def correlation(a: Row, b: Row) -> float:
    """Spearman's; 0 when `a` does not tell the siblings apart."""
    x, y = ranks(a), ranks(b)
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=ROOT / "models" / "value_spline_v2.npz")
    parser.add_argument("--replays", type=Path, default=None, help="default: the bundled games")
    parser.add_argument("--positions", type=int, default=200)
    parser.add_argument("--siblings", type=int, default=10)
    parser.add_argument("--turns", type=int, default=20, help="turns that each is played on (20)")
    parser.add_argument("--rollouts", type=int, default=4, help="times that each is played on (4)")
    args = parser.parse_args()
    GAME.compile()
    v = load_weights(args.weights, feature_names=GAME.feature_names)
    store = GAME.open_replays(args.replays, cache_dir())
    rng = np.random.default_rng(0)
    rows: dict[tuple[int, int], list[list[float]]] = {}
    for k in range(args.positions):
        g = int(rng.integers(len(store.games)))
        bucket = k % (len(BUCKETS) - 1)
        last = min(store.games[g].n_frames - 2, BUCKETS[bucket + 1] - 1, 150)
        if last < BUCKETS[bucket]:
            continue
        pos = store.state(g, int(rng.integers(BUCKETS[bucket], last + 1)))
        seat = int(rng.choice(np.flatnonzero(alive(pos))))
        found = siblings(pos, seat, v, args.siblings, rng)
        truth = np.array(
            [
                np.mean([played_on(pos, seat, a, args.turns, luck) for luck in range(args.rollouts)])
                for a in found.actions
            ]
        )
        if len(truth) < 3 or np.ptp(truth) == 0:
            continue
        key = (pos.board.n_players, bucket)
        scores = [correlation(x, truth) for x in (found.rule, found.v, found.v_answered)]
        rows.setdefault(key, []).append(scores)
    print(f"{'seats, turns':<16}{'positions':>10}{'rule':>8}{'V':>8}{'V answered':>12}{'+- 95 %':>9}")
    for (seats, bucket), scores in sorted(rows.items()):
        show(f"{seats}, {BUCKETS[bucket]}-{BUCKETS[bucket + 1]}", scores)
    show("all", [s for scores in rows.values() for s in scores])


def show(name: str, scores: list[list[float]]) -> None:
    """One line of the table."""
    x = np.array(scores)
    mean = x.mean(axis=0)
    error = 1.96 * x[:, 2].std(ddof=1) / len(x) ** 0.5 if len(x) > 1 else np.nan
    print(f"{name:<16}{len(x):>10}{mean[0]:>8.2f}{mean[1]:>8.2f}{mean[2]:>12.2f}{error:>9.2f}")


if __name__ == "__main__":
    main()
