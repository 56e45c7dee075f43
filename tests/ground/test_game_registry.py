"""games: the registry that finds a game by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from td_loop.errors import UsageError
from td_loop.games import get_game


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder that is not on the module search path, as a script or the installed command has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    return tmp_path


def test_a_game_in_the_current_folder_is_found(folder: Path) -> None:
    (folder / "my_found_game.py").write_text("GAME = 'a game'\n")
    assert get_game("my_found_game:GAME") == "a game"
    assert sys.path.count(str(folder)) == 1
    assert sys.path[-1] == str(folder)


@pytest.mark.parametrize(
    ("name", "code", "match"),
    [
        ("my_raising_game", "1 / 0", "my_raising_game:GAME: ZeroDivisionError: division by zero"),
        ("my_garbled_game", "def (", "SyntaxError"),
        ("my_empty_game", "", "AttributeError: .*GAME"),
        ("my_missing_game", None, "ModuleNotFoundError: No module named 'my_missing_game'"),
    ],
)
def test_a_module_that_cannot_be_used_is_a_usage_error_with_its_words(
    folder: Path, name: str, code: str | None, match: str
) -> None:
    if code is not None:
        (folder / f"{name}.py").write_text(code)
    with pytest.raises(UsageError, match=match):
        get_game(f"{name}:GAME")


@pytest.mark.parametrize("name", ["go", ":GAME", "json:"])
def test_a_name_that_names_nothing_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="--game"):
        get_game(name)
