"""A signal at any moment of a run: it ends soon, with its exit code, a true record, and nobody left behind."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pytest

from td_loop.cli import main
from td_loop.files import sha256
from td_loop.loop.manifest import read_manifest
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue
from tests.loop.fakes import write_bootstrap
from tests.loop.sessions import fake_command, session, stage_command, start, wait_until
from tests.toy_game import GAME

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

INT, TERM = signal.SIGINT, signal.SIGTERM
COPY = """
import shutil, sys
flags = dict(zip(sys.argv[3::2], sys.argv[4::2]))
shutil.copy(sys.argv[1], flags["--out"])
shutil.copy(sys.argv[2], flags["--mc-rows"])
"""


@dataclass(frozen=True)
class Stop:
    """A moment, and what the run is like after a signal there.

    Attributes:
        moment: see pausing.py.
        signums: sent there, one after the other.
        statuses: of the attempts on record; None: there is no run.
        iters: of the run.
    """

    moment: str
    signums: tuple[signal.Signals, ...]
    statuses: list[str] | None
    iters: int = 1


def stopped(stop: Stop, words: list[str], folder: Path, *, in_driver: bool) -> str:
    """Start, signal at the moment, and check what is always the same. Returns what it said last."""
    with start(stop.moment if in_driver else "", words, folder) as process:
        wait_until((folder / "here").exists, process)
        for signum in stop.signums:
            process.send_signal(signum)
        if in_driver:
            (folder / "go").touch()
        _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + stop.signums[0]
    wait_until(lambda: not session(process.pid))
    return err


def check(run: Path, stop: Stop) -> None:
    """The record says how far it came, and everything that it names is whole."""
    manifest = read_manifest(run)
    if stop.statuses is None:
        assert manifest is None
        return
    assert manifest is not None
    assert [r.status.value for r in manifest.iters] == stop.statuses
    promoted = {r.weights: r.weights_sha256 for r in manifest.iters if r.status == "promoted"}
    for name, digest in promoted.items():
        assert sha256(run / str(name)) == digest
    assert manifest.latest_good == next(reversed(promoted), "iter0/V_snap.npz")
    assert str((run / "latest_good.npz").readlink()) == manifest.latest_good
    if len(stop.signums) == 1:  # who asks twice has the stage killed where it stands
        assert not list(run.rglob("*.tmp"))


# --- in the driver, whose stages take milliseconds ---------------------------------------------------------------

DRIVER = [
    Stop("import typer", (INT,), None),
    Stop("import td_loop.loop.driver", (TERM,), None),
    Stop("call td_loop.loop.rundir:write_manifest", (INT,), []),
    Stop("call td_loop.loop.attempt:stage3", (TERM,), ["interrupted"]),
    # What ends an iteration is done to its end.
    Stop("call td_loop.loop.attempt:stage4", (INT,), ["promoted"], iters=2),
    Stop("call td_loop.loop.driver:write_manifest", (TERM,), ["promoted"], iters=2),
    Stop("call td_loop.loop.rundir:link#2", (INT, INT), ["promoted"]),  # the last iteration
    Stop("call td_loop.loop.rundir:prunable#3", (TERM,), ["promoted", "promoted", "interrupted"], iters=3),
]


@pytest.mark.parametrize("stop", DRIVER, ids=lambda s: f"{s.moment}-{s.signums[0].name}")
def test_a_signal_to_the_driver(stop: Stop, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    flags = {
        "--tag": "t",
        "--iters": str(stop.iters),
        "--n": "20",
        "--seg-uniform-tau": "1",
        "--runs-dir": str(runs),
        "--bootstrap": str(write_bootstrap(tmp_path / "bootstrap.npz")),
        "--prepare-cmd": fake_command("prepare"),
        "--fit-cmd": fake_command("fit"),
    }
    words = [word for pair in flags.items() for word in pair]
    err = stopped(stop, words, tmp_path, in_driver=True)
    run = runs / "td_loop_t"
    check(run, stop)
    if "typer" not in stop.moment:  # too early to say a word
        assert f"error: interrupted by {stop.signums[0].name}" in err
    if "prunable" in stop.moment:
        assert not (run / "iter0" / "branch_data.npz").exists()
        assert (run / "iter1" / "branch_data.npz").exists()


# --- in the stages, on the toy game ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Toy:
    """What prepare makes of the toy game (branch_data, mc_rows), and how a run with it is started in a folder."""

    prepared: tuple[Path, Path]
    words: Callable[[Path], list[str]]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "games.json").write_bytes(orjson.dumps(list(range(8))))
    shape = (len(GAME.feature_names), 6)
    knots, meta = np.tile(np.linspace(-1.0, 40.0, 6), (shape[0], 1)), {"game": "toy", "gamma": 0.97}
    save_weights(folder / "bootstrap.npz", SplineValue(knots, np.zeros((2, *shape)), GAME.feature_names, meta))
    game = ["--game", "tests.toy_game:GAME", "--replays", str(folder / "games.json"), "--cache-dir", str(folder)]
    small = shlex.split("--n 40 --workers 2 --budget-evals 2")
    fit = shlex.split("--epochs 2 --batches-per-epoch 3 --batch-size 16")
    bootstrap = str(folder / "bootstrap.npz")

    def words(runs: Path) -> list[str]:
        where = ["--tag", "t", "--iters", "1", "--runs-dir", str(runs), "--bootstrap", bootstrap]
        return [*where, *game, *small, *fit]

    made = folder / "branch_data.npz", folder / "mc_rows.npz"
    files = ["--weights", bootstrap, "--out", str(made[0]), "--mc-rows", str(made[1])]
    assert main(["prepare", *files, *game, *small]) == 0
    return Toy(made, words)


PREPARE = [
    Stop("import td_loop.prepare.run", (INT,), ["interrupted"]),
    Stop("call td_loop.prepare.run:compile_kernels", (TERM,), ["interrupted"]),
    Stop("call td_loop.channel:wait_for", (INT,), ["interrupted"]),
    Stop("call td_loop.files:np.savez#2", (TERM, TERM), ["interrupted"]),  # half of branch_data.npz is written
]
FIT = [
    Stop("import torch", (TERM,), ["interrupted"]),
    Stop("call td_loop.fit.trainer:Trainer.step", (INT,), ["interrupted"]),
    Stop("call td_loop.fit.trainer:Trainer.step#5", (TERM,), ["interrupted"]),
    Stop("call td_loop.files:np.savez", (INT, INT, INT), ["interrupted"]),
]


@pytest.mark.parametrize("stop", PREPARE, ids=lambda s: f"{s.moment}-{s.signums[0].name}")
def test_a_signal_in_prepare(stop: Stop, toy: Toy, tmp_path: Path) -> None:
    words = [*toy.words(tmp_path), "--prepare-cmd", stage_command("prepare", stop.moment)]
    assert "in iteration 0; the same command resumes the run" in stopped(stop, words, tmp_path, in_driver=False)
    check(tmp_path / "td_loop_t", stop)


def test_a_signal_in_the_search_of_every_worker(toy: Toy, tmp_path: Path) -> None:
    stop = Stop("", (INT,), ["interrupted"])
    words = [*toy.words(tmp_path), "--k", "1", "--game", "tests.loop.slow_game:TOY"]
    assert "in iteration 0; the same command resumes the run" in stopped(stop, words, tmp_path, in_driver=False)
    check(tmp_path / "td_loop_t", stop)


@pytest.mark.parametrize("stop", FIT, ids=lambda s: f"{s.moment}-{s.signums[0].name}")
def test_a_signal_in_fit(stop: Stop, toy: Toy, tmp_path: Path) -> None:
    copy = [sys.executable, "-I", "-S", "-c", COPY, *map(str, toy.prepared)]
    words = [*toy.words(tmp_path), "--prepare-cmd", shlex.join(copy)]
    words += ["--fit-cmd", stage_command("fit", stop.moment)]
    assert "in iteration 0; the same command resumes the run" in stopped(stop, words, tmp_path, in_driver=False)
    check(tmp_path / "td_loop_t", stop)


# --- the real game and the real fit ------------------------------------------------------------------------------


def test_a_signal_in_the_real_search_and_in_the_real_fit(tmp_path: Path) -> None:
    where = ["--tag", "t", "--iters", "1", "--runs-dir", str(tmp_path), "--n", "40", "--workers", "2"]
    search = tmp_path / "search"
    search.mkdir()
    stop = Stop("", (TERM,), ["interrupted"])
    words = [*where, "--k", "1", "--budget-s", "0.2", "--game", "tests.loop.slow_game:ORBIT_WARS"]
    assert "in iteration 0; the same command resumes the run" in stopped(stop, words, search, in_driver=False)
    check(tmp_path / "td_loop_t", stop)

    fit = tmp_path / "fit"
    fit.mkdir()
    stop = Stop("say call td_loop.fit.trainer:Trainer.step#200", (INT,), ["interrupted"])
    words = [*where, "--k", "0", "--epochs", "100", "--batches-per-epoch", "10000"]
    words += ["--fit-cmd", stage_command("fit", stop.moment)]
    assert "in iteration 0; the same command resumes the run" in stopped(stop, words, fit, in_driver=False)
    check(tmp_path / "td_loop_t", stop)
