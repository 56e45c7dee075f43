"""Recorded games: import, store, verify, and the bundled set."""

from __future__ import annotations

from td_loop.games.orbit_wars.replays.bundled import BundledGame, expand_bundle, write_bundle
from td_loop.games.orbit_wars.replays.opening import open_replays
from td_loop.games.orbit_wars.replays.store import ReplayStore

__all__ = ["BundledGame", "ReplayStore", "expand_bundle", "open_replays", "write_bundle"]
