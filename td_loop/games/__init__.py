"""Games, and the registry that finds one by name."""

from __future__ import annotations

import importlib
from typing import Any

from td_loop.errors import UsageError
from td_loop.games.base import Game

BUILT_IN = {"orbit_wars": "td_loop.games.orbit_wars.game:GAME"}


def get_game(name: str) -> Game[Any, Any]:
    """A built-in game by name, or anybody's by `package.module:ATTRIBUTE`.

    Raises:
        UsageError: there is no such game.
    """
    module, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not colon:
        raise UsageError(f"--game {name}: not one of {', '.join(BUILT_IN)}, nor package.module:ATTRIBUTE")
    try:
        game: Game[Any, Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as e:
        raise UsageError(f"--game {name}: {e}") from e
    return game
