"""Games, and the registry that finds one by name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from td_loop.errors import UsageError
from td_loop.games.base import Game

BUILT_IN = {"orbit_wars": "td_loop.games.orbit_wars.game:GAME"}


def get_game(name: str) -> Game[Any, Any]:
    """A built-in game by name, or anybody's by `package.module:ATTRIBUTE`, in the current folder too.

    Raises:
        UsageError: there is no such game, or its module raises.
    """
    module, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not colon:
        raise UsageError(f"--game {name}: not one of {', '.join(BUILT_IN)}, nor package.module:ATTRIBUTE")
    if name in BUILT_IN:
        built_in: Game[Any, Any] = getattr(importlib.import_module(module), attribute)
        return built_in
    # `python -m` looks there, a script or the installed command does not; last, so that it shadows nothing.
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))
    try:
        game: Game[Any, Any] = getattr(importlib.import_module(module), attribute)
    except Exception as e:  # whatever somebody's module raises
        raise UsageError(f"--game {name}: {type(e).__name__}: {e}") from e
    return game
