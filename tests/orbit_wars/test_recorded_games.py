"""Recorded ladder games, re-simulated from seed and actions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.games.orbit_wars import engine, observe, playthrough
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.replays.frames import move_rows
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.state import Position

EVERY = 12  # all of them are verified by `td-loop replays verify`; this is a sample


def _numbers(o: Any) -> Any:
    """Ids and ships are recorded as floats where an agent gave floats."""
    return json.loads(json.dumps(o), parse_int=float)


def test_recorded_games_are_reproduced_exactly(real_replays: list[Path]) -> None:
    chosen = [*real_replays[::EVERY], next(p for p in real_replays if p.name.startswith("4p"))]
    for path in chosen:
        data = gzip.decompress(path.read_bytes())
        replay = json.loads(data)
        steps = replay["steps"]
        pos = new_game(replay["info"]["seed"], len(steps[0]))
        recorded = parse_episode(data, path.name).frames
        moves, ends = move_rows(recorded.launch, recorded.launch_end)
        frames = playthrough.record(pos, moves, np.array([0, *ends[:-1]]))
        assert len(frames.head) == len(steps), path.name
        for t, step in enumerate(steps):
            shown = step[0]["observation"]
            ours = observe.observation(Position(pos.board, frames.state(t)), 0)
            for key in ours.keys() - {"remainingOverageTime"}:
                assert _numbers(ours[key]) == _numbers(shown[key]), f"{path.name}, turn {t}, {key}"
        assert engine.rewards(Position(pos.board, frames.state(len(steps) - 1))) == replay["rewards"], path.name
