"""How fast a fit is, and where its time goes.

    python benchmarks/bench_fit.py

The reference does the same steps as a plain torch module would: it looks every feature's knots up again, with
`searchsorted`, in every step. Rows are random: nothing about speed depends on what they hold.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from td_loop.fit.blowup import SCREEN_EVERY
from td_loop.fit.config import FitConfig
from td_loop.fit.data import Targets, TrainingRows
from td_loop.fit.problem import SAMPLE_ROWS, Problem
from td_loop.fit.run import schedule_of, train
from td_loop.fit.trainer import Trainer, batch_order
from td_loop.fit.watch import Watch
from td_loop.guard import Telemetry
from td_loop.value.knots import derive_knots
from td_loop.value.model import SplineValue
from td_loop.value.torch_module import SplineModule


def make(n: int, n_val: int, n_features: int) -> Problem:
    """A fit of random rows."""
    rng = np.random.default_rng(0)

    def targets(size: int) -> Targets:
        players = rng.choice(np.array([2, 4], np.int8), size)
        alive = np.arange(4) < players[:, None]
        chance = np.where(alive, rng.random((size, 4), np.float32), 0)
        x = rng.normal(size=(size, 4, n_features)).astype(np.float32)
        return Targets(x, players, alive, (chance / chance.sum(1, keepdims=True)).astype(np.float32))

    rows, val = targets(n), targets(n_val)
    knots = derive_knots(rows.features[:5000], rows.alive[:5000], 16)
    names = tuple(f"f{i}" for i in range(n_features))
    start = SplineValue(knots, np.zeros((2, *knots.shape)), names, {"gamma": 0.97})
    has_mc = rng.random(n) < 0.5
    training = TrainingRows(rows.features, rows.n_players, rows.alive, rows.target, rows.target, has_mc)
    sample = rows.take(np.arange(min(n, SAMPLE_ROWS)))
    samples = {"train_mc_nll": sample, "sample_td_r_nll": sample, "sample_td_a_nll": sample}
    return Problem(start, training, val, samples, False, {}, {}, ())


class Naive:
    """The same loss and optimizer; knots are searched in every step."""

    def __init__(self, problem: Problem, config: FitConfig) -> None:
        r = problem.rows
        self.x, self.players = torch.from_numpy(r.features), torch.from_numpy(r.n_players)
        self.alive, self.has_mc = torch.from_numpy(r.alive), torch.from_numpy(r.has_mc)
        assert r.td_target is not None
        self.td, self.mc = torch.from_numpy(r.td_target), torch.from_numpy(r.mc_target)
        self.module = SplineModule(problem.start)
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=config.lr)
        self.order = batch_order(np.random.default_rng(0), len(r.n_players), config.batch_size)
        self.config = config

    def step(self) -> None:
        rows = torch.from_numpy(next(self.order))
        self.optimizer.zero_grad(set_to_none=True)
        alive = self.alive[rows]
        log_v = self.module(self.x[rows], self.players[rows], alive).masked_fill(~alive, 0.0)
        td = -(self.td[rows] * log_v).sum(1).mean()
        has = self.has_mc[rows]
        mc = -(self.mc[rows] * log_v).sum(1)[has].sum() / has.sum().clamp(min=1)
        coef = self.module.coef
        rough = (coef.diff(n=2, dim=-1) ** 2).sum()
        c = self.config
        (c.lambda_td * td + c.lambda_mc * mc + c.smoothness * rough + c.l2 * (coef**2).sum()).backward()
        self.optimizer.step()


def seconds_per_call(f: object, n: int) -> float:
    """Median of five timings of `n` calls, in CPU time: other work on the machine does not count."""
    assert callable(f)
    f()
    times = []
    for _ in range(5):
        began = time.process_time()
        for _ in itertools.repeat(None, n):
            f()
        times.append((time.process_time() - began) / n)
    return float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=80_000, help="training rows (80000)")
    parser.add_argument("--val-rows", type=int, default=4_000, help="validation rows (4000)")
    parser.add_argument("--features", type=int, default=32, help="features a seat (32)")
    parser.add_argument("--batch-size", type=int, default=128, help="rows a step (128)")
    args = parser.parse_args()

    problem = make(args.rows, args.val_rows, args.features)
    config = FitConfig(batch_size=args.batch_size, val_blowup_tau=1e6)
    schedule = schedule_of(config)
    endless = FitConfig(epochs=100_000, batch_size=args.batch_size)
    trainer = Trainer(problem.start, problem.rows, endless, schedule_of(endless))
    rows = torch.from_numpy(np.arange(args.batch_size))
    naive = Naive(problem, config)

    def fit_seconds(where: str) -> float:
        """CPU time of a whole fit that reports to `where`; "": nowhere."""
        with Telemetry(where) as telemetry:
            watch = Watch(config, problem, telemetry) if where else None
            began = time.process_time()
            train(config, schedule, problem, lambda _: None, watch)
            return time.process_time() - began

    fit_seconds("")  # imports and first calls
    with tempfile.TemporaryDirectory() as folder:
        # By turns, so that both meet the same machine.
        pairs = [(fit_seconds(""), fit_seconds(str(Path(folder) / "telemetry.jsonl"))) for _ in range(5)]
    whole, watched = (float(np.median(seconds)) for seconds in zip(*pairs, strict=True))

    step = seconds_per_call(trainer.step, 100)
    both = seconds_per_call(lambda: trainer._loss(rows).backward(), 100)
    reference = seconds_per_call(naive.step, 50)

    steps, b = config.total_steps, args.batch_size
    print(
        f"{args.rows} rows, {args.val_rows} validation rows, {args.features} features, 16 knots, "
        f"batches of {b}, CPU time of 1 thread\n"
    )
    print(f"{'':<44} {'ms/step':>8} {'rows/s':>10} {'ratio':>7}")
    for name, seconds in (
        ("naive torch, searchsorted in every step", reference),
        ("ours, a step", step),
        (f"ours, a whole fit of {steps} steps / {steps}", whole / steps),
        ("  the same with --telemetry", watched / steps),
    ):
        print(f"{name:<44} {seconds * 1e3:>8.3f} {b / seconds:>10.0f} {reference / seconds:>6.2f}x")
    print(
        f"\nshare of the whole fit in forward and backward: {both * steps / whole:.0%}"
        f"\n  (the rest: preparing the rows, batch order, Adam, losses of {config.epochs} epochs, and the blow-up "
        f"screen every {SCREEN_EVERY} steps)"
        f"\n--telemetry makes the fit {watched / whole - 1:.1%} slower"
    )


if __name__ == "__main__":
    main()
