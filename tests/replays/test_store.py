"""store and writer: random access to every frame, and a folder that is whole or not there."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.engine import step
from td_loop.games.orbit_wars.replays.layout import DTYPES, INDEX, is_store
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.record import GameRecord
from td_loop.games.orbit_wars.replays.store import ReplayStore
from td_loop.games.orbit_wars.replays.writer import append_to_store, new_store
from td_loop.games.orbit_wars.state import HEAD_SIZE, N_FLEETS, N_PLANETS, Position


@pytest.fixture(scope="session")
def records(game_2p: bytes, game_4p: bytes, crashed_game: bytes) -> list[GameRecord]:
    return [parse_episode(d, n) for n, d in (("two", game_2p), ("four", game_4p), ("crash", crashed_game))]


@pytest.fixture(scope="session")
def store(records: list[GameRecord], tmp_path_factory: pytest.TempPathFactory) -> ReplayStore:
    folder = tmp_path_factory.mktemp("stores") / "store"
    with new_store(folder) as writer:
        for record in records:
            assert writer.add(record, "exact")
    return ReplayStore(folder)


def assert_same_position(a: Position, b: Position) -> None:
    n, m = a.state.head[N_PLANETS], a.state.head[N_FLEETS]
    for name, x, y in zip(a.state._fields, a.state, b.state, strict=True):
        rows = {"p": n, "f": m}.get(name[0] if name[1] == "_" else "", len(x))
        np.testing.assert_array_equal(x[:rows], y[:rows], err_msg=name)


def test_games_are_described(store: ReplayStore, records: list[GameRecord]) -> None:
    assert [g.name for g in store.games] == ["two", "four", "crash"]
    assert [g.n_players for g in store.games] == [2, 4, 2]
    assert [g.n_frames for g in store.games] == [60, 40, 21]  # the crashed game ends where its seat did
    assert [g.outcome is None for g in store.games] == [False, False, True]
    assert [e.n_frames for e in store.entries] == [60, 40, 60]
    assert [g.content_id for g in store.games] == [r.content_id for r in records]


def test_a_record_comes_back_as_it_was_written(store: ReplayStore, records: list[GameRecord]) -> None:
    for game, record in enumerate(records):
        back = store.record(game)
        assert back.content_id == record.content_id
        for name in ("name", "seed", "comet_speed", "module_version", "rewards", "crashes"):
            assert getattr(back, name) == getattr(record, name)
        for name in record.frames._fields:
            np.testing.assert_array_equal(getattr(back.frames, name), getattr(record.frames, name), err_msg=name)


def test_every_frame_steps_into_the_next(store: ReplayStore) -> None:
    """States, actions and boards together, comet spawns included, from any frame on."""
    for game, entry in enumerate(store.entries):
        for turn in range(entry.n_frames - 1):
            actions = [store.action(game, turn, seat) for seat in range(4)]
            assert_same_position(step(store.state(game, turn), actions), store.state(game, turn + 1))


def test_actions_are_those_of_the_record(store: ReplayStore, records: list[GameRecord]) -> None:
    for game, record in enumerate(records):
        rows = [store.action(game, turn, seat) for turn in range(record.n_frames) for seat in range(4)]
        np.testing.assert_array_equal(np.concatenate(rows), record.frames.launch)


def test_states_are_private_and_of_the_kind_that_kernels_are_compiled_for(store: ReplayStore) -> None:
    position = store.state(0, 55)
    for array in (*position.state, store.action(0, 3, 0)):
        assert array.flags.c_contiguous
        assert array.flags.writeable
        array[...] = 0
    assert store.state(0, 55).state.head[N_PLANETS] == 28
    assert len(store.action(0, 3, 0))
    assert store.state(0, 56).board is position.board


def test_what_is_not_there_is_an_index_error(store: ReplayStore) -> None:
    for turn in (-1, 60):
        with pytest.raises(IndexError):
            store.state(0, turn)
        with pytest.raises(IndexError):
            store.action(0, turn, 0)
    with pytest.raises(IndexError):
        store.action(0, 0, 4)


def test_nothing_of_the_files_can_be_written_through_the_store(store: ReplayStore) -> None:
    assert not any(array.flags.writeable for array in store._data.values())


def _hash_of_all_states(path: Path) -> int:
    opened = ReplayStore(path)
    total = 0.0
    for game, entry in enumerate(opened.entries):
        for turn in range(entry.n_frames):
            s = opened.state(game, turn).state
            total += float(s.f_x.sum() + s.p_x.sum() + s.head.sum())
    return hash(total)


def test_processes_share_a_store(store: ReplayStore) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert len(set(pool.map(_hash_of_all_states, [store.path] * 2))) == 1


def test_a_game_is_added_once(records: list[GameRecord], tmp_path: Path) -> None:
    with new_store(tmp_path / "s") as writer:
        assert writer.add(records[0])
        assert not writer.add(records[0])
    assert len(ReplayStore(tmp_path / "s")) == 1


def test_the_set_s_hash_does_not_depend_on_order(records: list[GameRecord], tmp_path: Path) -> None:
    for name, order in (("a", records), ("b", records[::-1])):
        with new_store(tmp_path / name) as writer:
            for record in order:
                writer.add(record)
    a, b = ReplayStore(tmp_path / "a"), ReplayStore(tmp_path / "b")
    assert a.content_hash == b.content_hash
    assert a.games[0].frame_id(7) == b.games[2].frame_id(7)


def test_a_store_that_fails_on_the_way_is_not_there(records: list[GameRecord], tmp_path: Path) -> None:
    def fail() -> None:
        with new_store(tmp_path / "s") as writer:
            writer.add(records[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(records: list[GameRecord], tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "diary.txt").write_text("mine")
    with pytest.raises(FileExistsError), new_store(tmp_path / "s"):
        pass
    with pytest.raises(ReplayError, match="not a replay store"), append_to_store(tmp_path / "s"):
        pass
    assert [p.name for p in (tmp_path / "s").iterdir()] == ["diary.txt"]


def test_games_are_appended(records: list[GameRecord], store: ReplayStore, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with new_store(folder) as writer:
        writer.add(records[0])
    early = ReplayStore(folder)
    with append_to_store(folder) as writer:
        assert not writer.add(records[0])
        assert writer.add(records[1])
        assert writer.add(records[2])
    late = ReplayStore(folder)
    assert late.content_hash == store.content_hash
    for game in range(3):
        assert late.record(game).content_id == records[game].content_id
    assert_same_position(early.state(0, 59), store.state(0, 59))  # who had it open is not disturbed


def test_a_killed_append_leaves_the_store_as_it_was(records: list[GameRecord], tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with new_store(folder) as writer:
        writer.add(records[0])

    def fail() -> None:
        with append_to_store(folder) as writer:
            writer.add(records[1])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [g.name for g in ReplayStore(folder).games] == ["two"]
    with append_to_store(folder) as writer:
        writer.add(records[2])
    assert [ReplayStore(folder).record(g).content_id for g in (0, 1)] == [
        records[0].content_id,
        records[2].content_id,
    ]


def test_two_appends_at_once_are_refused(records: list[GameRecord], tmp_path: Path) -> None:
    with new_store(tmp_path / "s") as writer:
        writer.add(records[0])
    second = append_to_store(tmp_path / "s")
    with append_to_store(tmp_path / "s"), pytest.raises(ReplayError, match="another process"), second:
        pass


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_a_file_that_is_short_or_missing_is_found_when_opened(
    name: str, records: list[GameRecord], tmp_path: Path
) -> None:
    with new_store(tmp_path / "s") as writer:
        writer.add(records[0])
    data = tmp_path / "s" / name
    os.truncate(data, data.stat().st_size - 1)
    with pytest.raises(ReplayError, match=rf"{name}: cut short"):
        ReplayStore(tmp_path / "s")
    data.unlink()
    with pytest.raises(ReplayError, match=rf"{name}: missing"):
        ReplayStore(tmp_path / "s")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (None, "not a .finished. replay store"),
        (b"{", "damaged"),
        (b"[]", "damaged"),
        (b'{"kind": "diary", "format_version": 1}', "not a replay store"),
        (b'{"kind": "orbit_wars_replays", "format_version": 99}', "format version 99"),
        (b'{"kind": "orbit_wars_replays", "format_version": 1, "counts": {}, "games": []}', "damaged"),
    ],
)
def test_an_index_that_is_not_ours_is_refused(
    index: bytes | None, message: str, records: list[GameRecord], tmp_path: Path
) -> None:
    with new_store(tmp_path / "s") as writer:
        writer.add(records[0])
    path = tmp_path / "s" / INDEX
    path.unlink()
    if index is not None:
        path.write_bytes(index)
    assert is_store(tmp_path / "s") == (index is not None)
    with pytest.raises(ReplayError, match=message):
        ReplayStore(tmp_path / "s")


def test_positions_in_the_index_are_in_whole_frames(store: ReplayStore) -> None:
    for entry in store.entries:
        assert entry.start["head.i32"] % HEAD_SIZE == 0
        assert entry.start["ends.i64"] * HEAD_SIZE == entry.start["head.i32"] * 5
