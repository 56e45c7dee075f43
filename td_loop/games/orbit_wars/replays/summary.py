"""Replays as text: a line a game for `verify`, a table for `info`. Nothing is wider than 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.replays.layout import DTYPES, Entry, is_store, make_entry
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.record import GameRecord
from td_loop.games.orbit_wars.replays.sources import Reader, find_sources
from td_loop.games.orbit_wars.replays.store import ReplayStore
from td_loop.games.orbit_wars.replays.verify import STEPWISE, Verdict, verdict

_WIDTH = 80
_NAME = 24


def _records(patterns: Sequence[str]) -> Iterator[tuple[str, GameRecord | ReplayError]]:
    """(name, game or why it cannot be read) of every game of stores and episode files, one in memory at a time."""
    with Reader() as reader:
        for pattern in patterns:
            if is_store(Path(pattern)):
                store = ReplayStore(Path(pattern))
                for game, entry in enumerate(store.entries):
                    record = store.record(game)
                    if record.content_id == entry.content_id:
                        yield entry.name, record
                    else:
                        yield entry.name, ReplayError("its frames are not those imported: damaged, import again")
                continue
            for source in find_sources([pattern]):
                try:
                    yield source.name, parse_episode(reader.read(source), source.name)
                except ReplayError as e:
                    yield source.name, e


def verify_lines(patterns: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """One line a game, as it is verified, and whether it agrees with our engine.

    Raises:
        ReplayError: a pattern names nothing.
    """
    for name, game in _records(patterns):
        if isinstance(game, ReplayError):
            reason = str(game).removeprefix(f"{name}: ")
            yield _wrapped(f"{_short(name)}  unreadable: {reason}"), False
            continue
        found = verdict(game)
        head = f"{_short(name)} {game.n_players}P {game.module_version or '?':>7} {game.n_frames:>4} frames  "
        yield _wrapped(head + _verdict_text(found)), found.difference is None


def _verdict_text(found: Verdict) -> str:
    how = "" if found.from_seed else "no seed: compared tick by tick from observed frames, "
    if found.difference is None:
        return "exact" if found.status != STEPWISE else how + "exact"
    d = found.difference
    return f"{how}differs at turn {d.turn}: {d.field}, recorded {d.recorded:.17g}, ours {d.ours:.17g}"


def _short(name: str) -> str:
    """A name cut to its last _NAME characters (the telling end of an episode's name), padded."""
    return (name if len(name) <= _NAME else "…" + name[1 - _NAME :]).ljust(_NAME)


def _wrapped(line: str) -> str:
    """`line` broken at spaces to at most _WIDTH columns, continued under an indent."""
    lines = []
    while len(line) > _WIDTH:
        cut = line.rfind(" ", 8, _WIDTH + 1)
        cut = cut if cut > 0 else _WIDTH
        lines.append(line[:cut])
        line = "    " + line[cut:].lstrip()
    return "\n".join([*lines, line])


def describe(patterns: Sequence[str]) -> str:
    """The table of `td-loop replays info`.

    Raises:
        ReplayError: a pattern names nothing.
    """
    entries: list[Entry] = []
    unreadable: list[str] = []
    size = 0
    files_read: list[str] = []
    for pattern in patterns:
        folder = Path(pattern)
        if is_store(folder):
            entries += ReplayStore(folder).entries
            size += sum(p.stat().st_size for p in folder.iterdir() if p.is_file())
        else:
            files_read.append(pattern)
    if files_read:
        size += sum(path.stat().st_size for path in {s.path for s in find_sources(files_read)})
        for _, game in _records(files_read):
            if isinstance(game, ReplayError):
                unreadable.append(str(game))
            else:
                entries.append(make_entry(game, dict.fromkeys(DTYPES, 0), ""))
    return "\n".join(_describe(entries, unreadable, size))


def _describe(entries: Sequence[Entry], unreadable: Sequence[str], size: int) -> Iterator[str]:
    seats = sorted({e.n_players for e in entries})
    yield f"{'':<26}" + "".join(f"{f'{n} seats':>12}" for n in seats) + f"{'all':>12}"
    groups = [[e for e in entries if e.n_players == n] for n in seats] + [list(entries)]

    def row(title: str, numbers: Iterable[int]) -> str:
        return f"{title:<26}" + "".join(f"{n:>12,}" for n in numbers)

    yield row("games", map(len, groups))
    yield row("distinct games", (len({e.content_id for e in g}) for g in groups))
    yield row("frames", (sum(e.n_frames for e in g) for g in groups))
    yield row("usable frames", (sum(e.usable_frames for e in g) for g in groups))
    yield row("launches", (sum(e.n_launches for e in g) for g in groups))
    yield row("longest game, frames", (max((e.n_frames for e in g), default=0) for g in groups))
    yield row("outcome usable", (sum(e.outcome is not None for e in g) for g in groups))
    for seat in range(max(seats, default=0)):
        wins = (sum(e.outcome is not None and e.outcome[seat] == 1 for e in g) for g in groups)
        yield row(f"  won by seat {seat}", wins)
    shared = (sum(e.outcome is not None and max(e.outcome) < 1 for e in g) for g in groups)
    yield row("  shared", shared)
    yield row("seed known", (sum(e.seed is not None for e in g) for g in groups))
    checked = [Counter(_class(e.verified) for e in g) for g in groups]
    for label in ("exact", "exact tick by tick", "differs", "not verified"):
        if any(c[label] for c in checked):
            yield row(label, (c[label] for c in checked))
    yield ""
    versions = Counter(e.module_version or "unknown" for e in entries)
    yield "module versions: " + ", ".join(f"{v} ({n})" for v, n in sorted(versions.items()))
    yield f"on disk: {size / 2**20:.1f} MiB"
    yield "A crashed seat's game: frames before the crash are used, its outcome is not."
    for title, lines in (
        ("without outcome", [f"{e.name}: {e.why_no_outcome}" for e in entries if e.why_no_outcome]),
        ("differs", [f"{e.name}: {e.verified}" for e in entries if _class(e.verified) == "differs"]),
        ("unreadable", unreadable),
    ):
        if lines:
            yield f"{title}:"
            yield from (_wrapped(f"  {line}") for line in lines)


def _class(verified: str) -> str:
    return {"": "not verified", "exact": "exact", STEPWISE: "exact tick by tick"}.get(verified, "differs")
