"""The bundled replay set: games as seeds and actions in one npz, simulated again through our engine when first used.

`D` is the number of games, `S` the sum of their turns (a turn is one action of every seat), `L` all launches.

    seed           i64[D]
    n_players      u8[D]
    n_turns        u16[D]      actions played: the game has n_turns + 1 frames
    launch_count   u8[S, 4]    launches of each seat in each turn (u16 where a seat made more than 255)
    planet         u8[L]       source planet index
    angle          f64[L]      radians, exact; f32[L] where every angle of the set is exactly a float32
    ships          i32[L]
    meta           {"kind": "orbit_wars_selfplay", "format_version": 1, "episode_steps": N, "about": {...}}

Angles are most of the file: an agent that rounds its angles to float32 before it plays them halves the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from td_loop import files
from td_loop.games.base import MAX_SEATS
from td_loop.games.orbit_wars.state import EPISODE_STEPS, Action

KIND = "orbit_wars_selfplay"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class BundledGame:
    """One game as its seed and what every seat did.

    Attributes:
        seed: the episode seed.
        n_players: P.
        actions: per turn, per seat: launches f64[L, 3] (planet index, angle, ships) that were legal when they were
            made, in the order they took effect; None or an empty array for no launch.
    """

    seed: int
    n_players: int
    actions: Sequence[Sequence[Action | None]]


def write_bundle(
    path: Path, games: Iterable[BundledGame], *, episode_steps: int = EPISODE_STEPS, about: Mapping[str, Any] | None = None
) -> None:
    """Write `games` to `path`, atomically and with the same bytes for the same games.

    Args:
        path: the npz to write.
        games: played under the default ship and comet speeds.
        episode_steps: `episodeSteps` of all games.
        about: what to remember about how they were made (JSON object: script, agents, seed).
    """
    seeds, players, turns, counts, launches = [], [], [], [], []
    for game in games:
        seeds.append(game.seed)
        players.append(game.n_players)
        turns.append(len(game.actions))
        count = np.zeros((len(game.actions), MAX_SEATS), np.uint16)
        for turn, seats in enumerate(game.actions):
            for seat, action in enumerate(seats):
                if action is not None and len(action):
                    count[turn, seat] = len(action)
                    launches.append(np.asarray(action, np.float64).reshape(-1, 3))
        counts.append(count)
    launch = np.concatenate(launches) if launches else np.zeros((0, 3))
    count = np.concatenate(counts) if counts else np.zeros((0, MAX_SEATS), np.uint16)
    angle = launch[:, 1].copy()
    short = angle.astype(np.float32)
    arrays = {
        "seed": np.array(seeds, np.int64),
        "n_players": np.array(players, np.uint8),
        "n_turns": np.array(turns, np.uint16),
        "launch_count": count if count.max(initial=0) > np.iinfo(np.uint8).max else count.astype(np.uint8),
        "planet": launch[:, 0].astype(np.uint8),
        "angle": short if np.array_equal(short.astype(np.float64), angle) else angle,
        "ships": launch[:, 2].astype(np.int32),
    }
    meta = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "game": "orbit_wars",
        "n_games": len(seeds),
        "episode_steps": episode_steps,
        "about": dict(about or {}),
    }
    files.save_npz(path, arrays, meta, compress=True)
