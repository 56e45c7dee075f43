"""`--guard`: the real fit of the toy game under the real guard."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from td_loop.cli import main
from td_loop.errors import UsageError
from td_loop.files import read_json
from td_loop.loop.config import RunConfig
from td_loop.loop.verify import faults
from tests.loop.toy_run import records, run, toy_flags

ROOT = Path(__file__).parents[2]
# Rates at which Adam overshoots, and no other check in the way.
WILD = {"iters": 1, "lr_peak": 8.0, "val_regression_tau": 1e6, "val_blowup_tau": 1e6, "batches_per_epoch": 24}


@pytest.fixture(autouse=True)
def stages_find_the_toy_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def settings(folder: Path, max_kl: float) -> Path:
    """A guard.toml that looks at KL alone."""
    others = ("entropy", "value_loss", "drawdown", "jump", "drift")
    off = "".join(f"[detectors.{name}]\nenabled = false\n" for name in others)
    path = folder / "guard.toml"
    path.write_text(f"[detectors.kl]\nmax_kl = {max_kl}\n{off}[snapshots]\nevery = 2\npromote_after = 2\n")
    return path


def test_a_fit_that_stays_calm_ends_with_the_weights_of_one_that_nobody_watched(tmp_path: Path) -> None:
    flags = toy_flags(tmp_path)
    assert run(flags, tmp_path / "alone", iters=1) == 0
    assert run(flags, tmp_path / "watched", iters=1, guard="abort") == 0
    (alone,), (watched,) = records(tmp_path / "alone"), records(tmp_path / "watched")
    assert watched["weights_sha256"] == alone["weights_sha256"]
    assert "guard" not in alone["fit"]
    assert watched["fit"]["guard"] == {
        "mode": "abort", "trips": [], "retries": 0, "multiplier": 1.0, "locked": False,
    }  # fmt: skip
    assert faults(tmp_path / "watched" / "td_loop_toy") == []


def test_a_trip_is_the_mid_run_abort_where_that_is_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "runs"
    flags = [*toy_flags(tmp_path), "--guard-config", str(settings(tmp_path, 0.001))]
    assert run(flags, where, guard="abort", **WILD) == 4
    (record,) = records(where)
    assert record["status"] == "hard_aborted"
    assert record["stage4_validation"]["S4.2"]["passed"] is False
    assert "the guard stopped fit at step" in record["stage4_validation"]["S4.2"]["message"]
    (trip,) = record["fit"]["guard"]["trips"]
    assert trip["attempt"] == 0
    assert record["fit"]["guard"]["locked"] is True
    assert faults(where / "td_loop_toy") == []
    assert (where / "td_loop_toy" / "latest_good.npz").resolve().name == "V_snap.npz"
    assert "the guard stopped fit" in capfd.readouterr().err
    assert main(["explain", "toy", "0", "--runs-dir", str(where)]) == 0
    assert "under guard (abort): tripped at step" in " ".join(capfd.readouterr().out.split())


def test_a_trip_is_rolled_back_and_fit_goes_on_at_half_the_rate_where_that_is_asked_for(tmp_path: Path) -> None:
    where = tmp_path / "runs"
    flags = [*toy_flags(tmp_path), "--guard-config", str(settings(tmp_path, 0.15))]
    assert run(flags, where, guard="continue", **WILD) == 0
    (record,) = records(where)
    assert record["status"] == "promoted"
    guard = record["fit"]["guard"]
    assert len(guard["trips"]) == 1  # KL reaches 0.3 at this rate, and 0.1 at half of it
    assert (guard["retries"], guard["multiplier"], guard["locked"]) == (1, 0.5, False)
    training = read_json(where / "td_loop_toy" / "iter0" / "weights.training.json")
    assert training["guard"]["attempts"][-1]["multiplier"] == guard["multiplier"]
    assert faults(where / "td_loop_toy") == []


def test_settings_of_a_guard_need_a_guard_and_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without --guard"):
        RunConfig.from_flags({"guard_config": settings(tmp_path, 1.0)})
    with pytest.raises(UsageError, match="no such file"):
        RunConfig.from_flags({"guard": "abort", "guard_config": tmp_path / "none.toml"})


def test_without_a_guard_no_settings_speak_of_one() -> None:
    assert not [key for key in RunConfig().hyperparams() if "guard" in key]
