"""Games that can be served, by name."""

from __future__ import annotations

from typing import Any

from td_loop.errors import UsageError
from td_loop.games import get_game
from td_loop.games.served import Served

_NEEDED = sorted({name for name in vars(Served) if not name.startswith("_")} | {"players", "open_session"})


def served_game(name: str) -> Served[Any, Any]:
    """The game of that name, if policies for it can be served.

    Raises:
        UsageError: there is no such game, or it lacks part of `Served`.
    """
    game: Any = get_game(name)
    if missing := [x for x in _NEEDED if not hasattr(game, x)]:
        raise UsageError(f"--game {name}: no policy can be served for it, it has no {', '.join(missing)}")
    return game  # type: ignore[no-any-return]
