"""Runs to report on, made once with stages that write valid files in milliseconds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.errors import Interrupted, TdLoopError
from td_loop.loop import rundir
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.npz import save_npz
from tests.loop.fakes import Flags, Stages, ends, fit_to, prepare_with, reverts, write_bootstrap

REPLAYS = "ab" * 32
VALIDATION_GAME = 10_000
"""Content id of the only game of `mc_rows.npz`; the fake caches hold smaller ones."""


def drive_to_its_end(config: RunConfig, script: dict[Any, Any]) -> None:
    """Run, whatever stops it."""
    with contextlib.suppress(TdLoopError, Interrupted):
        drive(config, runner=Stages({**script}))


def interrupt(flags: Flags) -> int:
    os.kill(os.getpid(), signal.SIGTERM)
    return 0


def nan_target(cache: dict[str, Any]) -> None:
    cache["branch_r_target"][3, 0] = np.nan


def write_rows(run: Path, games: tuple[int, ...] = (VALIDATION_GAME,), replays: str = REPLAYS) -> None:
    """Validation rows: two frames of each game."""
    frame_id = np.array([game << 11 | turn for game in games for turn in (0, 4)], np.int64)
    arrays = {"frame_id": frame_id, "is_validation": np.ones(len(frame_id), bool)}
    save_npz(run / "mc_rows.npz", arrays, {"kind": "mc_rows", "format_version": 1, "replay_set_hash": replays})


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """A run directory of each kind. Iteration 1 of `retried` was promoted by its retry, that of others never."""
    folder = tmp_path_factory.mktemp("runs")
    bootstrap = write_bootstrap(folder / "bootstrap.npz")
    whole = prepare_with(replay_set_hash=REPLAYS)

    def make(name: str, script: dict[Any, Any], **flags: Any) -> Path:
        small = {"tag": name, "iters": 3, "n": 20, "k": 0.3, "workers": 2, "seg_uniform_tau": 1.0}
        config = RunConfig.from_flags({**small, "runs_dir": folder, "bootstrap": bootstrap, **flags})
        every = {("prepare", f"iter{i}{r}"): whole for i in range(4) for r in ("", "_retry1")}
        drive_to_its_end(config, {**every, **script})
        run = folder / f"td_loop_{name}"
        write_rows(run)
        return run

    with pytest.MonkeyPatch.context() as m:
        m.setattr(os, "fsync", lambda fd: None)
        best_first = {("fit", f"iter{i}"): fit_to(0.6, 0.5 + i / 100) for i in range(3)}
        runs = {
            "promoted": make("promoted", best_first),
            "reverted": make("reverted", {("fit", "iter1"): reverts}),
            "retried": make("retried", {("fit", "iter1"): reverts}, on_fail="retry-then-abort"),
            "aborted": make("aborted", {("prepare", "iter1"): prepare_with(nan_target, replay_set_hash=REPLAYS)}),
            "failed": make("failed", {("fit", "iter1"): lambda _: 1}),
            "interrupted": make("interrupted", {("fit", "iter1"): interrupt}),
            "stopped": make("stopped", {("prepare", "iter1"): interrupt}),
            "gated": make("gated", {("gate", "iter1"): ends("H0")}, gate="sprt", on_fail="retry-then-abort"),
            "in a match": make("in-a-match", {("gate", "iter1"): interrupt}, gate="sprt"),
            "no match": make("no-match", {("gate", "iter1"): lambda _: 1}, gate="sprt"),
        }
        # Reverted twice, then promoted: two attempts lie in trimmed/. The same seed would end the same again.
        for seed, script in enumerate(({("fit", "iter1"): reverts}, {("fit", "iter1"): reverts}, {})):
            runs["trimmed"] = make("trimmed", script, seed=seed)
        with pytest.MonkeyPatch.context() as also:
            also.setattr(rundir, "prune", lambda *_: None)
            runs["unpruned"] = make("unpruned", {})
        yield runs


@pytest.fixture
def copy(made: dict[str, Path], tmp_path: Path) -> Any:
    """A copy of a run, to be damaged, by its name."""

    def copy_of(name: str) -> Path:
        target = tmp_path / "runs" / made[name].name
        shutil.copytree(made[name], target, symlinks=True)
        return target

    return copy_of
