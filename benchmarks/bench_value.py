"""How good value functions are on whole games: log loss by turn, and how far their chances may be believed.

    python benchmarks/bench_value.py [WEIGHTS ...] [--replays PATH] [--all-games | --held-out] [--train PATH]

The rows are those of `val_mc_nll`: every 4th turn of every game with a known outcome. Of the bundled games, only
the held-out ones are judged, because the bootstrap was fitted to the others; of a folder, all of them. References:

- constant: the same chance for every seat alive;
- rule: each seat's part of all `ships + 20 * production`, made into chances by a softmax regression for each
  number of seats and each turn bucket;
- boosting: gradient boosting of "this seat wins", from the features of the seat and the mean of its living
  opponents'.

Rule and boosting learn from games of the same set and are cross-validated by game (5 folds): they have an
advantage over weights that come from other games. With `--train PATH` (`bundled`: the bundled games) there is a
fourth, boosting that learned from the games of PATH.

All intervals are of 95 % and count games, not rows (`calibration.py`): differences and slopes resample games, and
rates of the reliability tables are Wilson's on as many tries as there are effective games. A game is early before
turn 40, in its middle before turn 80, and late from there on. Needs scikit-learn (the `bench` extra).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.calibration import (
    Floats,
    calibration_error,
    cross_validated,
    folds,
    interval_of_mean,
    interval_of_slope,
    log_loss,
    reliability,
    slope,
)
from benchmarks.value_references import (
    BUCKETS,
    Rows,
    States,
    boosted,
    constant,
    inside,
    read,
    rule,
)
from td_loop.games.orbit_wars.game import GAME
from td_loop.value.evaluate import evaluate
from td_loop.value.io import load_weights

ROOT = Path(__file__).parents[1]
PARTS = {"early": (0, 40), "middle": (40, 80), "late": (80, 9999)}


def line(*cells: object) -> None:
    """One line of a table."""
    print("| " + " | ".join(str(c) for c in cells) + " |")


def head(*cells: str) -> None:
    """The first two lines."""
    line(*cells)
    print("|" + "---|" * len(cells))


def overall(s: States, rows: Rows, answers: dict[str, Floats]) -> None:
    """One line a predictor and number of seats."""
    head("seats", "", "val_mc_nll", "of the constant", "AUC", "calibration error", "slope")
    for players in np.unique(s.n_players):
        some = np.flatnonzero(rows & (s.n_players == players))
        if not len(some):
            continue
        alive, target, game = s.alive[some], s.outcome[some], s.game[some]
        base = log_loss(answers["constant"][some], target).mean()
        for name, p in answers.items():
            q, loss = p[some], log_loss(p[some], target).mean()
            seats = q[alive], target[alive], np.broadcast_to(game[:, None], alive.shape)[alive]
            auc = roc_auc_score(seats[1] > 0.5, seats[0])
            error = calibration_error(reliability(*seats))
            fitted = "–"
            if name != "constant":
                low, high = interval_of_slope(q, alive, target, game)
                fitted = f"{slope(q, alive, target):.2f} ({low:.2f} to {high:.2f})"
            line(players, name, f"{loss:.4f}", f"{loss / base:.1%}", f"{auc:.3f}", f"{error:.3f}", fitted)


def by_turn(s: States, rows: Rows, answers: dict[str, Floats], judged: str) -> None:
    """One line a number of seats and turn bucket; the last column compares `judged` with the rule."""
    head("seats, turns", "rows", "games", *answers, f"{judged} − rule")
    for players in np.unique(s.n_players):
        for low, high in (*BUCKETS, (0, 9999)):
            some = rows & (s.n_players == players) & inside(s, (low, high))
            if not some.any():
                continue
            turns = f"{low}–{high}" if high < 9999 else "later" if low else "all"
            loss = {name: log_loss(p[some], s.outcome[some]) for name, p in answers.items()}
            gap = loss[judged] - loss["rule"]
            least, most = interval_of_mean(gap, s.game[some])
            cells = [f"{x.mean():.3f}" for x in loss.values()]
            gap_cell = f"{gap.mean():+.3f} ({least:+.3f} to {most:+.3f})"
            line(f"{players}, {turns}", int(some.sum()), len(np.unique(s.game[some])), *cells, gap_cell)


def calibration(s: States, rows: Rows, p: Floats, players: int) -> None:
    """Reliability by tenths of the chance, the parts of the game beside each other."""
    head("chance", *(name for part in PARTS for name in (f"{part}: mean", "won", "n, games")))
    cells: dict[float, dict[str, str]] = {}
    for part, turns in PARTS.items():
        some = np.flatnonzero(rows & (s.n_players == players) & inside(s, turns))
        alive = s.alive[some]
        game = np.broadcast_to(s.game[some][:, None], alive.shape)[alive]
        for b in reliability(p[some][alive], s.outcome[some][alive], game):
            low, high = b.interval
            off = "" if low <= b.mean <= high else " *"
            shown = f"{b.mean:.3f} | {b.won:.3f} ({low:.2f}–{high:.2f}){off} | {b.n}, {b.games}"
            cells.setdefault(b.low, {})[part] = shown
    for start in sorted(cells):
        line(f"{start:.1f}–{start + 0.1:.1f}", *(cells[start].get(part, "– | – | –") for part in PARTS))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = ROOT / "models" / "value_spline_v2.npz"
    parser.add_argument(
        "weights", nargs="*", type=Path, default=[default], help="weights npz; the first is compared"
    )
    parser.add_argument("--replays", type=Path, default=None, help="default: the bundled games")
    parser.add_argument("--train", default=None, help="games that one more boosting learns from")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all-games", dest="held_out", action="store_false", default=None)
    which.add_argument("--held-out", action="store_true", default=None, help="judge the held-out games only")
    args = parser.parse_args()
    short = len({p.stem for p in args.weights}) == len(args.weights)
    values = {p.stem if short else str(p): load_weights(p, feature_names=GAME.feature_names) for p in args.weights}
    first = next(iter(values))
    if len({v.gamma for v in values.values()}) > 1:
        parser.error("the weights must have the same gamma")
    gamma = values[first].gamma
    s = read(args.replays, gamma)
    held_out = args.replays is None if args.held_out is None else args.held_out
    rows = s.held_out if held_out else np.ones_like(s.held_out)
    fold = folds(s.game, s.n_players)
    answers = {
        "constant": constant(s),
        "rule": cross_validated(rule(s), fold, rows),
        "boosting": cross_validated(boosted(s, s), fold, rows),
    }
    if args.train:
        other = read(None if args.train == "bundled" else Path(args.train), gamma)
        everything = np.arange(len(other.game)), np.arange(len(s.game))
        answers["boosting elsewhere"] = boosted(other, s)(everything[0])(everything[1])
    answers |= {name: evaluate(v, s.features, s.n_players, s.alive) for name, v in values.items()}
    print(f"{rows.sum()} rows of {len(np.unique(s.game[rows]))} games, {'held out' if held_out else 'all'}\n")
    overall(s, rows, answers)
    print()
    by_turn(s, rows, answers, first)
    for name in values:
        for players in np.unique(s.n_players[rows]):
            print(f"\n{name}, {players} seats (*: the mean chance lies outside the interval)\n")
            calibration(s, rows, answers[name], int(players))


if __name__ == "__main__":
    main()
