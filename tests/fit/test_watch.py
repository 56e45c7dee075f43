"""A fit that is watched, and one under the guard."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.cli import main
from td_loop.errors import Blowup, DataError
from td_loop.files import read_json, sha256
from td_loop.fit.config import FitConfig
from td_loop.fit.data import Targets
from td_loop.fit.metrics import mean_nll
from td_loop.fit.probe import PROBE_ROWS, Probe
from td_loop.fit.problem import Problem, bootstrap_problem, resume_problem
from td_loop.fit.run import run_fit
from td_loop.fit.watch import Watch
from td_loop.guard import Telemetry
from td_loop.guard.record import Record, parse
from td_loop.value.evaluate import evaluate
from td_loop.value.io import load_weights, save_weights
from td_loop.value.model import SplineValue
from tests.synthetic import games, value_function, write_branch_data, write_mc_rows

G = games(3, 40, 12)
V = value_function(3, 6)
SHORT = FitConfig(epochs=3, batches_per_epoch=20, batch_size=32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TD_GUARD_") or name == "LEARNING_RATE_MULTIPLIER":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    save_weights(Path("V_snap.npz"), V)
    write_mc_rows(Path("mc_rows.npz"), G)
    write_branch_data(Path("branch_data.npz"), G, V, n=300)
    return tmp_path


def problem(config: FitConfig, bootstrap: bool = False) -> Problem:
    if bootstrap:
        return bootstrap_problem(config, mc_rows=Path("mc_rows.npz"))
    return resume_problem(
        config, resume=Path("V_snap.npz"), td_cache=Path("branch_data.npz"), mc_rows=Path("mc_rows.npz")
    )


def fit(name: str, config: FitConfig = SHORT, *, bootstrap: bool = False, where: str | None = None) -> Any:
    """Run a fit as the command does; returns its training.json."""
    p = problem(config, bootstrap)
    with Telemetry(where) as telemetry:
        watch = Watch(config, p, telemetry) if Watch.wanted(telemetry) else None
        run_fit(config, p, Path(f"{name}.npz"), lambda _: None, watch)
    return read_json(Path(f"{name}.training.json"))


def records(path: str = "t.jsonl") -> list[Record]:
    return [parse(line) for line in Path(path).read_bytes().splitlines()]


def guarded(monkeypatch: pytest.MonkeyPatch, attempt: int, active: Path | None = None, **more: str) -> None:
    """The environment of one attempt."""
    variables = {
        "TD_GUARD_TELEMETRY": f"t{attempt}.jsonl",
        "TD_GUARD_ATTEMPT": str(attempt),
        "TD_GUARD_SEED": str(1000 + attempt),
        "TD_GUARD_STAGING": f"staging{attempt}",
        "TD_GUARD_ACTIVE": "active",
        **more,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if active is not None:
        Path("active").unlink(missing_ok=True)
        Path("active").symlink_to(active)


def test_watching_changes_no_bit_of_the_weights() -> None:
    plain = fit("plain")
    watched = fit("watched", where="t.jsonl")
    assert sha256(Path("plain.npz")) == sha256(Path("watched.npz"))
    assert "guard" not in plain
    assert watched["guard"]["telemetry_lost"] == 0


def test_every_step_is_reported() -> None:
    training = fit("w", where="t.jsonl")
    found = records()
    assert [r.step for r in found] == list(range(1, 61))
    for r in found:
        assert r.values.keys() == {
            "kl", "entropy", "value_loss", "td_loss", "mc_loss", "grad_norm", "lr"
        }  # fmt: skip
        assert r.values["kl"] >= -1e-12
        assert r.values["entropy"] > 0
    assert found[0].values["lr"] == training["history"]["lr_first"][0]
    norms = [r.values["grad_norm"] for r in found[:20]]
    assert np.mean(norms) == pytest.approx(training["history"]["grad_norm"][0])


def test_a_bootstrap_has_no_td_loss() -> None:
    fit("w", bootstrap=True, where="t.jsonl")
    assert "td_loss" not in records()[0].values
    assert records()[0].values["mc_loss"] > 0


def test_the_loss_parts_make_up_the_loss() -> None:
    fit("w", replace(SHORT, smoothness=0.0, l2=0.0), where="t.jsonl")
    for r in records():
        parts = SHORT.lambda_td * r.values["td_loss"] + SHORT.lambda_mc * r.values["mc_loss"]
        assert r.values["value_loss"] == pytest.approx(parts)


def test_a_batch_of_all_rows_loses_what_the_rows_do() -> None:
    write_branch_data(Path("branch_data.npz"), G, V, n=100, p=1.0)
    p = problem(SHORT)
    fit("w", replace(SHORT, batch_size=100), where="t.jsonl")
    rows = Targets(p.rows.features, p.rows.n_players, p.rows.alive, p.rows.mc_target)
    assert records()[0].values["mc_loss"] == pytest.approx(mean_nll(V, rows))


def test_the_probe_is_kl_from_before_to_after() -> None:
    rows = Targets(G.features, G.n_players, G.alive, G.outcome)
    probe = Probe(rows, seed=0)
    assert len(probe._rows) == PROBE_ROWS
    after = SplineValue(V.knots, V.coef * 1.3 + 0.1, V.feature_names, V.meta)
    probe.begin(V)
    kl, entropy = probe.after_step(after)
    r = probe._rows
    p, q = (evaluate(v, r.features, r.n_players, r.alive) for v in (V, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        assert kl == pytest.approx(np.nansum(p * np.log(p / q), axis=1).mean())
        assert entropy == pytest.approx(-np.nansum(q * np.log(q), axis=1).mean())
    assert probe.after_step(after) == (0.0, entropy)
    broken = SplineValue(V.knots, np.full_like(V.coef, np.nan), V.feature_names, V.meta)
    assert np.isnan(probe.after_step(broken)).all()


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("step", [16, 20, 48])
def test_a_fit_that_goes_on_from_a_checkpoint_ends_with_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, bootstrap: bool, step: int
) -> None:
    config = replace(SHORT, lr=0.1)  # so that with keep_best an early epoch is kept
    plain = fit("plain", config, bootstrap=bootstrap)
    guarded(monkeypatch, 0, TD_GUARD_CHECKPOINT_EVERY="4")
    whole = fit("whole", config, bootstrap=bootstrap)
    saved = {r.step: r for r in records("t0.jsonl") if r.checkpoint}
    assert sorted(saved) == list(range(0, 61, 4))
    assert [r.step for r in saved.values() if r.initial] == [0]
    assert whole["guard"]["checkpoints_saved"] == 16

    guarded(monkeypatch, 0, Path(str(saved[step].checkpoint)), TD_GUARD_TELEMETRY="t.jsonl")
    resumed = fit("resumed", config, bootstrap=bootstrap)
    assert sha256(Path("plain.npz")) == sha256(Path("whole.npz")) == sha256(Path("resumed.npz"))
    for t in (plain, whole, resumed):
        t["history"].pop("seconds")
    assert plain["history"] == whole["history"] == resumed["history"]
    assert [a["from_step"] for a in resumed["guard"]["attempts"]] == [0, step]
    later = [r for r in records() if not r.checkpoint]
    before = [r for r in records("t0.jsonl") if not r.checkpoint and r.step > step]
    assert [(r.step, r.values) for r in later] == [(r.step, r.values) for r in before]
    assert not any(r.initial for r in records())


def test_a_later_attempt_has_its_own_rate_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded(monkeypatch, 0, TD_GUARD_CHECKPOINT_EVERY="30")
    first = fit("first")
    assert first["guard"]["attempts"] == [{"attempt": 0, "from_step": 0, "multiplier": 1.0, "seed": 0}]
    saved = {r.step: Path(str(r.checkpoint)) for r in records("t0.jsonl") if r.checkpoint}
    guarded(monkeypatch, 2, saved[30], LEARNING_RATE_MULTIPLIER="0.25")
    second = fit("second")
    assert second["guard"]["attempts"][1:] == [{"attempt": 2, "from_step": 30, "multiplier": 0.25, "seed": 1002}]
    assert second["lr_schedule"]["peak"] == pytest.approx(0.25 * SHORT.lr)
    assert second["history"]["lr_first"][0] == first["history"]["lr_first"][0]
    assert second["history"]["lr_first"][2] == pytest.approx(0.25 * first["history"]["lr_first"][2])
    assert records("t2.jsonl")[0].step == 31
    assert records("t2.jsonl")[0].attempt == 2
    assert load_weights(Path("second.npz")).coef.tobytes() != load_weights(Path("first.npz")).coef.tobytes()


def test_a_checkpoint_of_another_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded(monkeypatch, 0)
    fit("first")
    guarded(monkeypatch, 1, Path(str(records("t0.jsonl")[0].checkpoint)))
    with pytest.raises(DataError, match=r"of a fit with --batch-size 32, here it is 16"):
        fit("second", replace(SHORT, batch_size=16))
    fit("third", replace(SHORT, lr=0.01))  # another rate is what a guard is for
    guarded(monkeypatch, 1, Path("V_snap.npz").absolute())
    with pytest.raises(DataError, match=r"V_snap\.npz"):
        fit("fourth")
    guarded(monkeypatch, 1, Path("gone.npz").absolute())
    with pytest.raises(DataError, match=r"gone\.npz, which is not there"):
        fit("fifth")


def test_a_checkpoint_that_cannot_be_saved_costs_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("staging0").write_text("in the way")
    guarded(monkeypatch, 0)
    training = fit("w")
    assert training["guard"]["checkpoints_failed"] == 1
    assert training["guard"]["checkpoints_saved"] == 0


def test_a_blow_up_has_its_account_too(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded(monkeypatch, 0)
    with pytest.raises(Blowup):
        fit("w", replace(SHORT, lr=50.0))
    training = read_json(Path("w.training.json"))
    assert training["guard"]["attempts"][0]["from_step"] == 0
    assert [r.step for r in records("t0.jsonl") if not r.checkpoint] == list(
        range(1, training["aborted"]["step"] + 1)
    )


COMMAND = [
    "fit", "--resume", "V_snap.npz", "--td-cache", "branch_data.npz", "--mc-rows", "mc_rows.npz",
    "--output", "w.npz", "--epochs", "1", "--batches-per-epoch", "8", "--batch-size", "16",
]  # fmt: skip


def test_the_command_reports_where_it_is_told_or_where_the_guard_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*COMMAND, "--telemetry", "t.jsonl"]) == 0
    assert len(records()) == 8
    monkeypatch.setenv("TD_GUARD_TELEMETRY", "other.jsonl")
    assert main(COMMAND) == 0
    assert len(records("other.jsonl")) == 8


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEARNING_RATE_MULTIPLIER", "-1"),
        ("TD_GUARD_ATTEMPT", "one"),
        ("TD_GUARD_CHECKPOINT_EVERY", "0"),
        ("TD_GUARD_TELEMETRY", "redis://host:port"),
    ],
)
def test_what_a_guard_cannot_mean_is_exit_code_64(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert main(COMMAND) == 64
    assert name in capsys.readouterr().err or value.startswith("redis")
    assert not Path("w.npz").exists()
