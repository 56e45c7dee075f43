from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from td_loop.fit.config import FitConfig
from td_loop.fit.data import Targets, TrainingRows
from td_loop.fit.metrics import mean_nll
from td_loop.fit.run import schedule_of
from td_loop.fit.trainer import Trainer, batch_order
from td_loop.value.model import SplineValue
from tests.synthetic import games, value_function

G = games(3, 40, 12)
V = value_function(3, 6)
EVERY = np.ones(len(G.turn), np.bool_)
MC_ONLY = TrainingRows(G.features, G.n_players, G.alive, None, G.outcome, EVERY)


def rows_with_td(target: np.ndarray, has_mc: np.ndarray) -> TrainingRows:
    mc = np.where(has_mc[:, None], G.outcome, 0).astype(np.float32)
    return TrainingRows(G.features, G.n_players, G.alive, target, mc, has_mc)


def trainer(rows: TrainingRows, config: FitConfig, start: SplineValue = V) -> Trainer:
    return Trainer(start, rows, config, schedule_of(config))


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 100))
def test_every_pass_draws_every_row_once(n_rows: int, batch_size: int, seed: int) -> None:
    batches = batch_order(np.random.default_rng(seed), n_rows, batch_size)
    drawn = list(itertools.islice(batches, -(-3 * n_rows // batch_size)))
    assert all(len(b) == batch_size for b in drawn)
    flat = np.concatenate(drawn)
    for i in range(3):
        assert sorted(flat[i * n_rows : (i + 1) * n_rows]) == list(range(n_rows))


def test_steps_lower_the_loss_and_keep_the_knots() -> None:
    t = trainer(MC_ONLY, FitConfig(epochs=2))
    for _ in range(128):
        t.step()
    rows = Targets(G.features, G.n_players, G.alive, G.outcome)
    before, after = mean_nll(V, rows), mean_nll(t.value(), rows)
    assert before is not None
    assert after is not None
    assert after < before - 0.05
    assert t.value().knots.tobytes() == V.knots.tobytes()


def test_each_step_runs_at_the_rate_of_the_schedule() -> None:
    config = FitConfig(epochs=1, batches_per_epoch=20, warmup_steps=3)
    t, schedule = trainer(MC_ONLY, config), schedule_of(config)
    assert [t.step()[0] for _ in range(23)] == [schedule.lr(i, config.lr) for i in range(23)]


def test_a_rate_that_somebody_changed_does_not_survive_the_next_step() -> None:
    config = FitConfig(epochs=1, batches_per_epoch=20)
    t = trainer(MC_ONLY, config)
    t._optimizer.param_groups[0]["lr"] = 1e6
    assert t.step()[0] == schedule_of(config).lr(0, config.lr)


def reference_loss(v: SplineValue, config: FitConfig, rows: TrainingRows, batch: np.ndarray) -> float:
    """The loss as its definition reads, row by row."""
    take = lambda target: Targets(rows.features, rows.n_players, rows.alive, target).take(batch)  # noqa: E731
    assert rows.td_target is not None
    td = mean_nll(v, take(rows.td_target))
    mc = mean_nll(v, take(rows.mc_target).take(rows.has_mc[batch]))
    rough = sum(float((np.diff(v.coef[s], n=2, axis=1) ** 2).sum()) for s in (0, 1))
    assert td is not None
    return (
        config.lambda_td * td
        + config.lambda_mc * (mc or 0.0)
        + config.smoothness * rough
        + config.l2 * float((v.coef**2).sum())
    )


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_the_loss_is_what_its_docstring_says(p: float) -> None:
    has_mc = np.random.default_rng(1).random(len(G.turn)) < p
    uniform = (G.alive / G.alive.sum(axis=1, keepdims=True)).astype(np.float32)
    rows = rows_with_td(uniform, has_mc)
    config = FitConfig(smoothness=0.01, l2=0.02)
    batch = np.arange(7, 60)
    found = trainer(rows, config)._loss(torch.from_numpy(batch)).item()
    assert found == pytest.approx(reference_loss(V, config, rows, batch), abs=1e-6)


def test_a_segment_without_rows_keeps_its_curves() -> None:
    two = G.n_players == 2
    rows = TrainingRows(G.features[two], G.n_players[two], G.alive[two], None, G.outcome[two], EVERY[two])
    t = trainer(rows, FitConfig(epochs=1, smoothness=0.1, l2=0.1))
    for _ in range(10):
        t.step()
    assert t.value().coef[1].tobytes() == V.coef[1].tobytes()
    assert (t.value().coef[0] != V.coef[0]).any()


def test_a_value_taken_does_not_change_with_later_steps() -> None:
    t = trainer(MC_ONLY, FitConfig(epochs=1))
    t.step()
    taken = t.value()
    before = taken.coef.copy()
    t.step()
    assert (taken.coef == before).all()


def test_equal_seeds_give_equal_bits_and_others_do_not() -> None:
    def after(seed: int) -> bytes:
        t = trainer(MC_ONLY, FitConfig(epochs=1, seed=seed))
        for _ in range(20):
            t.step()
        return t.value().coef.tobytes()

    assert after(3) == after(3)
    assert after(3) != after(4)
