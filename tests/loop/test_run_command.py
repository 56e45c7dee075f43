"""`td-loop run` as a person calls it, with stage programs as real processes."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from td_loop.cli import main
from td_loop.cli.run import run as command
from td_loop.loop import driver
from td_loop.loop.config import Gate, Guard, RunConfig
from td_loop.loop.presets import PRESETS
from tests.loop.test_process import gone, wait_until

ROOT = Path(__file__).parents[2]
FAKE = f"{sys.executable} {Path(__file__).with_name('fakes.py')}"


@pytest.fixture
def words(tmp_path: Path, bootstrap: Path) -> list[str]:
    """A small run with stage programs of the user's own."""
    flags = {
        "--tag": "t",
        "--iters": "2",
        "--n": "20",
        "--workers": "2",
        "--seg-uniform-tau": "1",
        "--runs-dir": str(tmp_path / "runs"),
        "--bootstrap": str(bootstrap),
        "--prepare-cmd": f"{FAKE} prepare",
        "--fit-cmd": f"{FAKE} fit",
    }
    return ["run", *(word for pair in flags.items() for word in pair)]


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """What the command would have run, without running it."""
    seen: list[RunConfig] = []
    monkeypatch.setattr(driver, "drive", lambda config, **_: seen.append(config))
    return seen


def content(run: Path) -> Any:
    return orjson.loads((run / "manifest.json").read_bytes())


def test_a_piped_run_prints_its_plan_a_line_an_iteration_and_where_the_weights_are(
    words: list[str], run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("run 't' in ")
    assert [line for line in lines if line.startswith("iter ")] == lines[-6:-4]
    assert lines[-4].startswith("done: 2 iterations; ")
    assert err == ""
    assert [r["status"] for r in content(run)["iters"]] == ["promoted", "promoted"]
    assert not list(run.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("how", "code"), [("fit:1", 4), ("fit:2", 4), ("fit:74", 74), ("prepare:64", 64), ("prepare:65", 65)]
)
def test_a_failing_program_ends_the_run_with_its_own_words_and_ours(
    words: list[str],
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    how: str,
    code: int,
) -> None:
    monkeypatch.setenv("FAKE_MISBEHAVE", how)
    assert main(words) == code
    err = capfd.readouterr().err
    stage, number = how.split(":")
    assert err.startswith(f"error: {stage} goes wrong\nerror: iteration 0 was aborted: {stage} exited with")
    assert number in err
    assert (run / "iter0" / f"{stage}.log").read_text() == f"error: {stage} goes wrong\n"
    (record,) = content(run)["iters"]
    assert record["status"] == "hard_aborted"
    if how != "fit:2":
        failure = record["stage3_validation" if stage == "prepare" else "stage4_validation"]["failure"]
        assert failure.startswith(f"{stage} exited with code {number}: {stage} goes wrong; its output is in ")


def start(words: list[str], **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "td_loop", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("signum", "code", "how"),
    [
        (signal.SIGINT, 130, "prepare:hang"),
        (signal.SIGTERM, 143, "fit:hang"),
        (signal.SIGTERM, 143, "prepare:hang-with-worker"),
    ],
)
def test_a_signal_ends_driver_and_stages_and_the_run_resumes(
    words: list[str], run: Path, tmp_path: Path, signum: int, code: int, how: str
) -> None:
    words = [*words, "--iters", "1"]
    pids = tmp_path / "pids"
    with start(words, FAKE_MISBEHAVE=how, FAKE_PIDS=str(pids)) as process:
        wait_until(lambda: pids.exists() and pids.read_text() != "")
        process.send_signal(signum)
        _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert "in iteration 0; the same command resumes the run" in err
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: gone(int(pid)))
    assert [r["status"] for r in content(run)["iters"]] == ["interrupted"]
    assert main(words) == 0
    assert [r["status"] for r in content(run)["iters"]] == ["promoted"]


def test_a_second_driver_exits_5_and_a_killed_one_blocks_nobody(
    words: list[str], run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*words, "--iters", "1"]
    pids = tmp_path / "pids"
    with start(words, FAKE_MISBEHAVE="fit:hang", FAKE_PIDS=str(pids)) as process:
        wait_until(lambda: pids.exists() and pids.read_text() != "")
        assert main(words) == 5
        assert f"is in use by process {process.pid}" in capfd.readouterr().err
        process.kill()
    wait_until(lambda: gone(int(pids.read_text())))
    assert main(words) == 0
    assert [r["status"] for r in content(run)["iters"]] == ["promoted"]


def test_defaults_of_the_command_are_those_of_the_config(configs: list[RunConfig]) -> None:
    assert main(["run"]) == 0
    assert configs == [RunConfig()]


def test_every_hyperparameter_has_a_flag() -> None:
    all_of_them = RunConfig(gate=Gate.SPRT, guard=Guard.ABORT).hyperparams()
    flags = set(inspect.signature(command).parameters)
    assert set(all_of_them) == flags - {"ctx", "preset", "dry_run"}


def test_a_preset_sets_defaults_and_flags_that_are_given_win(configs: list[RunConfig]) -> None:
    quick = PRESETS["quick"]
    main(["run", "--preset", "quick"])
    main(["run", "--preset", "quick", "--n", "77", "--iters", str(RunConfig.iters)])
    first, second = (c.hyperparams() for c in configs)
    assert first == RunConfig().hyperparams() | dict(quick)
    # 20 is the plain default: given, it wins over the preset all the same.
    assert second == first | {"n": 77, "iters": RunConfig.iters}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--k", "1.5"], "--k 1.5"),
        (["--val-regression-tau", "-1"], "--val-regression-tau -1"),
        (["--lr-warmup-frac", "0.7", "--lr-hold-frac", "0.7"], "sum to more than 1"),
        (["--on-fail", "shrug"], "shrug"),
        (["--preset", "slow"], "slow"),
        (["--unknown"], "--unknown"),
        (["--gate", "sprt", "--gate-elo", "5", "5"], "--gate-elo 5 5"),
        (["--gate", "sprt", "--gate-rounds", "0"], "--gate-rounds 0"),
        (["--gate", "sprt", "--gate-budget", "0.1"], "--gate-budget 0.1"),
        (["--gate", "sprt", "--gate-budget", "0e"], "--gate-budget 0e"),
        (["--gate-rounds", "10"], "--gate-rounds is about a match, and there is none without --gate sprt"),
        (["--gate", "sprt", "--game", "tests.loop.unplayable:GAME"], "the arena cannot play it"),
        (["--n", "many"], "--n"),
    ],
)
def test_flags_that_cannot_be_meant_exit_64_and_are_named(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert main([*words, *flags]) == 64
    assert message in capfd.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_missing_default_bootstrap_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from td_loop.loop import rundir

    monkeypatch.setattr(rundir, "_REPOSITORY", tmp_path / "clone")
    monkeypatch.chdir(tmp_path)
    assert main(["run"]) == 65
    err = capfd.readouterr().err
    for place in (tmp_path, tmp_path / "clone"):
        assert str(place / "models" / "value_spline_v2.npz") in err
    assert "--bootstrap" in err


def test_the_default_bootstrap_is_found_in_the_clone_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: Path
) -> None:
    from td_loop.loop import rundir

    clone = tmp_path / "clone" / "models" / "value_spline_v2.npz"
    clone.parent.mkdir(parents=True)
    bootstrap.rename(clone)
    monkeypatch.setattr(rundir, "_REPOSITORY", tmp_path / "clone")
    monkeypatch.chdir(tmp_path)
    assert rundir.find_bootstrap(RunConfig.bootstrap) == clone
