"""`--gate sprt` with the real stages and real matches: on the toy game, and on Orbit Wars."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from td_loop.cli import main
from td_loop.files import read_json
from td_loop.journal import read_records
from td_loop.loop.verify import faults
from tests.loop.sessions import ROOT, session, start, wait_until
from tests.loop.toy_run import records, run, toy_flags

# A test that a candidate passes that is as strong as V_snap: on the toy game seats decide, and rounds are even.
EASY = "--gate sprt --gate-elo -50 -10 --gate-rounds 400"


@pytest.fixture(autouse=True)
def stages_find_the_toy_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def stored(path: Path) -> int:
    """Games in a store."""
    return max(0, sum(1 for _ in read_records(path)) - 1)


def judged(record: Any) -> tuple[Any, ...]:
    """What a match judged, and how."""
    gate = record["gate"]
    return record["weights_sha256"], gate["llr"], gate["rounds"], gate["score"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_driver_that_ends_in_a_match_leaves_games_and_nobody_and_the_next_one_goes_on(
    tmp_path: Path, signum: signal.Signals
) -> None:
    flags = [*toy_flags(tmp_path), *shlex.split(EASY), "--gate-budget", "60e", "--iters", "1"]
    where = tmp_path / "runs"
    folder = where / "td_loop_toy" / "iter0"
    with start("", [*flags, "--runs-dir", str(where)], tmp_path) as process:
        wait_until(lambda: stored(folder / "gate.games") >= 3, process)
        process.send_signal(signum)
        process.communicate(timeout=20)
    wait_until(lambda: not session(process.pid))
    assert process.returncode in (143, -9)
    if signum == signal.SIGTERM:
        assert [r["status"] for r in records(where)] == ["interrupted"]
        assert faults(where / "td_loop_toy") == []
    before = stored(folder / "gate.games")
    assert run(flags, where) == 0
    (record,) = records(where)
    assert (record["status"], record["gate"]["verdict"]) == ("promoted", "H1")
    assert record["gate"]["games_played"] == stored(folder / "gate.games") - before
    assert record["gate"]["games"] <= stored(folder / "gate.games")
    assert faults(where / "td_loop_toy") == []
    if signum == signal.SIGKILL:  # and ends like one that nobody stopped (I10)
        assert run(flags, tmp_path / "whole") == 0
        (whole,) = records(tmp_path / "whole")
        assert judged(record) == judged(whole)


def test_orbit_wars_with_a_gate_from_end_to_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = "--iters 1 --n 60 --workers 2 --budget-evals 4 --epochs 2 --batches-per-epoch 3"
    words = [
        *shlex.split(small),
        "--tag",
        "g",
        "--runs-dir",
        str(tmp_path),
        "--gate",
        "sprt",
        "--gate-rounds",
        "4",
    ]
    run_dir = tmp_path / "td_loop_g"
    assert main(["run", *words, "--gate-elo", "-900", "-700"]) == 0
    (record,) = read_json(run_dir / "manifest.json")["iters"]
    assert (record["status"], record["gate"]["verdict"]) == ("promoted", "H1")
    assert record["gate"]["games"] == 2 * record["gate"]["rounds"] <= stored(run_dir / "iter0" / "gate.games")
    assert "gate 0: H1, " in capfd.readouterr().out
    for command in (["verify", str(run_dir)], ["status", str(run_dir)], ["explain", str(run_dir), "0"]):
        assert main(command) == 0
    assert "match with latest_good (LLR)" in capfd.readouterr().out
