"""Whole fits, from files to files."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.errors import Blowup, CacheError, StorageError
from td_loop.files import read_json, sha256
from td_loop.fit.config import FitConfig
from td_loop.fit.history import Summary
from td_loop.fit.metrics import mean_nll
from td_loop.fit.problem import bootstrap_problem, resume_problem
from td_loop.fit.run import run_fit
from td_loop.value.evaluate import evaluate
from td_loop.value.io import load_weights, save_weights
from tests.synthetic import Games, games, value_function, write_branch_data, write_mc_rows

G = games(3, 40, 12)
SHORT = FitConfig(epochs=3, batches_per_epoch=20, batch_size=32)


@dataclass(frozen=True)
class Folder:
    """A folder with everything that a fit needs."""

    path: Path

    @property
    def v_snap(self) -> Path:
        return self.path / "V_snap.npz"

    @property
    def mc(self) -> Path:
        return self.path / "mc_rows.npz"

    @property
    def cache(self) -> Path:
        return self.path / "branch_data.npz"

    def training(self, stem: str = "weights") -> Any:
        return read_json(self.path / f"{stem}.training.json")

    def resume(self, config: FitConfig = SHORT, name: str = "weights.npz") -> Summary:
        problem = resume_problem(config, resume=self.v_snap, td_cache=self.cache, mc_rows=self.mc)
        return run_fit(config, problem, self.path / name, lambda _: None)

    def bootstrap(self, config: FitConfig = SHORT, name: str = "boot.npz") -> Summary:
        return run_fit(config, bootstrap_problem(config, mc_rows=self.mc), self.path / name, lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    f = Folder(tmp_path)
    v = value_function(3, 6)
    save_weights(f.v_snap, v)
    write_mc_rows(f.mc, G)
    write_branch_data(f.cache, G, v, n=300)
    return f


def test_resume_keeps_the_knots_bit_for_bit_and_moves_the_curves(folder: Folder) -> None:
    folder.resume()
    before, after = load_weights(folder.v_snap), load_weights(folder.path / "weights.npz")
    assert after.knots.tobytes() == before.knots.tobytes()
    assert (after.coef != before.coef).any()
    assert after.feature_names == before.feature_names
    assert after.gamma == before.gamma


def test_the_weights_know_where_they_come_from(folder: Folder) -> None:
    folder.resume()
    meta = load_weights(folder.path / "weights.npz").meta
    assert meta["parent_sha256"] == sha256(folder.v_snap)
    # Not the cache's: it holds wall times, and two equal runs must give equal weights files.
    assert meta["created_by"]["inputs"].keys() == {"resume", "mc_rows"}
    assert meta["created_by"]["hyperparams"]["lr"] == SHORT.lr


def test_equal_inputs_and_seed_give_equal_bytes_wherever_they_lie(folder: Folder, tmp_path: Path) -> None:
    folder.resume(name="a.npz")
    elsewhere = Folder(tmp_path / "elsewhere")
    elsewhere.path.mkdir()
    for path in (folder.v_snap, folder.mc, folder.cache):
        (elsewhere.path / path.name).write_bytes(path.read_bytes())
    elsewhere.resume(name="b.npz")
    assert sha256(folder.path / "a.npz") == sha256(elsewhere.path / "b.npz")
    folder.resume(replace(SHORT, seed=1), name="c.npz")
    assert sha256(folder.path / "a.npz") != sha256(folder.path / "c.npz")


def test_the_training_history_has_one_entry_an_epoch(folder: Folder) -> None:
    s = folder.resume()
    t = folder.training()
    assert set(t["history"]) == {
        "train_mc_nll",
        "val_mc_nll",
        "sample_td_r_nll",
        "sample_td_a_nll",
        "lr_first",
        "lr_last",
        "grad_norm",
        "seconds",
    }
    assert {len(values) for values in t["history"].values()} == {3}
    assert t["aborted"] is None
    assert t["final_val_mc_nll"] == t["history"]["val_mc_nll"][-1] == s.final
    assert t["lr_schedule"]["total_steps"] == 60
    assert t["lr_schedule"]["peak"] == 0.03
    assert t["history"]["lr_first"][0] == pytest.approx(0.003)
    assert t["history"]["lr_last"][-1] == pytest.approx(0.003)
    assert t["inputs"]["resume"]["sha256"] == sha256(folder.v_snap)
    assert t["hyperparams"]["lambda_td"] == 0.7
    assert set(t["knot_coverage_stats"]) == {"feature_0", "feature_1", "feature_2"}


def test_the_baseline_is_v_snap_on_the_validation_rows(folder: Folder) -> None:
    folder.resume()
    v = load_weights(folder.v_snap)
    val = G.is_validation
    p = evaluate(v, G.features[val], G.n_players[val], G.alive[val])
    expected = -np.log(p[np.arange(len(p)), G.outcome[val].argmax(axis=1)]).mean()
    assert folder.training()["val_mc_nll_baseline"] == pytest.approx(expected)


@pytest.mark.parametrize(("k", "absent"), [(0.0, "sample_td_a_nll"), (1.0, "sample_td_r_nll")])
def test_a_branch_without_rows_has_no_losses(folder: Folder, k: float, absent: str) -> None:
    write_branch_data(folder.cache, G, load_weights(folder.v_snap), n=100, k=k)
    folder.resume()
    history = folder.training()["history"]
    assert history[absent] == []
    present = {"sample_td_a_nll", "sample_td_r_nll"} - {absent}
    assert len(history[present.pop()]) == 3
    assert load_weights(folder.path / "weights.npz")


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_no_row_or_every_row_may_carry_an_outcome(folder: Folder, p: float) -> None:
    write_branch_data(folder.cache, G, load_weights(folder.v_snap), n=100, p=p)
    assert np.isfinite(folder.resume().final)


def test_a_blow_up_writes_the_marker_and_no_weights(folder: Folder) -> None:
    with pytest.raises(Blowup, match="no weights written") as e:
        folder.resume(replace(SHORT, lr=50.0))
    assert e.value.exit_code == 2
    aborted = folder.training()["aborted"]
    assert set(aborted) == {"reason", "epoch", "step", "val_mc_nll", "threshold"}
    assert aborted["reason"] == "val_mc_nll_blowup"
    assert aborted["step"] == 16  # the first look, in mid-epoch
    assert (
        aborted["val_mc_nll"]
        > aborted["threshold"]
        == pytest.approx(1.25 * folder.training()["val_mc_nll_baseline"])
    )
    assert not (folder.path / "weights.npz").exists()


def test_a_blow_up_leaves_weights_that_were_there(folder: Folder) -> None:
    folder.resume()
    before = sha256(folder.path / "weights.npz")
    with pytest.raises(Blowup):
        folder.resume(replace(SHORT, lr=50.0))
    assert sha256(folder.path / "weights.npz") == before


def test_numbers_that_are_not_finite_reach_the_training_json(folder: Folder) -> None:
    v = load_weights(folder.v_snap)
    save_weights(folder.v_snap, replace(v, coef=np.full_like(v.coef, 1e308)))
    with pytest.raises(Blowup):
        folder.resume()
    t = folder.training()
    assert t["aborted"]["reason"] == "val_mc_nll_not_finite"
    assert t["history"]["val_mc_nll"] == ["NaN"]
    assert t["val_mc_nll_baseline"] == "NaN"


def test_targets_of_other_weights_are_pointed_out(folder: Folder) -> None:
    problem = resume_problem(SHORT, resume=folder.v_snap, td_cache=folder.cache, mc_rows=folder.mc)
    assert problem.warnings == ()
    from td_loop.npz import load_npz, save_npz

    arrays, meta = load_npz(folder.cache)
    save_npz(folder.cache, arrays, {**meta, "v_snap_sha256": "0" * 64})
    problem = resume_problem(SHORT, resume=folder.v_snap, td_cache=folder.cache, mc_rows=folder.mc)
    assert "targets of other weights" in problem.warnings[0]


def test_bootstrap_beats_the_constant_predictor_on_held_out_games(tmp_path: Path) -> None:
    f = Folder(tmp_path)
    write_mc_rows(f.mc, games(3, 200, 12))
    s = f.bootstrap(replace(SHORT, epochs=5, batches_per_epoch=64, warmup_steps=32))
    assert s.baseline == pytest.approx(s.constant)
    assert s.final < 0.95 * s.constant
    assert f.training("boot")["val_mc_nll_constant"] == s.constant
    assert f.training("boot")["history"]["sample_td_r_nll"] == []
    v = load_weights(f.path / "boot.npz")
    assert v.knots.shape == (3, 16)
    assert v.meta["parent_sha256"] is None
    assert v.meta["game"] == "toy"


def test_bootstrap_keeps_its_best_epoch(folder: Folder) -> None:
    s = folder.bootstrap(replace(SHORT, lr=0.3, epochs=6))
    assert s.kept_epoch == int(np.argmin(s.history.val_mc_nll))
    assert s.final == min(s.history.val_mc_nll)
    t = folder.training("boot")
    assert t["final_val_mc_nll"] == s.final
    problem = bootstrap_problem(SHORT, mc_rows=folder.mc)
    assert mean_nll(load_weights(folder.path / "boot.npz"), problem.val) == s.final


def test_resume_keeps_its_last_epoch(folder: Folder) -> None:
    s = folder.resume(replace(SHORT, lr=0.2, epochs=6, val_blowup_tau=9.0))
    assert s.kept_epoch == 5
    assert s.final == s.history.val_mc_nll[-1]


def test_knots_come_from_training_rows_alone(folder: Folder) -> None:
    shifted = replace(G, features=np.where(G.is_validation[:, None, None], 1e6, G.features).astype(np.float32))
    write_mc_rows(folder.mc, shifted)
    assert bootstrap_problem(SHORT, mc_rows=folder.mc).start.knots.max() < 1e3


def with_players(g: Games, players: int) -> Games:
    rows = g.n_players == players
    return Games(**{name: array[rows] for name, array in vars(g).items()})


@pytest.mark.parametrize("players", [2, 4])
def test_a_segment_without_games_takes_the_other_ones_curves(folder: Folder, players: int) -> None:
    write_mc_rows(folder.mc, with_players(G, players))
    problem = bootstrap_problem(SHORT, mc_rows=folder.mc)
    assert f"no training game of {6 - players} players" in problem.warnings[0]
    folder.bootstrap()
    coef = load_weights(folder.path / "boot.npz").coef
    assert (coef[0] == coef[1]).all()
    assert (coef != 0).any()


def test_a_set_with_one_winner_cannot_bootstrap_and_warns_on_resume(folder: Folder) -> None:
    write_mc_rows(folder.mc, games(3, 40, 12, winner=1))
    with pytest.raises(CacheError, match="seat 1 wins every training game"):
        folder.bootstrap()
    problem = resume_problem(SHORT, resume=folder.v_snap, td_cache=folder.cache, mc_rows=folder.mc)
    assert "seat 1 wins every game" in problem.warnings[0]


def test_a_full_disk_is_a_storage_error_and_leaves_no_litter(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted(p.name for p in folder.path.iterdir())
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=r"weights\.npz"):
        folder.resume()
    assert sorted(p.name for p in folder.path.iterdir()) == before
