from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from td_loop.loop.config import RunConfig
from tests.loop.fakes import write_bootstrap


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test pulls the plug; waiting for the disk would take most of their time."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def bootstrap(tmp_path: Path) -> Path:
    return write_bootstrap(tmp_path / "bootstrap.npz")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run directory that `config` leads to."""
    return tmp_path / "runs" / "td_loop_t"


@pytest.fixture
def config(tmp_path: Path, bootstrap: Path) -> Callable[..., RunConfig]:
    """A small run's config; flags by name."""

    def make(**flags: Any) -> RunConfig:
        small = {"tag": "t", "iters": 2, "n": 20, "k": 0.3, "workers": 2, "seg_uniform_tau": 1.0}
        return RunConfig.from_flags({**small, "runs_dir": tmp_path / "runs", "bootstrap": bootstrap, **flags})

    return make


@pytest.fixture
def gated(config: Callable[..., RunConfig]) -> Callable[..., RunConfig]:
    """A run's config with a gate of 10 rounds."""
    return lambda **flags: config(**{"iters": 1, "gate": "sprt", "gate_rounds": 10, "budget_evals": 50, **flags})
