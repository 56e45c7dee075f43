"""Stage 2: states of games with a known outcome, for the Monte-Carlo loss and the validation rows. `R` rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import CacheError, ReplayError
from td_loop.games.base import MAX_SEATS, Game, ReplaySet
from td_loop.npz import load_npz, save_npz
from td_loop.prepare.compute import on_alive
from td_loop.prepare.notices import difference
from td_loop.prepare.rows import frame_ids
from td_loop.prepare.split import VAL_FRAC, validation_games
from td_loop.progress import progress

FORMAT_VERSION = 1
STRIDE = 4
"""Every 4th turn: neighbouring frames of a game say nearly the same about its outcome."""


@dataclass(frozen=True)
class McReport:
    """What became of the mc_rows file."""

    path: Path
    rows: int
    games: int
    validation_games: int
    written: bool


def provenance(game: Game[Any, Any], replays: ReplaySet[Any, Any], gamma: float) -> dict[str, Any]:
    """What the rows are a pure function of: rows with the same provenance are the same rows."""
    return {
        "kind": "mc_rows",
        "format_version": FORMAT_VERSION,
        "game": game.name,
        "gamma": gamma,
        "feature_names": list(game.feature_names),
        "replay_set_hash": replays.content_hash,
        "stride": STRIDE,
        "val_frac": VAL_FRAC,
    }


def ensure_mc_rows(path: Path, game: Game[Any, Any], replays: ReplaySet[Any, Any], gamma: float) -> McReport:
    """Write the file at `path` where there is none, or half of one; keep one that is whole and of this provenance.

    Raises:
        ReplayError: no game has a known outcome.
        CacheError: `path` is a file of another kind or provenance, which is left alone: a run that changed its
            validation rows on the way would compare losses that cannot be compared.
    """
    wanted = provenance(game, replays, gamma)
    kept = _read(path)
    if kept:
        if other := difference(kept[1], wanted):
            raise CacheError(
                f"{path}: made with {other}; outcome rows that exist are never "
                "replaced: go back to what they were made with, choose another --mc-rows (in a run: another "
                "--tag), or remove the file"
            )
        return McReport(path, len(kept[0]["turn"]), kept[1]["n_games"], kept[1]["n_val_games"], written=False)
    arrays, counts = gather(game, replays, gamma)
    save_npz(path, arrays, {**wanted, **counts})
    return McReport(path, len(arrays["turn"]), counts["n_games"], counts["n_val_games"], written=True)


def _read(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]] | None:
    """The file at `path`; None when there is none, or one that was cut short and is best made again."""
    if not path.exists():
        return None
    try:
        arrays, meta = load_npz(path, CacheError)
    except CacheError:
        if path.is_file() and _is_zip(path):
            return None
        raise
    if meta.get("kind") != "mc_rows":
        raise CacheError(f"{path}: exists and is not an mc_rows file; choose another --mc-rows, or remove it")
    return arrays, meta


def _is_zip(path: Path) -> bool:
    with path.open("rb") as f:
        return f.read(2) == b"PK"


def gather(
    game: Game[Any, Any], replays: ReplaySet[Any, Any], gamma: float
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, int]]:
    """Every STRIDE-th frame of every game with a known outcome, never a game's last frame.

    Returns:
        The arrays of the file, and `n_games` (all of the set), `n_val_games`.

    Raises:
        ReplayError: no game has a known outcome.
    """
    validation = validation_games(replays.games, replays.content_hash)
    frames = [
        (g, turn)
        for g, info in enumerate(replays.games)
        if info.outcome is not None
        for turn in range(0, info.n_frames - 1, STRIDE)
    ]
    if not frames:
        raise ReplayError(
            f"{replays.path}: none of its {len(replays.games)} games has a known outcome; import games that were "
            f"played to the end"
        )
    rows = len(frames)
    out_game, out_turn = (np.array(column) for column in zip(*frames, strict=True))
    features = np.zeros((rows, MAX_SEATS, len(game.feature_names)), np.float32)
    alive = np.zeros((rows, MAX_SEATS), bool)
    outcome = np.zeros((rows, MAX_SEATS))
    with progress("outcomes", rows) as advance:
        for i, (g, turn) in enumerate(frames):
            state = replays.state(g, turn)
            features[i], alive[i], outcome[i] = (
                game.features(state, gamma),
                game.alive(state),
                replays.games[g].outcome,
            )
            if not np.isfinite(features[i]).all():
                raise ReplayError(
                    f"{replays.path}: {replays.games[g].name}, turn {turn}: its features are not finite; "
                    f"leave this game out"
                )
            advance(1)
    out_game, out_turn = out_game.astype(np.int32), out_turn.astype(np.int16)
    arrays = {
        "features": features,
        "n_players": np.array([g.n_players for g in replays.games], np.int8)[out_game],
        "alive": alive,
        "outcome": on_alive(outcome, alive).astype(np.float32),
        "frame_id": frame_ids(replays.games, out_game, out_turn),
        "game": out_game,
        "turn": out_turn,
        "is_validation": validation[out_game],
    }
    return arrays, {"n_games": len(replays.games), "n_val_games": int(validation.sum())}
