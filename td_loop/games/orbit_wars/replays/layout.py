"""What a replay store looks like on disk: a few flat binary files and `index.json`, which is written last.

    index.json      {"kind", "format_version", "counts": {file: items}, "games": [one object a game]}
    board.f64       per game: cfg[3], home[6, M], path[2, G, 4, 40]
    group.i64       per game: [3, G]
    head.i32        per frame: [HEAD_SIZE]
    planet.f64      per frame: [3, C]        x, y, radius
    planet.i32      per frame: [5, C]        owner, ships, production, comet group, member
    comet.i16       per frame: [G]           path index of each group
    fleet.f64       per frame: [3, n]        x, y, angle
    fleet.i32       per frame: [4, n]        id, owner, from, ships
    ends.i64        per frame: [1 + 4]       fleets up to and with this frame; launches up to and with each seat
    launch.f64      per launch: [3]          planet index, angle, ships

A file is read up to its count in the index and no further. Adding games writes behind that point and then replaces
the index, so a killed import leaves a store as it was, and readers of the old index are not disturbed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.replays.record import GameRecord

KIND = "orbit_wars_replays"
FORMAT_VERSION = 1
INDEX = "index.json"

DTYPES: dict[str, Any] = {
    "board.f64": np.float64,
    "group.i64": np.int64,
    "head.i32": np.int32,
    "planet.f64": np.float64,
    "planet.i32": np.int32,
    "comet.i16": np.int16,
    "fleet.f64": np.float64,
    "fleet.i32": np.int32,
    "ends.i64": np.int64,
    "launch.f64": np.float64,
}


@dataclass(frozen=True)
class Entry:
    """One game in the index: what is known about it, and where its arrays start (in items of each file).

    Attributes:
        name: file it came from, or `seed 17`.
        content_id: see `GameRecord.content_id`.
        n_players: P.
        n_frames: T, frames stored.
        usable_frames: frames before the first crash (T if none).
        capacity: C.
        n_home: M.
        n_groups: G.
        n_launches: L.
        seed: episode seed or None.
        comet_speed: of the configuration.
        module_version: of kaggle-environments.
        rewards: one a seat or None.
        crashes: one a seat: [step, status] or None.
        outcome: four shares or None.
        why_no_outcome: "" or the reason.
        verified: "exact" (from the seed), "stepwise" (no seed; every frame steps into the next), the first field
            that differs, or "" when nobody has looked.
        start: first item of the game in each file.
    """

    name: str
    content_id: str
    n_players: int
    n_frames: int
    usable_frames: int
    capacity: int
    n_home: int
    n_groups: int
    n_launches: int
    seed: int | None
    comet_speed: float
    module_version: str
    rewards: list[float | None]
    crashes: list[list[Any] | None]
    outcome: list[float] | None
    why_no_outcome: str
    verified: str
    start: dict[str, int]


def make_entry(record: GameRecord, start: dict[str, int], verified: str) -> Entry:
    """The index entry of a game whose arrays start at `start`."""
    outcome, why = record.outcome_or_why
    frames = record.frames
    return Entry(
        name=record.name,
        content_id=record.content_id,
        n_players=record.n_players,
        n_frames=record.n_frames,
        usable_frames=record.usable_frames,
        capacity=frames.planet_f.shape[2],
        n_home=frames.home.shape[1],
        n_groups=frames.group.shape[1],
        n_launches=record.n_launches,
        seed=record.seed,
        comet_speed=record.comet_speed,
        module_version=record.module_version,
        rewards=list(record.rewards),
        crashes=[list(c) if c else None for c in record.crashes],
        outcome=None if outcome is None else outcome.tolist(),
        why_no_outcome=why,
        verified=verified,
        start=start,
    )


def dump_index(entries: list[Entry], counts: dict[str, int]) -> dict[str, Any]:
    """The JSON object of `index.json`."""
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "counts": counts,
        "games": [asdict(e) for e in entries],
    }


def is_store(folder: Path) -> bool:
    """Whether `folder` holds a finished store (the index is written last)."""
    return (folder / INDEX).is_file()


def load_index(folder: Path) -> tuple[list[Entry], dict[str, int]]:
    """Read `index.json` and check that every file is as long as it says.

    Raises:
        ReplayError: missing, damaged, of another kind or version, or a file is too short.
    """
    path = folder / INDEX
    try:
        index = orjson.loads(path.read_bytes())
        kind, version = index["kind"], index["format_version"]
        if kind != KIND:
            raise ReplayError(f"{path}: of kind {kind!r}, not a replay store; name another folder")
        if version != FORMAT_VERSION:
            raise ReplayError(
                f"{path}: format version {version}, this td-loop reads {FORMAT_VERSION}; import again"
            )
        counts = {name: int(index["counts"][name]) for name in DTYPES}
        names = {f.name for f in fields(Entry)}
        entries = [Entry(**{k: v for k, v in game.items() if k in names}) for game in index["games"]]
    except FileNotFoundError as e:
        raise ReplayError(
            f"{folder}: no {INDEX}, so not a (finished) replay store; run `td-loop replays import`"
        ) from e
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ReplayError(f"{path}: damaged ({type(e).__name__}: {e}); import again") from e
    for name, count in counts.items():
        data = folder / name
        size = data.stat().st_size if data.is_file() else -1
        if size < count * np.dtype(DTYPES[name]).itemsize:
            raise ReplayError(
                f"{data}: {'missing' if size < 0 else 'cut short'}; the store is damaged, import again"
            )
    return entries, counts
