"""Shared by the tests of this room: the official engine, real replays, and the harness of `benchmarks/parity.py`."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(Path(__file__).parent)]


@pytest.fixture(scope="session")
def official() -> ModuleType:
    """The official game module."""
    reason = "the official engine (kaggle-environments, see README) is not installed"
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # its imports warn about things that are not ours
        pytest.importorskip("kaggle_environments", reason=reason)
        return pytest.importorskip("kaggle_environments.envs.orbit_wars.orbit_wars", reason=reason)


@pytest.fixture(scope="session")
def real_replays() -> list[Path]:
    """Recorded ladder games, in order of name."""
    files = sorted((ROOT.parent / "shared" / "replays").glob("*.json.gz"))
    if not files:
        pytest.skip("no recorded games beside the checkout (../shared/replays)")
    return files
