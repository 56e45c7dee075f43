"""Valid mc_rows and branch_data files of a made-up game, for any number of features.

Every seat of a game has a hidden strength; features are noisy views of it that get clearer with time, outcomes are
drawn from it. So there is something to learn, and a limit to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.npz import save_npz
from td_loop.value.evaluate import evaluate
from td_loop.value.model import FORMAT_VERSION, SplineValue

GAME = "toy"
GAMMA = 0.97
REPLAY_SET_HASH = "5" * 64
Arrays = dict[str, np.ndarray]


def feature_names(n_features: int) -> tuple[str, ...]:
    """`feature_0`, `feature_1`, ..."""
    return tuple(f"feature_{f}" for f in range(n_features))


def value_function(n_features: int = 3, n_knots: int = 5, *, seed: int = 0, scale: float = 0.3) -> SplineValue:
    """A value function with random curves over knots that cover the synthetic features."""
    rng = np.random.default_rng(seed)
    knots = np.sort(rng.normal(size=(n_features, n_knots)), axis=1) + 1e-3 * np.arange(n_knots)
    coef = scale * rng.normal(size=(2, n_features, n_knots))
    meta = {
        "format_version": FORMAT_VERSION,
        "game": GAME,
        "gamma": GAMMA,
        "created_by": {"synthetic": seed},
        "parent_sha256": None,
    }
    return SplineValue(knots, coef, feature_names(n_features), meta)


@dataclass(frozen=True)
class Games:
    """States of made-up games: `G` games of `T` sampled turns, so R = G * T rows."""

    features: np.ndarray  # f32[R, 4, F]
    n_players: np.ndarray  # i8[R]
    alive: np.ndarray  # bool[R, 4]
    outcome: np.ndarray  # f32[R, 4]
    frame_id: np.ndarray  # i64[R]
    game: np.ndarray  # i32[R]
    turn: np.ndarray  # i16[R]
    is_validation: np.ndarray  # bool[R]


def games(
    n_features: int = 3,
    n_games: int = 40,
    n_turns: int = 12,
    *,
    seed: int = 0,
    players: tuple[int, ...] = (2, 4),
    winner: int | None = None,
) -> Games:
    """Draw games; every fifth of each player count is for validation. `winner` wins them all, where given."""
    rng = np.random.default_rng(seed)
    count = np.array([players[g % len(players)] for g in range(n_games)])
    held_out = np.array([(g // len(players)) % 5 == 4 for g in range(n_games)])
    exists = np.arange(4) < count[:, None]
    strength = rng.normal(size=(n_games, 4))
    chance = np.where(exists, np.exp(2.0 * strength), 0.0)
    chance /= chance.sum(1, keepdims=True)
    won = np.array([rng.choice(4, p=p) for p in chance]) if winner is None else np.full(n_games, winner)
    game = np.repeat(np.arange(n_games), n_turns)
    turn = np.tile(4 * np.arange(n_turns), n_games)
    clarity = (turn / (4 * n_turns))[:, None, None]
    view = np.linspace(1.0, -0.5, n_features)
    x = clarity * strength[game][:, :, None] * view + rng.normal(scale=0.5, size=(len(game), 4, n_features))
    alive = exists[game] & ((rng.random((len(game), 4)) > 0.1) | (np.arange(4) == won[game][:, None]))
    outcome = np.zeros((len(game), 4), np.float32)
    outcome[np.arange(len(game)), won[game]] = 1.0
    return Games(
        features=np.where(exists[game][:, :, None], x, 0.0).astype(np.float32),
        n_players=count[game].astype(np.int8),
        alive=alive,
        outcome=outcome,
        frame_id=(game.astype(np.int64) + 1) << 11 | turn,
        game=game.astype(np.int32),
        turn=turn.astype(np.int16),
        is_validation=held_out[game],
    )


def mc_rows(g: Games) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and meta of an mc_rows file."""
    meta = {
        "kind": "mc_rows",
        "format_version": 1,
        "game": GAME,
        "gamma": GAMMA,
        "feature_names": list(feature_names(g.features.shape[2])),
        "replay_set_hash": REPLAY_SET_HASH,
        "stride": 4,
        "val_frac": 0.2,
        "n_games": len(np.unique(g.game)),
        "n_val_games": len(np.unique(g.game[g.is_validation])),
    }
    return dict(vars(g)), meta


def branch_data(
    g: Games, v_snap: SplineValue, *, n: int = 400, k: float = 0.3, p: float = 0.5, seed: int = 1
) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and meta of a branch_data file: rows of training games, targets from `v_snap` at moved features."""
    rng = np.random.default_rng(seed)
    candidates = np.flatnonzero(~g.is_validation)
    agent = rng.random(n) < k
    arrays: Arrays = {}
    for b, size in (("r", int((~agent).sum())), ("a", int(agent.sum()))):
        rows = rng.choice(candidates, size)
        alive, n_players = g.alive[rows], g.n_players[rows]
        later = g.features[rows] + rng.normal(scale=0.05, size=g.features[rows].shape).astype(np.float32)
        has_mc = rng.random(size) < p
        arrays |= {
            f"branch_{b}_frame_id": g.frame_id[rows],
            f"branch_{b}_focal_seat": alive.argmax(axis=1).astype(np.int8),
            f"branch_{b}_n_players": n_players,
            f"branch_{b}_features": g.features[rows],
            f"branch_{b}_target": evaluate(v_snap, later, n_players, alive).astype(np.float32),
            f"alive_at_s_for_rows_{b}": alive,
            f"branch_{b}_is_partial": rng.random(size) < 0.5,
            f"branch_{b}_has_mc": has_mc,
            f"branch_{b}_mc_target": np.where(has_mc[:, None], g.outcome[rows], 0).astype(np.float32),
        }
    arrays["branch_a_engine_fallback"] = np.zeros(int(agent.sum()), np.bool_)
    meta = {
        "kind": "branch_data",
        "format_version": 1,
        "n": n,
        "k": k,
        "seed": seed,
        "iter_index": 0,
        "v_snap_sha256": "",
        "game": GAME,
        "gamma": GAMMA,
        "feature_names": list(v_snap.feature_names),
        "replay_set_hash": REPLAY_SET_HASH,
        "budget": {"seconds": None, "evals": 16},
        "wall_s": 0.0,
        "partial_input_p": 0.5,
        "mc_target_p": p,
        "workers": [],
        "engine_fallback_rate": 0.0,
        "n_r": int((~agent).sum()),
        "n_a": int(agent.sum()),
    }
    return arrays, meta


def write_mc_rows(path: Path, g: Games) -> Path:
    """Write `mc_rows(g)` to `path` and return it."""
    save_npz(path, *mc_rows(g))
    return path


def write_branch_data(path: Path, g: Games, v_snap: SplineValue, **options: Any) -> Path:
    """Write `branch_data(g, v_snap, **options)` to `path` and return it."""
    save_npz(path, *branch_data(g, v_snap, **options))
    return path
