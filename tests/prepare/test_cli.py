"""cli.prepare: the command as a person, or the loop, runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from td_loop.cli import main
from td_loop.npz import load_npz

TOY = ["--game", "tests.toy_game:GAME"]


def test_a_run_ends_with_one_line_that_counts(
    weights: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, mc = tmp_path / "branch_data.npz", tmp_path / "mc_rows.npz"
    flags = ["--weights", weights, "--out", out, "--n", 40, "--budget-evals", 2, "--workers", 1, "--mc-rows", mc]
    argv = ["prepare", *TOY, "--cache-dir", str(tmp_path / "cache"), *map(str, flags)]
    assert main(argv) == 0
    first, last = capfd.readouterr().out.splitlines()
    assert re.fullmatch(r"prepare: \d+ outcome rows -> .*mc_rows\.npz", first)
    assert re.fullmatch(
        r"prepare: 40 rows \(\d+ replay, \d+ agent\), 0 engine fallbacks \(0\.0%\), 0 retries, [\d.]+ s -> .*",
        last,
    )
    assert load_npz(out)[1]["budget"] == {"seconds": None, "evals": 2}
    assert load_npz(mc)[1]["gamma"] == 0.97
    assert main(argv) == 0
    assert "outcome rows kept in" in capfd.readouterr().out


def test_mc_only_needs_no_weights(tmp_path: Path) -> None:
    mc = tmp_path / "mc_rows.npz"
    assert (
        main(["prepare", *TOY, "--cache-dir", str(tmp_path), "--mc-only", "--mc-rows", str(mc), "--gamma", "0.9"])
        == 0
    )
    assert load_npz(mc)[1]["gamma"] == 0.9


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--k", "1.5"], "--k 1.5: must lie in 0..1; the share of rows that are searched"),
        (["--k", "nan"], "--k nan: must lie in 0..1"),
        (["--n", "0"], "--n 0: must be 1 or more"),
        (["--workers", "0"], "--workers 0: must be 1 or more; leave it out for one per physical core"),
        (["--budget-s", "0"], "--budget-s 0.0: must be above 0"),
        (["--budget-evals", "0"], "--budget-evals 0: must be 1 or more"),
        (["--partial-input-p", "-1"], "--partial-input-p -1: must lie in 0..1"),
        (["--mc-target-p", "2"], "--mc-target-p 2: must lie in 0..1"),
        (["--gamma", "0.9"], "--gamma goes with --mc-only"),
        (["--mc-only"], "--mc-only needs --mc-rows"),
        (["--mc-only", "--mc-rows", "mc.npz", "--gamma", "1.5"], "--gamma 1.5: must lie in 0..1"),
        (["--game", "go"], "--game go: not one of orbit_wars"),
        (["--unknown"], "No such option"),
        (["--n", "many"], "--n"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_usage_errors_exit_64_and_say_what_to_do(
    weights: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    out = tmp_path / "branch_data.npz"
    argv = ["prepare", *TOY, "--cache-dir", str(tmp_path), "--weights", str(weights), "--out", str(out)]
    assert main([*argv, *flags]) == 64
    assert words in capfd.readouterr().err
    assert not out.exists()


def test_weights_and_out_are_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", *TOY]) == 64
    assert "--weights and --out are needed" in capfd.readouterr().err


def test_damaged_weights_exit_65(weights: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.npz"
    cut.write_bytes(weights.read_bytes()[:200])
    argv = ["prepare", *TOY, "--cache-dir", str(tmp_path), "--weights", str(cut), "--out", str(tmp_path / "o.npz")]
    assert main(argv) == 65
    assert "cut.npz" in capfd.readouterr().err


@pytest.mark.parametrize("flag", ["--out", "--mc-rows", "--cache-dir"])
def test_a_place_that_cannot_be_written_exits_74_and_is_named(
    weights: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], flag: str
) -> None:
    (tmp_path / "file").write_text("mine")
    places = {"--cache-dir": str(tmp_path), "--out": str(tmp_path / "o.npz"), flag: str(tmp_path / "file" / "x")}
    argv = ["prepare", *TOY, "--weights", str(weights), "--n", "4", "--budget-evals", "1", "--workers", "1"]
    assert main(argv + [word for item in places.items() for word in item]) == 74
    err = capfd.readouterr().err
    assert re.search(r"cannot write .*/file(/x)?: Not a directory", err)
    assert ("which --cache-dir or $TD_LOOP_CACHE names" in err) is (flag == "--cache-dir")
    assert (tmp_path / "file").read_text() == "mine"


# --- signals ------------------------------------------------------------------------------------------------


def children(pid: int) -> set[int]:
    try:
        return {int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except OSError:
        return set()


def gone(pids: set[int]) -> bool:
    """True once all have ended (a zombie that nobody reaped yet has ended too)."""

    def ended(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    return all(map(ended, pids))


def wait_for(what: str, test: object) -> None:
    for _ in range(600):
        if test():  # type: ignore[operator]
            return
        time.sleep(0.1)
    pytest.fail(f"waited 60 s in vain: {what}")


@pytest.fixture
def searching(weights: Path, tmp_path: Path) -> subprocess.Popen[bytes]:
    """prepare with two workers, both in the middle of a search that takes for ever."""
    command = [sys.executable, "-m", "td_loop", "prepare", "--game", "tests.prepare.faulty:SLOW", "--k", "1"]
    command += ["--weights", str(weights), "--out", str(tmp_path / "out" / "branch_data.npz"), "--n", "20"]
    command += ["--workers", "2", "--cache-dir", str(tmp_path)]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    wait_for("two workers", lambda: len(children(process.pid)) == 2)
    time.sleep(1.5)  # more often than not in the search by now; the signal must work at any moment
    return process


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_at_once_without_leftovers(
    searching: subprocess.Popen[bytes], tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    workers = children(searching.pid)
    searching.send_signal(signum)
    _, err = searching.communicate(timeout=20)
    assert searching.returncode == code
    assert err.decode() == f"error: interrupted by {signum.name}\n"
    assert gone(workers)
    left = [p.name for p in (tmp_path / "out").iterdir()] if (tmp_path / "out").exists() else []
    assert left in ([], ["branch_data.chunks"])  # finished chunks are for the next one


def test_workers_end_when_prepare_is_killed(searching: subprocess.Popen[bytes]) -> None:
    workers = children(searching.pid)
    assert len(workers) == 2
    searching.kill()
    searching.communicate()
    wait_for("the workers' end", lambda: gone(workers))
