"""Positions of recorded ladder games."""

from __future__ import annotations

from pathlib import Path

import pytest

from td_loop.games.orbit_wars.replays import open_replays
from td_loop.games.orbit_wars.state import Position

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def real_replays_store(tmp_path_factory: pytest.TempPathFactory) -> list[Position]:
    """A few dozen frames of recorded games, 2 and 4 seats."""
    folder = ROOT.parent / "shared" / "replays"
    files = [folder / name for name in ("2p_000.json.gz", "2p_028.json.gz", "4p_016.json.gz")]
    if not all(f.exists() for f in files):
        pytest.skip("no recorded games beside the checkout (../shared/replays)")
    chosen = tmp_path_factory.mktemp("episodes")
    for f in files:
        (chosen / f.name).symlink_to(f)
    store = open_replays(chosen, tmp_path_factory.mktemp("cache"))
    return [store.state(g, t) for g, info in enumerate(store.games) for t in range(0, info.n_frames - 1, 9)]
