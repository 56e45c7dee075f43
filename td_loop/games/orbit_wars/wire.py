"""A position for a seat as a compact binary body: 11 kB for 300 fleets, read without a loop.

    head | planets | home planets at the start | fleets | comets | comet groups, each with its paths

All numbers are little-endian; coordinates and angles are doubles, so that both bodies of a request lead to the
same decision. What JSON names and this does not is what official games have in common.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.errors import DataError
from td_loop.games.orbit_wars.seen import MOST_FLEETS, MOST_GROUPS, MOST_PLANETS, MOST_SHIPS, Seen, position_of
from td_loop.games.orbit_wars.state import (
    ANGULAR_VELOCITY,
    COMET_GROUP,
    MAX_COMET_PATH,
    N_FLEETS,
    N_PLANETS,
    NEXT_FLEET_ID,
    STEP,
    Position,
)

MAGIC, VERSION = b"OW", 1

_HEAD = np.dtype(
    [
        ("magic", "S2"), ("version", "u1"), ("seat", "u1"), ("n_players", "u1"), ("groups", "u1"),
        ("step", "<u2"), ("planets", "<u2"), ("homes", "<u2"), ("fleets", "<u4"),
        ("next_fleet_id", "<u4"), ("angular_velocity", "<f8"),
    ]
)  # fmt: skip
_PLANET = np.dtype(
    [("x", "<f8"), ("y", "<f8"), ("radius", "<f8"), ("ships", "<u4"), ("owner", "i1"), ("production", "u1")]
)
_HOME = np.dtype([("x", "<f8"), ("y", "<f8"), ("ships", "<u4")])
_FLEET = np.dtype(
    [
        ("x", "<f8"), ("y", "<f8"), ("angle", "<f8"), ("id", "<u4"), ("ships", "<u4"),
        ("from", "<i2"), ("owner", "u1"),
    ]
)  # fmt: skip
_COMET = np.dtype([("group", "u1"), ("path", "u1")])
_GROUP = np.dtype([("path_index", "i1"), ("length", "u1"), ("ships", "<u4")])

Rows = npt.NDArray[Any]


def pack(position: Position, seat: int) -> bytes:
    """What `seat` sees of `position`: comets to come are left out.

    Raises:
        DataError: the position holds more than a body can.
    """
    b, s = position
    _check_counts(int(s.head[N_PLANETS]), int(s.head[N_FLEETS]), 0)
    if max(s.p_ships.max(initial=0), s.f_ships.max(initial=0)) > MOST_SHIPS:
        raise DataError(f"a binary body holds garrisons and fleets of up to {MOST_SHIPS} ships")
    n, k, m = int(s.head[N_PLANETS]), int(s.head[N_FLEETS]), len(b.home_x)
    shown = sorted({int(g) for g in s.p_comet[m:n]})
    head = np.zeros(1, _HEAD)
    head[0] = (
        MAGIC, VERSION, seat, b.n_players, len(shown), s.head[STEP], n, m, k, s.head[NEXT_FLEET_ID],
        b.cfg[ANGULAR_VELOCITY],
    )  # fmt: skip
    planets, homes, fleets = np.zeros(n, _PLANET), np.zeros(m, _HOME), np.zeros(k, _FLEET)
    comets, groups = np.zeros(n - m, _COMET), np.zeros(len(shown), _GROUP)
    for rows, name, values in (
        (planets, "x", s.p_x), (planets, "y", s.p_y), (planets, "radius", s.p_radius),
        (planets, "ships", s.p_ships), (planets, "owner", s.p_owner), (planets, "production", s.p_prod),
        (homes, "x", b.home_x), (homes, "y", b.home_y), (homes, "ships", b.home_ships),
        (fleets, "x", s.f_x), (fleets, "y", s.f_y), (fleets, "angle", s.f_angle), (fleets, "id", s.f_id),
        (fleets, "ships", s.f_ships), (fleets, "from", s.f_from), (fleets, "owner", s.f_owner),
    ):  # fmt: skip
        rows[name] = values[: len(rows)]
    comets["group"] = np.searchsorted(shown, s.p_comet[m:n])
    comets["path"] = s.p_member[m:n]
    groups["path_index"], groups["length"] = s.comet_at[shown], b.comet_len[shown]
    groups["ships"] = b.comet_ships[shown]
    parts = [part.tobytes() for part in (head, planets, homes, fleets, comets, groups)]
    for g in shown:
        length = int(b.comet_len[g])
        way = np.stack([b.comet_x[g, :, :length], b.comet_y[g, :, :length]], axis=2)
        parts.append(way.astype("<f8").tobytes())
    return b"".join(parts)


def _check_counts(planets: int, fleets: int, groups: int) -> None:
    counts = (("planets", planets, MOST_PLANETS), ("fleets", fleets, MOST_FLEETS), ("groups", groups, MOST_GROUPS))
    for name, count, most in counts:
        if count > most:
            raise DataError(f"binary body: {count} {name}; {most} are the most that are read")


class _Reader:
    """Takes arrays off the front of a body."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, what: str, dtype: Any, count: int) -> Rows:
        size = np.dtype(dtype).itemsize * count
        if self._at + size > len(self._body):
            raise DataError(
                f"binary body: {what} would end at byte {self._at + size}, the body has {len(self._body)}"
            )
        rows = np.frombuffer(self._body, dtype, count, self._at)
        self._at += size
        return rows

    def end(self) -> None:
        if self._at != len(self._body):
            raise DataError(f"binary body: {len(self._body) - self._at} bytes too many, from byte {self._at} on")


