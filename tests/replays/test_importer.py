"""importer and opening: bad files are named and skipped, games come once, and every kind of source opens."""

from __future__ import annotations

import gzip
import multiprocessing
import zipfile
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.replays import opening
from td_loop.games.orbit_wars.replays.importer import import_games
from td_loop.games.orbit_wars.replays.opening import open_replays
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.sources import find_sources
from td_loop.games.orbit_wars.replays.store import ReplayStore
from tests.replays.conftest import Json

Edit = Callable[[bytes, Callable[[Json], object]], bytes]


@pytest.fixture
def folder(game_2p: bytes, game_4p: bytes, game_won_by_1: bytes, tmp_path: Path) -> Path:
    """Three good games, won by seats 0, 3 and 1."""
    root = tmp_path / "games"
    root.mkdir()
    (root / "two.json").write_bytes(game_2p)
    (root / "four.json.gz").write_bytes(gzip.compress(game_4p))
    with zipfile.ZipFile(root / "more.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("deep/inside/one.json", game_won_by_1)
    return root


def test_a_bad_file_never_stops_an_import(folder: Path, game_2p: bytes, edit: Edit, tmp_path: Path) -> None:
    (folder / "a_truncated.json.gz").write_bytes(gzip.compress(game_2p)[:-100])
    (folder / "b_text.json").write_text("hello")
    (folder / "c_other.json").write_bytes(edit(game_2p, lambda d: d.update(name="chess")))
    (folder / "d_half.json").write_bytes(game_2p[: len(game_2p) // 2])
    told: list[str] = []
    report = import_games(find_sources([folder]), tmp_path / "s", say=told.append)
    assert report.imported == 3
    assert report.skipped == told
    assert [reason.split(":")[0] for reason in told] == [
        "a_truncated.json.gz", "b_text.json", "c_other.json", "d_half.json",
    ]  # fmt: skip
    store = ReplayStore(tmp_path / "s")
    assert [g.name for g in store.games] == ["four.json.gz", "more.zip:deep/inside/one.json", "two.json"]
    assert {e.verified for e in store.entries} == {"exact"}
    assert report.frames == sum(e.n_frames for e in store.entries)


def test_a_game_that_is_there_already_is_reported(
    folder: Path, game_2p: bytes, edit: Edit, tmp_path: Path
) -> None:
    def rename(d: Json) -> None:
        d["info"]["TeamNames"] = ["somebody", "else"]
        d["id"] = "another"

    (folder / "zz_copy.json.gz").write_bytes(gzip.compress(edit(game_2p, rename)))
    report = import_games(find_sources([folder]), tmp_path / "s")
    assert report.duplicates == [("zz_copy.json.gz", "two.json")]
    assert len(ReplayStore(tmp_path / "s")) == 3
    again = import_games(find_sources([folder]), tmp_path / "s", append=True)
    assert (again.imported, len(again.duplicates)) == (0, 4)
    assert len(ReplayStore(tmp_path / "s")) == 3


def test_games_without_outcome_and_inexact_games_are_named(
    folder: Path, game_2p: bytes, edit: Edit, tmp_path: Path
) -> None:
    def tamper(d: Json) -> None:
        d["steps"][12][0]["observation"]["planets"][2][5] += 1

    (folder / "cut.json").write_bytes(edit(game_2p, lambda d: d.update(steps=d["steps"][:30])))
    (folder / "old.json").write_bytes(edit(game_2p, tamper))
    report = import_games(find_sources([folder]), tmp_path / "s")
    assert report.no_outcome == [("cut.json", "cut short")]
    ((name, label),) = report.inexact
    assert name == "old.json"
    assert label.startswith("turn 12, planets[2].ships")
    # Its frames are kept as they were observed.
    store = ReplayStore(tmp_path / "s")
    game = next(i for i, g in enumerate(store.games) if g.name == "old.json")
    recorded = orjson.loads((folder / "old.json").read_bytes())["steps"][12][0]["observation"]["planets"][2][5]
    assert store.state(game, 12).state.p_ships[2] == recorded


def test_if_nothing_can_be_imported_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("hello")
    with pytest.raises(ReplayError, match=r"none of 1 file\(s\) could be .*; why:\n  a\.json: not valid JSON"):
        import_games(find_sources([tmp_path / "in"]), tmp_path / "s")
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_a_store_is_never_overwritten(folder: Path, tmp_path: Path) -> None:
    import_games(find_sources([folder / "two.json"]), tmp_path / "s")
    with pytest.raises(FileExistsError):
        import_games(find_sources([folder]), tmp_path / "s")
    assert len(ReplayStore(tmp_path / "s")) == 1


def test_real_ladder_games_all_import(real_replays: Path, tmp_path: Path) -> None:
    sources = [s for s in find_sources([real_replays]) if s.path.suffix == ".gz"]
    report = import_games(sources, tmp_path / "s", verify=False)
    assert (report.imported, report.skipped, report.no_outcome) == (len(sources), [], [])


# --- open_replays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["", "*.json*", "more.zip"])
def test_raw_files_are_imported_once(what: str, folder: Path, tmp_path: Path, game_4p: bytes) -> None:
    with zipfile.ZipFile(folder / "more.zip", "a") as z:
        z.writestr("four.json", game_4p)
    cache = tmp_path / "cache"
    store = open_replays(folder / what, cache)
    assert len(store) >= 2
    (made,) = cache.iterdir()
    assert made == store.path
    index = (made / "index.json").stat().st_mtime_ns
    assert open_replays(folder / what, cache).path == made
    assert (made / "index.json").stat().st_mtime_ns == index
    assert open_replays(made, cache).path == made  # a store opens where it stands


def test_a_new_file_makes_a_new_store(folder: Path, crashed_game: bytes, tmp_path: Path) -> None:
    first = open_replays(folder, tmp_path / "cache")
    (folder / "z.json").write_bytes(crashed_game)
    second = open_replays(folder, tmp_path / "cache")
    assert (len(first), len(second)) == (3, 4)
    assert second.path != first.path


def _open(arguments: tuple[Path, Path]) -> str:
    return open_replays(*arguments).content_hash


def test_two_processes_importing_at_once_both_end_well(folder: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        hashes = pool.map(_open, [(folder, tmp_path / "cache")] * 2, chunksize=1)
    assert len(set(hashes)) == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_replays_that_teach_nothing_are_refused(
    game_2p: bytes, crashed_game: bytes, edit: Edit, tmp_path: Path
) -> None:
    root = tmp_path / "games"
    root.mkdir()
    with pytest.raises(ReplayError, match=r"games: holds no \.json"):
        open_replays(root, tmp_path / "cache")
    with pytest.raises(ReplayError, match="no such file"):
        open_replays(tmp_path / "nowhere", tmp_path / "cache")
    (root / "crash.json").write_bytes(crashed_game)
    (root / "cut.json").write_bytes(edit(game_2p, lambda d: d.update(steps=d["steps"][:30])))
    with pytest.raises(ReplayError, match=r"none of its 2 game\(s\) has a known outcome \(cut short, seat 1"):
        open_replays(root, tmp_path / "cache")
    (root / "two.json").write_bytes(game_2p)
    with pytest.raises(ReplayError, match=r"seat 0 wins in all 1 game\(s\)"):
        open_replays(root, tmp_path / "cache")


def test_a_folder_in_the_way_is_named(folder: Path, tmp_path: Path) -> None:
    store = open_replays(folder, tmp_path / "cache")
    (store.path / "index.json").unlink()
    with pytest.raises(ReplayError, match="is in the way and is no replay store"):
        open_replays(folder, tmp_path / "cache")


def test_a_missing_bundled_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BUNDLED", tmp_path / "selfplay.npz")
    with pytest.raises(ReplayError, match=r"selfplay\.npz: the bundled replay set is missing"):
        open_replays(None, tmp_path / "cache")


def test_content_ids_do_not_depend_on_file_or_packing(folder: Path, game_4p: bytes, tmp_path: Path) -> None:
    store = open_replays(folder, tmp_path / "cache")
    assert store.games[0].content_id == parse_episode(game_4p, "other name").content_id
