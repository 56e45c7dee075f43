"""How good a value function is on held-out games, beside a constant and a gradient-boosted model.

    python benchmarks/bench_value.py --mc-rows mc_rows.npz models/value_spline_v2.npz

All see the same validation rows. The boosted model is trained on the training rows of the same file; per seat it
sees its features and the mean of its living opponents'. Needs scikit-learn (the `bench` extra).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from td_loop.fit.data import Targets, load_mc_rows
from td_loop.npz import load_npz
from td_loop.value.evaluate import evaluate
from td_loop.value.io import load_weights

BUCKETS = ((0, 20), (20, 40), (40, 60), (60, 80), (80, None))
LEAST = 1e-12


def constant(rows: Targets) -> np.ndarray:
    """The same chance for every seat alive."""
    return rows.alive / rows.alive.sum(axis=1, keepdims=True)


def seat_inputs(rows: Targets) -> np.ndarray:
    """Per seat: its features, the mean of its living opponents', the number of players and of seats alive."""
    x = np.where(rows.alive[:, :, None], rows.features, 0)
    others = np.maximum(rows.alive.sum(axis=1)[:, None] - rows.alive, 1)[:, :, None]
    opponents = (x.sum(axis=1, keepdims=True) - x) / others
    counts = np.stack(np.broadcast_arrays(rows.n_players[:, None], rows.alive.sum(axis=1)[:, None]), axis=-1)
    return np.concatenate((rows.features, opponents, np.broadcast_to(counts, (*rows.alive.shape, 2))), axis=-1)


def boosted(train: Targets) -> Callable[[Targets], np.ndarray]:
    """Train a gradient-boosted classifier of "this seat wins"; its answers are normalised over the seats alive."""
    model = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=150,
        max_leaf_nodes=15,
        min_samples_leaf=200,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=0,
    )
    x, alive = seat_inputs(train), train.alive
    model.fit(x[alive], train.target[alive] > 0.5)

    def predict(rows: Targets) -> np.ndarray:
        p = np.zeros(rows.alive.shape)
        p[rows.alive] = model.predict_proba(seat_inputs(rows)[rows.alive])[:, 1]
        return p / p.sum(axis=1, keepdims=True)

    return predict


def loss(p: np.ndarray, rows: Targets) -> np.ndarray:
    """Cross-entropy per row."""
    return -(rows.target * np.log(np.maximum(p, LEAST))).sum(axis=1)


def auc(p: np.ndarray, rows: Targets) -> float:
    """Area under the ROC curve of "this seat wins", over the seats alive."""
    return float(roc_auc_score(rows.target[rows.alive] > 0.5, p[rows.alive]))


def calibration_error(p: np.ndarray, rows: Targets, n_bins: int = 10) -> float:
    """Mean distance of chance and frequency over `n_bins` bins of equal width, weighted by their size."""
    chance, won = p[rows.alive], rows.target[rows.alive]
    bins = np.minimum((chance * n_bins).astype(int), n_bins - 1)
    gaps = [abs(chance[bins == b].sum() - won[bins == b].sum()) for b in range(n_bins)]
    return float(sum(gaps) / len(chance))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="+", type=Path, help="weights npz to judge")
    parser.add_argument("--mc-rows", type=Path, required=True, help="mc_rows npz with the rows")
    args = parser.parse_args()

    first = load_weights(args.weights[0])
    mc = load_mc_rows(args.mc_rows, match=first)
    arrays, _ = load_npz(args.mc_rows)
    turn = arrays["turn"][arrays["is_validation"]]
    val = mc.val
    answers = {"constant predictor": constant(val), "gradient boosting": boosted(mc.train)(val)}
    for path in args.weights:
        v = load_weights(path, feature_names=first.feature_names)
        answers[path.name] = evaluate(v, val.features, val.n_players, val.alive)

    games = len(np.unique(arrays["game"][arrays["is_validation"]]))
    print(f"{len(val)} held-out rows of {games} games, {len(mc.train)} training rows\n")
    print(f"{'':<24} {'val_mc_nll':>10} {'of constant':>12} {'AUC':>7} {'calibration error':>18}")
    base = loss(answers["constant predictor"], val).mean()
    for name, p in answers.items():
        mean = loss(p, val).mean()
        print(
            f"{name:<24} {mean:>10.4f} {mean / base:>11.1%} {auc(p, val):>7.3f} {calibration_error(p, val):>18.3f}"
        )

    print("\nval_mc_nll by players and turn\n")
    columns = "".join(f"{name[:18]:>20}" for name in answers)
    print(f"{'players':<8}{'turns':<10}{'rows':>7}{columns}")
    for players in np.unique(val.n_players):
        for low, high in (*BUCKETS, (0, None)):
            chosen = (val.n_players == players) & (turn >= low) & (turn < (high or np.inf))
            if not chosen.any():
                continue
            turns = "all" if (low, high) == (0, None) else f"{low}-{high}" if high else f"{low}-"
            row = "".join(f"{loss(p, val)[chosen].mean():>20.4f}" for p in answers.values())
            print(f"{players:<8}{turns:<10}{chosen.sum():>7}{row}")


if __name__ == "__main__":
    main()
