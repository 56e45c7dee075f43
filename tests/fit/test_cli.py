"""`td-loop fit` and `td-loop knots`, as typed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from td_loop.cli import main
from td_loop.files import read_json, sha256
from td_loop.value.io import load_weights, save_weights
from td_loop.value.knots import derive_knots
from tests.synthetic import games, value_function, write_branch_data, write_mc_rows

G = games(3, 40, 12)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    v = value_function(3, 6)
    save_weights(Path("V_snap.npz"), v)
    write_mc_rows(Path("mc_rows.npz"), G)
    write_branch_data(Path("branch_data.npz"), G, v, n=200)
    return tmp_path


SHORT = ["--epochs", "1", "--batches-per-epoch", "8", "--batch-size", "16"]
RESUME = ["fit", "--resume", "V_snap.npz", "--td-cache", "branch_data.npz", "--mc-rows", "mc_rows.npz"]


def test_fit_resumes_and_says_what_came_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RESUME, "--output", "out/weights.npz", *SHORT]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"{read_json(folder / 'out/weights.training.json')['final_val_mc_nll']:.4f}" in said
    assert load_weights(folder / "out/weights.npz")


def test_fit_bootstraps_without_resume(folder: Path) -> None:
    assert main(["fit", "--mc-rows", "mc_rows.npz", "--output", "v.npz", "--n-knots", "8", *SHORT]) == 0
    assert load_weights(folder / "v.npz").knots.shape == (3, 8)
    schedule = read_json(folder / "v.training.json")["lr_schedule"]
    assert schedule["knot_requantize_warmup_steps"] == 64


def test_a_blow_up_is_exit_code_2_with_the_marker(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RESUME, "--output", "weights.npz", *SHORT, "--lr", "90"]) == 2
    assert read_json(folder / "weights.training.json")["aborted"] is not None
    assert "weights.training.json" in capsys.readouterr().err
    assert not (folder / "weights.npz").exists()


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["--lr", "0"], "--lr"),
        (["--lr-warmup-frac", "0.7", "--lr-hold-frac", "0.7"], "--lr-warmup-frac + --lr-hold-frac"),
        (["--val-blowup-tau", "-1"], "--val-blowup-tau"),
        (["--epochs", "0"], "--epochs"),
        (["--batch-size", "0"], "--batch-size"),
        (["--lambda-td", "nan"], "--lambda-td"),
        (["--warmup-steps", "5"], "--warmup-steps"),
        (["--n-knots", "8"], "--n-knots"),
        (["--output", "V_snap.npz"], "V_snap.npz"),
        (["--output", "weights.txt"], ".npz"),
        (["--moon", "3"], "--moon"),
        (["--epochs", "many"], "--epochs"),
    ],
)
def test_what_cannot_be_meant_is_exit_code_64_and_writes_nothing(
    folder: Path, args: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(p.name for p in folder.iterdir())
    assert main([*RESUME, "--output", "weights.npz", *SHORT, *args]) == 64
    assert names in capsys.readouterr().err
    assert sorted(p.name for p in folder.iterdir()) == before


@pytest.mark.parametrize("flag", ["--lambda-mc", "--lambda-td"])
def test_a_bootstrap_fit_has_no_losses_to_weigh(
    folder: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--mc-rows", "mc_rows.npz", "--output", "v.npz", flag, "0.5", *SHORT]) == 64
    assert f"{flag} " in capsys.readouterr().err
    assert not (folder / "v.npz").exists()


def test_resume_and_cache_go_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag, path in (("--resume", "V_snap.npz"), ("--td-cache", "branch_data.npz")):
        assert main(["fit", flag, path, "--mc-rows", "mc_rows.npz", "--output", "weights.npz"]) == 64
        assert "go together" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["V_snap.npz", "branch_data.npz", "mc_rows.npz"])
def test_a_damaged_input_is_exit_code_65_and_named(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-200])
    assert main([*RESUME, "--output", "weights.npz", *SHORT]) == 65
    assert name in capsys.readouterr().err
    assert not (folder / "weights.npz").exists()


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("V_snap.npz", "`td-loop fit`"),
        ("branch_data.npz", "`td-loop prepare`"),
        ("mc_rows.npz", "`td-loop prepare`"),
    ],
)
def test_a_missing_input_says_what_makes_one(
    folder: Path, name: str, maker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).unlink()
    assert main([*RESUME, "--output", "weights.npz", *SHORT]) == 65
    err = capsys.readouterr().err
    assert f"{name}: no such file; " in err
    assert maker in err


def test_knots_prints_a_line_a_feature_within_80_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["knots", "V_snap.npz", "--cache", "branch_data.npz"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("feature_") for line in lines) == 3
    assert all(len(line) <= 80 for line in lines)


def test_knots_marks_features_that_drifted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    v = replace(value_function(3, 6), knots=derive_knots(G.features, G.alive, 6))
    v.knots[1] -= 100.0  # all values lie above the top knot
    save_weights(Path("old.npz"), v)
    assert main(["knots", "old.npz", "--cache", "branch_data.npz"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith(" drift")] == ["feature_1"]
    assert "1 of 3 features drifted" in lines[-1]


def test_rebaseline_writes_new_weights_and_says_how_far_v_moved(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sha256(folder / "V_snap.npz")
    args = ["knots", "V_snap.npz", "--cache", "branch_data.npz", "--rebaseline", "new.npz", "--n-knots", "12"]
    assert main(args) == 0
    assert "V moved by at most 0." in capsys.readouterr().out
    new = load_weights(folder / "new.npz")
    assert new.knots.shape == (3, 12)
    assert new.meta["parent_sha256"] == before == sha256(folder / "V_snap.npz")
    assert np.isfinite(new.coef).all()


def test_rebaseline_never_overwrites(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sha256(folder / "V_snap.npz")
    assert main(["knots", "V_snap.npz", "--cache", "branch_data.npz", "--rebaseline", "V_snap.npz"]) == 64
    assert "never overwritten" in capsys.readouterr().err
    assert sha256(folder / "V_snap.npz") == before
    Path("dangling.npz").symlink_to("nowhere.npz")
    assert main(["knots", "V_snap.npz", "--cache", "branch_data.npz", "--rebaseline", "dangling.npz"]) == 64


@pytest.mark.parametrize(
    "args",
    [
        ["--knot-above-top-tau", "1.5"],
        ["--knot-below-first-tau", "-1"],
        ["--knot-below-first-tau", "nan"],
        ["--n-knots", "8"],
        ["--n-knots", "99"],
    ],
)
def test_knots_refuses_what_cannot_be_meant(
    folder: Path, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["knots", "V_snap.npz", "--cache", "branch_data.npz", *args]) == 64
    assert args[0] in capsys.readouterr().err
    assert main(["run", *args]) == 64  # the loop's flags of these names take the same values


def test_a_signal_stops_fit_with_its_exit_code_and_leaves_no_file(folder: Path) -> None:
    before = sorted(p.name for p in folder.iterdir())
    code = (
        "import os, signal, sys\n"
        "from td_loop.cli import main\n"
        "from td_loop.fit.trainer import Trainer\n"
        "step = Trainer.step\n"
        "def interrupted(self):\n"
        "    if self.steps_done == 3:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return step(self)\n"
        "Trainer.step = interrupted\n"
        f"sys.exit(main({[*RESUME, '--output', 'weights.npz', *SHORT]!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=_env(), check=False)
    assert done.returncode == 143
    assert sorted(p.name for p in folder.iterdir()) == before


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
