"""The compact binary answer of the server: a table of numbers, one row a move.

Rows and columns as u32, then the numbers as doubles, row by row; everything little-endian.
"""

from __future__ import annotations

import struct
from typing import Any

from td_loop.errors import DataError

_SHAPE = struct.Struct("<II")


def pack_moves(moves: list[list[Any]]) -> bytes | None:
    """The table; None of moves that are no such table."""
    columns = len(moves[0]) if moves else 0
    try:
        return _SHAPE.pack(len(moves), columns) + b"".join(struct.pack(f"<{columns}d", *row) for row in moves)
    except struct.error:
        return None


def unpack_moves(body: bytes) -> list[list[float]]:
    """The inverse.

    Raises:
        DataError: it is none.
    """
    try:
        rows, columns = _SHAPE.unpack_from(body)
        numbers = struct.unpack(f"<{rows * columns}d", body[_SHAPE.size :])
    except struct.error as e:
        raise DataError(f"the server's answer is no table of moves ({e})") from e
    return [list(numbers[i : i + columns]) for i in range(0, len(numbers), columns or 1)]
