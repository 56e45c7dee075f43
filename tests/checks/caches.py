"""Valid branch_data arrays to break."""

from __future__ import annotations

from typing import Any

import numpy as np


def make_cache(seed: int, n_r: int, n_a: int, *, features: int = 3) -> dict[str, Any]:
    """Arrays as prepare writes them: 2 to 4 seats, some dead, targets that sum to 1 over the seats alive."""
    rng = np.random.default_rng(seed)
    cache: dict[str, Any] = {}
    for b, n in (("r", n_r), ("a", n_a)):
        players = rng.integers(2, 5, n)
        focal = rng.integers(0, players) if n else np.zeros(0, np.int64)
        alive = (rng.random((n, 4)) < 0.7) & (np.arange(4) < players[:, None])
        alive[np.arange(n), focal] = True
        weight = rng.gamma(1.0, size=(n, 4)) * alive
        cache[f"branch_{b}_frame_id"] = rng.permutation(10 * n)[:n].astype(np.int64) << 11
        cache[f"branch_{b}_focal_seat"] = focal.astype(np.int8)
        cache[f"branch_{b}_n_players"] = players.astype(np.int8)
        cache[f"branch_{b}_features"] = rng.normal(size=(n, 4, features)).astype(np.float32)
        cache[f"branch_{b}_target"] = (weight / weight.sum(axis=1, keepdims=True)).astype(np.float32)
        cache[f"alive_at_s_for_rows_{b}"] = alive
        cache[f"branch_{b}_is_partial"] = rng.random(n) < 0.5
        cache[f"branch_{b}_has_mc"] = rng.random(n) < 0.5
        cache[f"branch_{b}_mc_target"] = cache[f"branch_{b}_target"].copy()
    cache["branch_a_engine_fallback"] = np.zeros(n_a, np.bool_)
    return cache
