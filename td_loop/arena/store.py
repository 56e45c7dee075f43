"""The games of a tournament on disk: appended one by one as they end, so that a kill costs those under way.

The first record says what all games have in common (game, seats, seed, limits, code); the others are games.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from td_loop.arena.game import Fixture, PlayedGame
from td_loop.errors import DataError, RunInUse
from td_loop.files import dumps_json, make_dir, storage_errors
from td_loop.journal import Journal, read_records

FORMAT_VERSION = 1

IN_RUN = {2: "arena/2p.games", 4: "arena/4p.games"}
"""Where the tournament of a run is kept in its folder, by seats."""


def read_store(path: Path) -> tuple[dict[str, Any], list[PlayedGame]]:
    """What all games have in common, and the games, each once.

    Raises:
        DataError: there is no such file, or it is not a store of games.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; `td-loop tournament` writes it")
    records = read_records(path)
    try:
        setting = orjson.loads(next(records, b"null"))
        if not isinstance(setting, dict) or setting.get("arena_format_version") != FORMAT_VERSION:
            raise DataError(f"{path}: holds no games of this version; give another --store, or remove it")
        games = {game.fixture: game for game in map(PlayedGame.from_json, map(orjson.loads, records))}
    except (ValueError, KeyError, TypeError) as e:
        raise DataError(f"{path}: holds records that are no games ({e}); give another --store") from e
    return setting, list(games.values())


class Store:
    """A store that games are added to. One process at a time has it.

    Attributes:
        games: those that it holds.

    Raises:
        DataError: the file is of another tournament or no store; it is left alone.
        RunInUse: another process adds games to it.
        StorageError: it cannot be written.
    """

    def __init__(self, path: Path, setting: Mapping[str, Any]) -> None:
        self.path = path
        self.games: dict[Fixture, PlayedGame] = {}
        make_dir(path.parent)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_locked(path.with_name(f"{path.name}.lock")))
            wanted = {"arena_format_version": FORMAT_VERSION, **setting}
            if path.exists():
                there, games = read_store(path)
                self._compare(there, wanted)
                self.games = {game.fixture: game for game in games}
            records = [wanted, *(game.as_json() for game in self.games.values())]
            self._journal = stack.enter_context(Journal(path, map(dumps_json, records)))
            self._open = stack.pop_all()

    def _compare(self, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        for key in sorted(there.keys() | wanted.keys()):
            if there.get(key) != wanted.get(key):
                raise DataError(
                    f"{self.path}: its games have {key} {there.get(key)}, these {wanted.get(key)}; both "
                    "together would mean nothing: give another --store, or remove this one"
                )

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def add(self, game: PlayedGame) -> None:
        """Append a game; it is on the disk when this returns, as far as a kill is concerned."""
        self._journal.append(dumps_json(game.as_json()))
        self.games[game.fixture] = game


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold `path` locked; the kernel gives the lock back when we end, however that happens."""
    with storage_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunInUse(f"{path}: another tournament adds games to this store; wait, or give another") from None
        yield
    finally:
        os.close(fd)
