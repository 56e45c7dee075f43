"""rows: what is drawn, and how often."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import ReplayError
from td_loop.prepare.rows import Rows, Spans, frame_ids, sample_rows, training_spans
from tests.toy_game import GAME, ToyReplays

NONE_HELD = np.zeros(40, bool)


@pytest.fixture(scope="module")
def spans(replays: ToyReplays) -> Spans:
    return training_spans(GAME, replays, NONE_HELD)


def pairs(rows: Rows) -> list[tuple[int, int, int]]:
    return list(zip(rows.game.tolist(), rows.turn.tolist(), rows.seat.tolist(), strict=True))


def test_the_pairs_are_the_seats_alive_at_every_frame_but_the_last(replays: ToyReplays, spans: Spans) -> None:
    by_hand = {
        (g, turn, seat)
        for g, info in enumerate(replays.games)
        for turn in range(info.n_frames - 1)
        for seat in range(info.n_players)
        if GAME.alive(replays.state(g, turn))[seat]
    }
    assert set(pairs(sample_rows(spans, spans.size, 0.5, 1))) == by_hand
    assert spans.size == len(by_hand)


def test_some_seats_of_the_toy_replays_are_out_before_the_end(replays: ToyReplays, spans: Spans) -> None:
    # Otherwise the test above would not look at the bisection at all.
    assert (spans.turns < [replays.games[g].n_frames - 1 for g in spans.game]).any()


@pytest.mark.parametrize("n_frames", [0, 1])
def test_a_game_without_two_frames_gives_no_rows(replays: ToyReplays, n_frames: int) -> None:
    """Its seats crashed on their first move, say."""
    other = ToyReplays(replays.path)
    other.games[0] = dataclasses.replace(other.games[0], n_frames=n_frames)
    spans = training_spans(GAME, other, NONE_HELD)
    assert set(spans.game.tolist()) == {*range(1, 40)}
    assert (spans.turns > 0).all()


def test_held_out_games_give_no_rows(replays: ToyReplays) -> None:
    held = np.arange(40) % 3 == 0
    spans = training_spans(GAME, replays, held)
    assert not held[spans.game].any()
    assert len(set(spans.game.tolist())) == (~held).sum()


@given(st.integers(1, 5000), st.floats(0, 1), st.integers(0, 2**40))
def test_no_pair_is_drawn_more_than_once_more_than_another(n: int, k: float, seed: int) -> None:
    spans = Spans(np.arange(3, dtype=np.int32), np.zeros(3, np.int8), np.array([300, 1, 99]))
    counts = np.unique(pairs(sample_rows(spans, n, k, seed)), axis=0, return_counts=True)[1]
    assert counts.sum() == n
    assert counts.max() - (counts.min() if len(counts) == spans.size else 0) <= 1


@given(st.integers(0, 2**40))
def test_every_k_draws_the_same_pairs_and_its_own_coins(seed: int) -> None:
    spans = Spans(np.arange(2, dtype=np.int32), np.zeros(2, np.int8), np.array([300, 200]))
    none, some, all_ = (sample_rows(spans, 200, k, seed) for k in (0.0, 0.3, 1.0))
    assert pairs(none) == pairs(some) == pairs(all_)
    assert not none.agent.any()
    assert all_.agent.all()
    assert 20 < some.agent.sum() < 110  # 60 expected, 6.5 a standard deviation


def test_another_seed_draws_other_rows(spans: Spans) -> None:
    assert pairs(sample_rows(spans, 50, 0.3, 1)) != pairs(sample_rows(spans, 50, 0.3, 2))


def test_the_order_of_the_games_in_the_set_does_not_matter(replays: ToyReplays, tmp_path: Path) -> None:
    path = tmp_path / "reversed.json"
    path.write_text(json.dumps(replays.seeds[::-1]))
    other = GAME.open_replays(path, tmp_path)
    assert other.content_hash == replays.content_hash
    ids = []
    for r in (replays, other):
        rows = sample_rows(training_spans(GAME, r, NONE_HELD), 300, 0.3, 7)
        ids.append((frame_ids(r.games, rows.game, rows.turn).tolist(), rows.seat.tolist(), rows.agent.tolist()))
    assert ids[0] == ids[1]


def test_frame_ids_are_those_of_the_games(replays: ToyReplays, spans: Spans) -> None:
    rows = sample_rows(spans, 50, 0.3, 7)
    ids = frame_ids(replays.games, rows.game, rows.turn)
    assert ids.dtype == np.int64
    expected = [replays.games[g].frame_id(t) for g, t in zip(rows.game.tolist(), rows.turn.tolist(), strict=True)]
    assert ids.tolist() == expected


def test_a_set_that_leaves_nothing_to_learn_from_says_so(replays: ToyReplays) -> None:
    with pytest.raises(ReplayError, match=r"none of its 40 games leaves a frame.*add games"):
        training_spans(GAME, replays, np.ones(40, bool))
