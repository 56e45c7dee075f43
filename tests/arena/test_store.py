"""store: no game is lost, and games of different tournaments are not mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from td_loop.arena.store import Store, read_store
from td_loop.errors import CacheError, DataError, RunInUse
from tests.arena.build import duel

SETTING = {"game": "toy", "seats": 2}
GAMES = [*duel(1, 0, map_seed=1).games, *duel(0.5, 1, map_seed=2).games]


def filled(path: Path, n: int = 3) -> None:
    with Store(path, SETTING) as store:
        for game in GAMES[:n]:
            store.add(game)


def test_games_are_there_as_soon_as_they_are_added(tmp_path: Path) -> None:
    path = tmp_path / "arena" / "games"
    with Store(path, SETTING) as store:
        for n, game in enumerate(GAMES, 1):
            store.add(game)
            assert read_store(path)[1] == GAMES[:n]
    with Store(path, SETTING) as store:
        assert list(store.games.values()) == GAMES


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_kill_in_the_middle_of_a_write_costs_that_game_only(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "games"
    filled(path)
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_store(path)[1] == GAMES[:2]
    with Store(path, SETTING) as store:
        store.add(GAMES[2])
        store.add(GAMES[3])
    assert read_store(path)[1] == GAMES


def test_games_of_another_tournament_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "games"
    filled(path)
    before = path.read_bytes()
    with pytest.raises(DataError, match="its games have seats 2, these 4"):
        Store(path, SETTING | {"seats": 4})
    assert path.read_bytes() == before


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "games"
    with Store(path, SETTING) as store:
        with pytest.raises(RunInUse, match="another tournament"):
            Store(path, SETTING)
        store.add(GAMES[0])
    assert read_store(path)[1] == GAMES[:1]
    filled(path)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "games"
    with pytest.raises(DataError, match="no such file"):
        read_store(path)
    path.write_text("hello")
    with pytest.raises(CacheError, match="not a journal"):
        Store(path, SETTING)
    assert path.read_text() == "hello"
