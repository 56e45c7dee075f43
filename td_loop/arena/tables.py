"""Standings as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from td_loop.arena.sprt import Sprt, SprtState, Verdict
from td_loop.arena.standings import Pair, Row, Standings
from td_loop.text import WIDTH, table

_CELL = 6


def standings_text(s: Standings) -> str:
    """Ratings, the cross table, and each pair with its p-value."""
    if not s.rounds:
        return "no round was played whole yet"
    parts = [_ratings(s), _faults(s.rows), _cross(s), _pairs(s)]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _ratings(s: Standings) -> list[str]:
    head = ("#", "contestant", "Elo", "95 % interval", "share", "games", "won", "drawn", "ms/move")
    rows = [
        (
            str(k),
            r.label,
            f"{r.rating:+.0f}",
            f"{r.low:+.0f} .. {r.high:+.0f}",
            f"{100 * r.share:.1f}%",
            str(r.games),
            str(r.wins),
            str(r.draws),
            "-" if r.seconds_per_move is None else f"{1e3 * r.seconds_per_move:.3g}",
        )
        for k, r in enumerate(s.rows, 1)
    ]
    return [f"{s.seats} seats, {s.rounds} maps, {s.games} games", *table(head, rows, "><>>>>>>>")]


def _faults(rows: Sequence[Row]) -> list[str]:
    return [
        f"{r.label} lost {n} game{'s' if n > 1 else ''} by {_FAULTS.get(kind, kind)}"
        for r in rows
        for kind, n in sorted(r.faults.items())
    ]


_FAULTS = {"timeout": "running out of time", "crash": "a crash", "invalid": "an invalid action"}


def _cross(s: Standings) -> list[str]:
    """Rows against columns, in blocks that fit."""
    if len(s.rows) < 3:
        return []
    cells: dict[tuple[str, str], float] = {}
    for p in s.pairs:
        cells[p.a, p.b] = p.score_a
        if p.score_b is not None:
            cells[p.b, p.a] = p.score_b
    names = [r.label for r in s.rows]
    number, label = len(str(len(names))), max(map(len, names))
    room = max(1, (WIDTH - number - 1 - label) // _CELL)
    lines = [f"won by the row against the column, in % ({_even(s)} is even)"]
    for first in range(0, len(names), room):
        columns = range(first, min(first + room, len(names)))
        lines.append(" " * (number + 1 + label) + "".join(f"{f'#{c + 1}':>{_CELL}}" for c in columns))
        for k, name in enumerate(names):
            row = [_percent(cells.get((name, names[c]))) for c in columns]
            lines.append(f"{k + 1:>{number}} {name:<{label}}" + "".join(f"{x:>{_CELL}}" for x in row))
    return lines


def _even(s: Standings) -> str:
    return " or ".join(f"{100 * even:g} %" for even in sorted({p.even for p in s.pairs}))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _pairs(s: Standings) -> list[str]:
    head = ("", "", "maps", "won", "even", "lost", "score", "p")
    rows = [
        (p.a, p.b, str(p.rounds), *map(str, p.rounds_won), _score(p), f"{max(p.p_value, 1e-99):.2g}")
        for p in s.pairs
    ]
    return [f"the first against the second, map by map ({_even(s)} is even)", *table(head, rows, "<<>>>>>>")]


def _score(p: Pair) -> str:
    both = p.score_b is not None and p.even != 0.5  # else the second one is 100 % less the first
    return _percent(p.score_a) + (f":{_percent(p.score_b)}" if both else "")


def sprt_text(test: Sprt, state: SprtState, a: str, b: str) -> str:
    """How a sequential test ended, in words."""
    low, high = test.bounds
    seen = ", ".join(f"{x:g}: {n}" for x, n in zip(state.scores, state.counts, strict=True) if n)
    ended = {
        Verdict.ACCEPTED: f"H1 accepted: {a} is {test.elo1:+g} Elo above {b}, not {test.elo0:+g}",
        Verdict.REJECTED: f"H0 accepted: {a} is {test.elo0:+g} Elo above {b}, not {test.elo1:+g}",
        Verdict.UNDECIDED: f"undecided: {a} is {test.elo0:+g} or {test.elo1:+g} Elo above {b}",
    }[state.verdict]
    lines = [
        ended,
        f"log likelihood ratio {state.llr:.2f} in ({low:.2f}, {high:.2f}) after {state.rounds} maps",
        *textwrap.wrap(f"maps by {a}'s score: {seen or 'none'}", WIDTH),
    ]
    return "\n".join(lines)
