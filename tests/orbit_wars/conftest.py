"""Shared by the tests of this room: the official engine and real replays."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


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
