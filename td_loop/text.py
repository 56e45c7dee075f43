"""Durations, sizes and tables that people read."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 80
"""Columns that a table may have."""


def duration(seconds: float) -> str:
    """For people: 45s, 12m05s, 3h07m, 2d04h."""
    s = max(0, round(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02d}s"
    if s < 86400:
        return f"{s // 3600}h{s // 60 % 60:02d}m"
    return f"{s // 86400}d{s // 3600 % 24:02d}h"


def size(n: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Columns as wide as they need to be, one space between them; `align` has a `<` or `>` for each."""
    widths = [max(len(row[c]) for row in [head, *rows]) for c in range(len(head))]
    return [
        " ".join(f"{cell:{a}{w}}" for cell, a, w in zip(row, align, widths, strict=True)).rstrip()
        for row in [head, *rows]
    ]
