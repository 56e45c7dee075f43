"""The bundled replay set: games as seeds and actions in one npz, played again by our engine when first used.

`D` is the number of games, `S` the sum of their turns (a turn is one action of every seat), `L` all launches.

    seed           i64[D]
    n_players      u8[D]
    n_turns        u16[D]      actions played: the game has n_turns + 1 frames
    launch_count   u8[S, 4]    launches of each seat in each turn (u16 where a seat made more than 255)
    planet         u8[L]       source planet index
    angle          f64[L]      radians, exact; f32[L] where every angle of the set is exactly a float32
    ships          i32[L]
    meta           {"kind": "orbit_wars_selfplay", "format_version": 1, "episode_steps": N, "about": {...}}

Angles are most of the file: an agent that rounds its angles to float32 before it plays them halves the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from td_loop import files, npz
from td_loop.errors import ReplayError
from td_loop.games.base import MAX_SEATS
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import rewards
from td_loop.games.orbit_wars.playthrough import record as play_frames
from td_loop.games.orbit_wars.replays.frames import home_table, move_rows
from td_loop.games.orbit_wars.replays.layout import FORMAT_VERSION as LAYOUT_VERSION
from td_loop.games.orbit_wars.replays.record import Array, Frames, GameRecord, fleet_block
from td_loop.games.orbit_wars.replays.verify import EXACT
from td_loop.games.orbit_wars.replays.writer import new_store
from td_loop.games.orbit_wars.state import EPISODE_STEPS, N_PLANETS, NEXT_FLEET_ID, Action, Position
from td_loop.kernels import sources_hash
from td_loop.progress import progress

BUNDLED = Path(__file__).parent.parent / "data" / "selfplay.npz"
KIND = "orbit_wars_selfplay"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class BundledGame:
    """One game as its seed and what every seat did.

    Attributes:
        seed: the episode seed.
        n_players: P.
        actions: per turn, per seat: launches f64[L, 3] (planet index, angle, ships) that were legal when they were
            made, in the order they took effect; None or an empty array for no launch.
    """

    seed: int
    n_players: int
    actions: Sequence[Sequence[Action | None]]


def write_bundle(
    path: Path,
    games: Iterable[BundledGame],
    *,
    episode_steps: int = EPISODE_STEPS,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write `games` to `path`, atomically and with the same bytes for the same games.

    Args:
        path: the npz to write.
        games: played under the default ship and comet speeds.
        episode_steps: `episodeSteps` of all games.
        about: what to remember about how they were made (JSON object: script, agents, seed).
    """
    seeds, players, turns, counts, launches = [], [], [], [], []
    for game in games:
        seeds.append(game.seed)
        players.append(game.n_players)
        turns.append(len(game.actions))
        count = np.zeros((len(game.actions), MAX_SEATS), np.uint16)
        for turn, seats in enumerate(game.actions):
            for seat, action in enumerate(seats):
                if action is not None and len(action):
                    count[turn, seat] = len(action)
                    launches.append(np.asarray(action, np.float64).reshape(-1, 3))
        counts.append(count)
    launch = np.concatenate(launches) if launches else np.zeros((0, 3))
    count = np.concatenate(counts) if counts else np.zeros((0, MAX_SEATS), np.uint16)
    angle = launch[:, 1].copy()
    short = angle.astype(np.float32)
    arrays: dict[str, Array] = {
        "seed": np.array(seeds, np.int64),
        "n_players": np.array(players, np.uint8),
        "n_turns": np.array(turns, np.uint16),
        "launch_count": count if count.max(initial=0) > np.iinfo(np.uint8).max else count.astype(np.uint8),
        "planet": launch[:, 0].astype(np.uint8),
        "angle": short if np.array_equal(short.astype(np.float64), angle) else angle,
        "ships": launch[:, 2].astype(np.int32),
    }
    meta = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "game": "orbit_wars",
        "n_games": len(seeds),
        "episode_steps": episode_steps,
        "about": dict(about or {}),
    }
    npz.save_npz(path, arrays, meta, compress=True)


def expand_bundle(bundle: Path, store: Path) -> None:
    """Play every game of `bundle` again and write the frames to a new store.

    Raises:
        ReplayError: damaged, of another kind or version, or a launch in it is not legal in our engine.
        FileExistsError: somebody else has made `store` meanwhile.
        StorageError: the disk refused.
    """
    arrays, episode_steps = _read(bundle)
    ends = np.cumsum(arrays["n_turns"].astype(np.int64))
    per_turn = arrays["launch_count"].astype(np.int64)
    launch_ends = np.cumsum(per_turn.ravel()).reshape(-1, MAX_SEATS)
    launch = np.column_stack([arrays[name].astype(np.float64) for name in ("planet", "angle", "ships")])
    with new_store(store) as writer, progress("replays", len(ends)) as advance:
        for game, (seed, players, end) in enumerate(
            zip(arrays["seed"].tolist(), arrays["n_players"].tolist(), ends.tolist(), strict=True)
        ):
            first = end - int(arrays["n_turns"][game])
            base = int(launch_ends[first - 1, -1]) if first else 0
            last = int(launch_ends[end - 1, -1]) if end else 0
            turns = launch_ends[first:end] - base
            record = replay(seed, players, launch[base:last], turns, episode_steps)
            writer.add(record, EXACT)
            advance(1)


