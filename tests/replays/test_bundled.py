"""bundled: seeds and launches in one small file, frames again when it is first used."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop import npz
from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.replays.bundled import BUNDLED, BundledGame, expand_bundle, write_bundle
from td_loop.games.orbit_wars.replays.opening import open_replays
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.record import GameRecord
from td_loop.games.orbit_wars.replays.store import ReplayStore


def as_bundled(record: GameRecord) -> BundledGame:
    ends = record.frames.launch_end.ravel().tolist()
    starts = [0, *ends[:-1]]
    rows = [record.frames.launch[a:b] for a, b in zip(starts, ends, strict=True)]
    turns = [rows[4 * t : 4 * t + record.n_players] for t in range(record.n_frames - 1)]
    assert record.seed is not None
    return BundledGame(record.seed, record.n_players, turns)


@pytest.fixture(scope="session")
def games_60(game_2p: bytes, crashed_game: bytes) -> list[GameRecord]:
    return [parse_episode(game_2p, "a"), parse_episode(crashed_game, "b")]


@pytest.fixture(scope="session")
def bundle(games_60: list[GameRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "selfplay.npz"
    write_bundle(path, map(as_bundled, games_60), episode_steps=60, about={"script": "test"})
    return path


def test_official_games_come_back_frame_by_frame(bundle: Path, games_60: list[GameRecord], tmp_path: Path) -> None:
    """The content id covers every number of every frame, so equal ids mean equal games."""
    expand_bundle(bundle, tmp_path / "s")
    store = ReplayStore(tmp_path / "s")
    assert [g.content_id for g in store.games] == [r.content_id for r in games_60]
    assert [g.name for g in store.games] == ["seed 7", "seed 7"]
    np.testing.assert_array_equal(store.games[0].outcome, games_60[0].outcome_or_why[0])  # type: ignore[arg-type]
    for name, array in games_60[0].frames._asdict().items():
        np.testing.assert_array_equal(getattr(store.record(0).frames, name), array, err_msg=name)


def test_four_seats(game_4p: bytes, tmp_path: Path) -> None:
    record = parse_episode(game_4p, "g")
    write_bundle(tmp_path / "b.npz", [as_bundled(record)], episode_steps=40)
    expand_bundle(tmp_path / "b.npz", tmp_path / "s")
    assert ReplayStore(tmp_path / "s").games[0].content_id == record.content_id


def test_a_game_may_stop_before_its_end_and_may_have_no_launch_at_all(tmp_path: Path) -> None:
    idle = BundledGame(5, 2, [[None, None]] * 7)
    empty = BundledGame(6, 4, [[np.zeros((0, 3))] * 4] * 2)
    write_bundle(tmp_path / "b.npz", [idle, empty])
    expand_bundle(tmp_path / "b.npz", tmp_path / "s")
    store = ReplayStore(tmp_path / "s")
    assert [(g.n_frames, g.outcome, g.n_players) for g in store.games] == [(8, None, 2), (3, None, 4)]
    np.testing.assert_array_equal(store.state(1, 0).state.p_x, new_game(6, 4).state.p_x)


def test_the_same_games_give_the_same_bytes(bundle: Path, games_60: list[GameRecord], tmp_path: Path) -> None:
    again = tmp_path / "again.npz"
    write_bundle(again, map(as_bundled, games_60), episode_steps=60, about={"script": "test"})
    assert again.read_bytes() == bundle.read_bytes()


@pytest.mark.parametrize("rounded", [True, False])
def test_angles_are_exact_and_short_where_they_can_be(rounded: bool, tmp_path: Path) -> None:
    home = int(np.flatnonzero(new_game(5, 2).state.p_owner == 0)[0])
    angle = float(np.float32(1.1)) if rounded else 1.1
    write_bundle(tmp_path / "b.npz", [BundledGame(5, 2, [[np.array([[home, angle, 4.0]]), None]])])
    arrays, _ = npz.load_npz(tmp_path / "b.npz")
    assert arrays["angle"].dtype == (np.float32 if rounded else np.float64)
    expand_bundle(tmp_path / "b.npz", tmp_path / "s")
    assert ReplayStore(tmp_path / "s").action(0, 0, 0).tolist() == [[home, angle, 4.0]]


def test_the_set_in_the_package_is_what_a_first_run_needs(tmp_path: Path) -> None:
    assert BUNDLED.stat().st_size <= 5 * 2**20
    games = open_replays(None, tmp_path).games
    shutil.rmtree(tmp_path)  # a hundred megabytes that pytest would keep
    assert len(games) >= 200
    assert {g.n_players for g in games} == {2, 4}
    assert len({g.content_id for g in games}) == len(games)
    for n_players in (2, 4):
        # Every game was played to its end, and no seat wins so often or so rarely that V could learn the seat.
        outcomes = np.array([g.outcome for g in games if g.n_players == n_players], np.float64)
        share = outcomes.mean(axis=0)[:n_players]
        assert (share > 0.5 / n_players).all()
        assert (share < 1.5 / n_players).all()


def _without(name: str) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda arrays, meta: arrays.pop(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("angle"), "has no array 'angle'"),
        (lambda arrays, meta: arrays.update(ships=arrays["ships"][:-1]), "ships has shape"),
        (lambda arrays, meta: meta.update(kind="branch_data"), "kind 'branch_data'"),
        (lambda arrays, meta: meta.update(format_version=2), "version 2"),
        (lambda arrays, meta: arrays["seed"].__setitem__(0, 8), "launches legal; it was made under other rules"),
        (lambda arrays, meta: meta.update(episode_steps=50), "ends after 49 of 59 turns"),
    ],
)
def test_a_bundle_that_is_not_right_is_refused(
    change: Callable[[dict[str, Any], dict[str, Any]], object], message: str, bundle: Path, tmp_path: Path
) -> None:
    arrays, meta = npz.load_npz(bundle)
    change(arrays, meta)
    npz.save_npz(tmp_path / "b.npz", arrays, meta)
    with pytest.raises(ReplayError, match=message):
        expand_bundle(tmp_path / "b.npz", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_an_empty_bundle_and_a_damaged_one_are_refused(bundle: Path, tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.npz", [])
    with pytest.raises(ReplayError, match="holds no game"):
        expand_bundle(tmp_path / "b.npz", tmp_path / "s")
    (tmp_path / "b.npz").write_bytes(bundle.read_bytes()[:500])
    with pytest.raises(ReplayError, match="damaged"):
        expand_bundle(tmp_path / "b.npz", tmp_path / "s")


def _open(arguments: tuple[Path, Path]) -> str:
    bundle, cache = arguments
    from td_loop.games.orbit_wars.replays import opening

    vars(opening)["BUNDLED"] = bundle
    return open_replays(None, cache).content_hash


def test_two_processes_expanding_at_once_both_end_well(
    game_2p: bytes, game_won_by_1: bytes, tmp_path: Path
) -> None:
    games = [parse_episode(game_2p, "a"), parse_episode(game_won_by_1, "b")]
    bundle = tmp_path / "b.npz"
    for game in games[1:]:
        assert game.n_frames == 40
    games[0] = _cut(games[0])
    write_bundle(bundle, map(as_bundled, games), episode_steps=40)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        hashes = pool.map(_open, [(bundle, tmp_path / "cache")] * 2, chunksize=1)
    assert len(set(hashes)) == 1
    assert [p.name.startswith("bundled-") for p in (tmp_path / "cache").iterdir()] == [True]


def _cut(record: GameRecord) -> GameRecord:
    """The first 40 frames of a game."""
    from dataclasses import replace

    f = record.frames
    launches = int(f.launch_end[38, -1])
    ends = f.launch_end[:40].copy()
    ends[39] = launches
    return replace(record, frames=f._replace(head=f.head[:40], launch=f.launch[:launches], launch_end=ends))