def unpack(body: bytes) -> tuple[Position, int]:
    """The position and the seat of a body that `pack` made; bounds are checked as those of JSON are.

    Raises:
        DataError: not such a body, or no position of an official game; the message names the place.
    """
    reader = _Reader(body)
    head = reader.take("the head", _HEAD, 1)[0]
    if head["magic"] != MAGIC or head["version"] != VERSION:
        raise DataError(f"binary body: it must begin with {MAGIC!r} and version {VERSION}")
    n, m, k, g = (int(head[name]) for name in ("planets", "homes", "fleets", "groups"))
    _check_counts(n, k, g)
    if m > n:
        raise DataError(f"binary body: {m} home planets among {n} planets")
    planets, homes = reader.take("planets", _PLANET, n), reader.take("home planets", _HOME, m)
    fleets, comets = reader.take("fleets", _FLEET, k), reader.take("comets", _COMET, n - m)
    groups = reader.take("comet groups", _GROUP, g)
    paths = np.zeros((g, COMET_GROUP, MAX_COMET_PATH, 2))
    for i in range(g):
        length = int(groups["length"][i])
        way = reader.take(f"the paths of comet group {i}", "<f8", COMET_GROUP * length * 2)
        if length <= MAX_COMET_PATH:  # `position_of` refuses the others
            paths[i, :, :length] = way.reshape(COMET_GROUP, length, 2)
    reader.end()
    return position_of(
        Seen(
            seat=int(head["seat"]),
            n_players=int(head["n_players"]),
            step=int(head["step"]),
            angular_velocity=float(head["angular_velocity"]),
            next_fleet_id=int(head["next_fleet_id"]),
            planets=_columns(np.arange(n), planets, ("owner", "x", "y", "radius", "ships", "production")),
            homes=_columns(homes["x"], homes, ("y", "ships")),
            fleets=_columns(fleets["id"], fleets, ("owner", "x", "y", "angle", "from", "ships")),
            comets=np.stack([comets["group"], comets["path"]], axis=1).astype(np.int64),
            path_index=groups["path_index"].astype(np.int64),
            path_len=groups["length"].astype(np.int64),
            ships_at_spawn=groups["ships"].astype(np.int64),
            paths=paths,
        )
    )


def _columns(first: Rows, rows: Rows, names: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """[n, 1 + len(names)] doubles."""
    out = np.empty((len(rows), 1 + len(names)))
    out[:, 0] = first
    for j, name in enumerate(names):
        out[:, 1 + j] = rows[name]
    return out
