"""Plain text of at most 80 columns: wrapped sentences, numbers. Tables are in `td_loop.text`."""

from __future__ import annotations

import math
import textwrap
from typing import Any

from td_loop.errors import DataError
from td_loop.files import as_float
from td_loop.lock import Holder
from td_loop.text import WIDTH


def count(n: int, thing: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def indented(label: str, text: str) -> list[str]:
    """`text` after `label`, wrapped so that it stays beside it. A path or hash is never broken."""
    lines = textwrap.wrap(
        text,
        WIDTH - len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f"{label if k == 0 else ' ' * len(label)}{line}".rstrip() for k, line in enumerate(lines or [""])]


def number(value: Any, style: str = ".4f") -> str:
    """A JSON number for people; "-" where there is none."""
    if value is None:
        return "-"
    try:
        x = as_float(value)
    except DataError:
        return "?"
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else ("inf" if x > 0 else "-inf")
    return f"{x:{style}}" if abs(x) < 1e6 or style != ".4f" else f"{x:.3g}"


def driver_line(driver: Holder) -> str:
    """Who works on a run."""
    since = "" if driver.since is None else f" since {driver.since}"
    return f"a driver is at work: {driver.who}{since}"