def replay(seed: int, n_players: int, launch: Array, launch_end: Array, episode_steps: int) -> GameRecord:
    """Play a game from its seed and launches.

    Args:
        seed: the episode seed.
        n_players: P.
        launch: f64[L, 3] planet index, angle, ships.
        launch_end: i64[T-1, MAX_SEATS] cumulative count, seat by seat within a turn.
        episode_steps: `episodeSteps`.

    Raises:
        ReplayError: a launch is not legal: the engine that made the bundle played by other rules.
    """
    start = new_game(seed, n_players, episode_steps=episode_steps)
    board = start.board
    ends = np.concatenate([launch_end, np.full((1, MAX_SEATS), len(launch))])
    moves, moves_end = move_rows(launch, ends)
    played = play_frames(start, moves, np.concatenate([[0], moves_end[:-1]]))
    launched = int(played.head[-1, NEXT_FLEET_ID])
    if len(played.head) != len(ends) or launched != len(moves):
        raise ReplayError(
            f"seed {seed}: ends after {len(played.head) - 1} of {len(ends) - 1} turns, {launched} of {len(moves)} "
            "launches legal; it was made under other rules, so make it again: scripts/make_selfplay_replays.py"
        )
    seen = np.flatnonzero((board.comet_spawn < len(ends)) & (board.comet_len > 0))
    group_of = np.full(len(board.comet_spawn) + 1, -1)  # the last entry serves home planets, group -1
    group_of[seen] = np.arange(len(seen))
    planet_rows = (played.p_owner, played.p_ships, played.p_prod, group_of[played.p_comet], played.p_member)
    planet_i = np.stack(planet_rows, axis=1).astype(np.int32)
    planet_i *= np.arange(planet_i.shape[2]) < played.head[:, N_PLANETS, None, None]
    counts = np.diff(played.fleet_start)
    frames = Frames(
        cfg=board.cfg[:3].copy(),
        home=home_table(board),
        group=np.stack([board.comet_spawn[seen], board.comet_ships[seen], board.comet_len[seen]]),
        path=np.stack([board.comet_x[seen], board.comet_y[seen]]),
        head=played.head.astype(np.int32),
        planet_f=np.stack([played.p_x, played.p_y, played.p_radius], axis=1),
        planet_i=planet_i,
        comet_at=played.comet_at[:, seen].astype(np.int16),
        fleet_f=fleet_block((played.f_x, played.f_y, played.f_angle), counts, np.float64),
        fleet_i=fleet_block((played.f_id, played.f_owner, played.f_from, played.f_ships), counts, np.int32),
        fleet_end=played.fleet_start[1:],
        launch=launch,
        launch_end=ends,
    )
    record = GameRecord(f"seed {seed}", n_players, frames, seed, module_version="td_loop")
    last = Position(board, played.state(len(ends) - 1))
    paid = tuple(float(r) for r in rewards(last)) if record.ended else (None,) * n_players
    return replace(record, rewards=paid, crashes=(None,) * n_players)


def store_name(bundle: Path) -> str:
    """Folder name for the expanded bundle: another one when the bundle or the engine changes."""
    return f"bundled-{files.sha256(bundle)[:16]}-{sources_hash()}-{LAYOUT_VERSION}"


def _read(path: Path) -> tuple[dict[str, Array], int]:
    """The arrays of a bundle, checked, and its episodeSteps."""
    arrays, meta = npz.load_npz(path, ReplayError)
    if meta.get("kind") != KIND or meta.get("format_version") != FORMAT_VERSION:
        raise ReplayError(
            f"{path}: kind {meta.get('kind')!r} version {meta.get('format_version')!r}, "
            f"expected {KIND!r} version {FORMAT_VERSION}; make it again with scripts/make_selfplay_replays.py"
        )
    names = ("seed", "n_players", "n_turns", "launch_count", "planet", "angle", "ships")
    if missing := [name for name in names if name not in arrays]:
        raise ReplayError(
            f"{path}: has no array {missing[0]!r}; make it again with scripts/make_selfplay_replays.py"
        )
    games, turns = len(arrays["seed"]), int(arrays["n_turns"].sum())
    launches = int(arrays["launch_count"].sum())
    expected = {"seed": (games,), "n_players": (games,), "n_turns": (games,), "launch_count": (turns, MAX_SEATS)}
    expected |= dict.fromkeys(("planet", "angle", "ships"), (launches,))
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ReplayError(f"{path}: {name} has shape {arrays[name].shape}, expected {shape}; restore the file")
    if games == 0:
        raise ReplayError(f"{path}: holds no game; make it again with scripts/make_selfplay_replays.py")
    return arrays, int(meta["episode_steps"])
