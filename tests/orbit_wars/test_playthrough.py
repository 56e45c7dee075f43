"""Whole games in one call equal the same games turn by turn."""

from __future__ import annotations

import numpy as np
import pytest

from td_loop.games.orbit_wars import engine, playthrough
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.state import DONE, N_FLEETS, N_PLANETS, Position, copy_state


def random_game(seed: int, n_players: int, turns: int) -> tuple[Position, np.ndarray, np.ndarray, list[Position]]:
    """A first position, launches and offsets of a random game, and its positions."""
    rng = np.random.default_rng(seed)
    pos = new_game(seed, n_players)
    positions, rows, offsets = [pos], [], [0]
    for _ in range(turns):
        s = pos.state
        actions = []
        for seat in range(n_players):
            mine = np.flatnonzero(s.p_owner[: s.head[N_PLANETS]] == seat)
            own = [[p, rng.uniform(-3, 3), rng.integers(1, 9)] for p in mine if rng.random() < 0.4]
            actions.append(np.array(own, float).reshape(-1, 3))
        joined = engine.join_actions(actions)
        rows.append(joined)
        offsets.append(offsets[-1] + len(joined))
        pos = engine.step(pos, actions)
        positions.append(pos)
    return positions[0], np.concatenate(rows), np.array(offsets), positions


def assert_same(a: Position, b: Position) -> None:
    n, f = int(a.state.head[N_PLANETS]), int(a.state.head[N_FLEETS])
    assert a.state.head.tolist() == b.state.head.tolist()
    assert a.state.comet_at.tolist() == b.state.comet_at.tolist()
    for k, x in a.state._asdict().items():
        if k[:2] in ("p_", "f_"):
            size = f if k[0] == "f" else n
            assert x[:size].tolist() == getattr(b.state, k)[:size].tolist(), k


@pytest.mark.parametrize("n_players", [2, 4])
def test_every_recorded_frame_is_the_one_played_turn_by_turn(n_players: int) -> None:
    first, rows, offsets, positions = random_game(4, n_players, 120)
    before = copy_state(first.state)
    frames = playthrough.record(first, rows, offsets)
    last, n = playthrough.play_moves(first, rows, offsets)
    assert n == len(frames.head) == len(positions)
    for t, pos in enumerate(positions):
        assert_same(pos, Position(pos.board, frames.state(t)))
    assert_same(positions[-1], Position(first.board, last))
    assert all((a == b).all() for a, b in zip(before, first.state, strict=True)), "the first position was changed"


def test_a_recorded_frame_can_be_played_on_without_touching_the_frames() -> None:
    first, rows, offsets, positions = random_game(5, 2, 60)
    frames = playthrough.record(first, rows, offsets)
    head = frames.head.copy()
    launches = rows[offsets[30] : offsets[31]]
    actions = [launches[launches[:, 0] == seat, 1:] for seat in range(2)]
    assert_same(positions[31], engine.step(Position(first.board, frames.state(30)), actions))
    assert (frames.head == head).all()


def test_play_stops_where_the_game_is_over() -> None:
    first = new_game(1, 2, episode_steps=20)
    offsets = np.zeros(100, np.int64)
    last, n = playthrough.play_moves(first, np.empty((0, 4)), offsets)
    assert n == 20
    assert last.head[DONE]
    assert len(playthrough.record(first, np.empty((0, 4)), offsets).head) == 20


@pytest.mark.parametrize("offsets", [[], [0, 2], [1, 0], [-1, 0]])
def test_offsets_that_make_no_sense_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets"):
        playthrough.play_moves(new_game(1, 2), np.zeros((1, 4)), np.array(offsets, np.int64))
