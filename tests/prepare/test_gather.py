"""gather: the outcome rows, and when a file of them is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from td_loop.errors import CacheError, ReplayError
from td_loop.games.base import ReplaySet
from td_loop.npz import load_npz
from td_loop.prepare.gather import STRIDE, ensure_mc_rows, gather
from td_loop.prepare.rows import training_spans
from td_loop.prepare.split import validation_games
from tests.toy_game import GAME, Toy, ToyReplays


def some(path: Path, seeds: list[int]) -> ToyReplays:
    path.write_text(json.dumps(seeds))
    return ToyReplays(path)


def test_rows_are_every_fourth_frame_but_the_last_of_games_with_an_outcome(replays: ToyReplays) -> None:
    arrays, counts = gather(GAME, replays, 0.9)
    expected = [
        (g, turn)
        for g, info in enumerate(replays.games)
        if info.outcome is not None
        for turn in range(info.n_frames - 1)
        if turn % STRIDE == 0
    ]
    assert list(zip(arrays["game"].tolist(), arrays["turn"].tolist(), strict=True)) == expected
    assert counts["n_games"] == 40
    for i, (g, turn) in enumerate(expected):
        info, state = replays.games[g], replays.state(g, turn)
        np.testing.assert_array_equal(arrays["features"][i], GAME.features(state, 0.9))
        np.testing.assert_array_equal(arrays["alive"][i], GAME.alive(state))
        np.testing.assert_allclose(arrays["outcome"][i], info.outcome, atol=1e-7)
        assert arrays["frame_id"][i] == info.frame_id(turn)
        assert arrays["n_players"][i] == info.n_players


def test_arrays_have_the_types_of_the_contract(replays: ToyReplays) -> None:
    arrays, _ = gather(GAME, replays, 0.9)
    assert {name: a.dtype.name for name, a in arrays.items()} == {
        "features": "float32",
        "n_players": "int8",
        "alive": "bool",
        "outcome": "float32",
        "frame_id": "int64",
        "game": "int32",
        "turn": "int16",
        "is_validation": "bool",
    }


def test_no_game_is_in_both_validation_and_training_rows(replays: ToyReplays) -> None:
    arrays, counts = gather(GAME, replays, 0.9)
    held = validation_games(replays.games, replays.content_hash)
    validating = set(arrays["game"][arrays["is_validation"]].tolist())
    assert len(validating) == counts["n_val_games"] > 0
    assert not validating & set(arrays["game"][~arrays["is_validation"]].tolist())
    assert not validating & set(training_spans(GAME, replays, held).game.tolist())  # I7
    assert {replays.games[g].n_players for g in validating} == {2, 3, 4}


def test_a_file_of_the_same_provenance_is_kept(replays: ToyReplays, tmp_path: Path) -> None:
    path = tmp_path / "mc_rows.npz"
    first = ensure_mc_rows(path, GAME, replays, 0.9)
    inode = path.stat().st_ino
    again = ensure_mc_rows(path, GAME, replays, 0.9)
    assert (first.written, again.written) == (True, False)
    assert path.stat().st_ino == inode
    assert (again.rows, again.games, again.validation_games) == (first.rows, first.games, first.validation_games)


class OtherFeatures(Toy):
    feature_names = (*Toy.feature_names[:-1], "danger")


def test_a_file_of_other_provenance_is_refused_and_left_alone(replays: ToyReplays, tmp_path: Path) -> None:
    path = tmp_path / "mc_rows.npz"
    ensure_mc_rows(path, GAME, replays, 0.9)
    before = path.read_bytes()
    fewer = some(tmp_path / "fewer.json", replays.seeds[:20])
    cases: list[tuple[Toy, ReplaySet, float, str]] = [  # type: ignore[type-arg]
        (GAME, replays, 0.8, "gamma 0.9, now it is 0.8"),
        (GAME, fewer, 0.9, "other replays"),
        (OtherFeatures(), fewer, 0.9, "other features, other replays"),
    ]
    for game, games, gamma, what in cases:
        with pytest.raises(CacheError, match=rf"mc_rows\.npz: made with {what}; .*another --tag"):
            ensure_mc_rows(path, game, games, gamma)
        assert path.read_bytes() == before
        # Elsewhere they are welcome, under what they were made with.
        elsewhere = tmp_path / f"{what}.npz"
        assert ensure_mc_rows(elsewhere, game, games, gamma).written
        _, meta = load_npz(elsewhere)
        assert meta["gamma"] == gamma
        assert meta["replay_set_hash"] == games.content_hash
        assert tuple(meta["feature_names"]) == game.feature_names


def test_equal_provenance_gives_equal_bytes(replays: ToyReplays, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        ensure_mc_rows(tmp_path / name, GAME, replays, 0.9)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_file_that_was_cut_short_is_made_again(replays: ToyReplays, tmp_path: Path) -> None:
    path = tmp_path / "mc_rows.npz"
    ensure_mc_rows(path, GAME, replays, 0.9)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert ensure_mc_rows(path, GAME, replays, 0.9).written
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"my notes\n", None, b""], ids=["text", "weights", "empty"])
def test_a_file_of_another_kind_is_refused_and_left_alone(
    replays: ToyReplays, tmp_path: Path, weights: Path, content: bytes | None
) -> None:
    path = tmp_path / "mc_rows.npz"
    path.write_bytes(weights.read_bytes() if content is None else content)
    before = path.read_bytes()
    with pytest.raises(CacheError, match=r"mc_rows\.npz"):
        ensure_mc_rows(path, GAME, replays, 0.9)
    assert path.read_bytes() == before


def test_a_folder_in_its_place_is_refused(replays: ToyReplays, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="is a folder"):
        ensure_mc_rows(tmp_path, GAME, replays, 0.9)


def test_games_without_outcomes_are_refused_with_the_remedy(tmp_path: Path) -> None:
    games = some(tmp_path / "unknown.json", [5, 12, 19])
    with pytest.raises(ReplayError, match=r"none of its 3 games has a known outcome; import"):
        ensure_mc_rows(tmp_path / "mc_rows.npz", GAME, games, 0.9)
    assert not (tmp_path / "mc_rows.npz").exists()
