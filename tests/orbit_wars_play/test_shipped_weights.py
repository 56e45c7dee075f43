"""The bootstrap that comes with the project: it belongs to today's features, and has learned something."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from td_loop.games.base import MAX_SEATS
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.replays import open_replays
from td_loop.kernels import cache_dir
from td_loop.prepare.split import validation_games
from td_loop.value.evaluate import evaluate
from td_loop.value.io import load_weights

WEIGHTS = Path(__file__).parents[2] / "models" / "value_spline_v2.npz"


def test_it_predicts_winners_of_held_out_games_better_than_their_shares_do() -> None:
    v = load_weights(WEIGHTS, feature_names=GAME.feature_names)
    replays = open_replays(None, cache_dir())
    held_out = np.flatnonzero(validation_games(replays.games, replays.content_hash))
    nll, uniform = [], []
    for game in held_out:
        info = replays.games[game]
        assert info.outcome is not None
        for turn in range(20, info.n_frames - 1, 20):
            state = replays.state(int(game), turn)
            alive = GAME.alive(state)
            x = GAME.features(state, v.gamma)
            p = evaluate(v, x[None], np.array([info.n_players], np.int8), alive[None])[0]
            assert p.shape == (MAX_SEATS,)
            won = info.outcome > 0
            nll.append(-(info.outcome[won] * np.log(p[won])).sum())
            uniform.append(np.log(alive.sum()))
    assert np.mean(nll) < 0.6 * np.mean(uniform)
