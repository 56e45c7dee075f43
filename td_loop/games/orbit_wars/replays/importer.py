"""Import: episode files into a store, one at a time. A bad file is named and skipped; it never stops an import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.record import GameRecord
from td_loop.games.orbit_wars.replays.sources import Reader, Source
from td_loop.games.orbit_wars.replays.verify import verdict
from td_loop.games.orbit_wars.replays.writer import StoreWriter, append_to_store, new_store
from td_loop.progress import progress

_REASONS_SHOWN = 5


@dataclass
class ImportReport:
    """What an import did.

    Attributes:
        imported: games added.
        frames: their frames.
        launches: their launches.
        skipped: message a bad file, each starting with its name.
        duplicates: (name, name of the game it repeats).
        no_outcome: (name, why) of games added without a usable outcome.
        inexact: (name, first difference) of games added that our engine does not reproduce.
    """

    imported: int = 0
    frames: int = 0
    launches: int = 0
    skipped: list[str] = field(default_factory=list)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    no_outcome: list[tuple[str, str]] = field(default_factory=list)
    inexact: list[tuple[str, str]] = field(default_factory=list)

    def add(self, record: GameRecord, difference: str) -> None:
        """Count a game that was added."""
        self.imported += 1
        self.frames += record.n_frames
        self.launches += record.n_launches
        if why := record.outcome_or_why[1]:
            self.no_outcome.append((record.name, why))
        if difference:
            self.inexact.append((record.name, difference))


def import_games(
    sources: Sequence[Source],
    store: Path,
    *,
    append: bool = False,
    verify: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> ImportReport:
    """Import episode files into `store`.

    Args:
        sources: from `find_sources`.
        store: folder to make, or to add to.
        append: add to a store that is there.
        verify: re-simulate each game and keep the verdict in the index.
        say: told of each file that is skipped, at once.

    Raises:
        FileExistsError: `store` exists and `append` is not set.
        ReplayError: nothing could be imported (nothing is left behind then).
        StorageError: the disk refused.
    """
    report = ImportReport()
    with (append_to_store if append else new_store)(store) as writer, Reader() as reader:
        with progress("import", len(sources)) as advance:
            for source in sources:
                try:
                    _add(parse_episode(reader.read(source), source.name), writer, report, verify=verify)
                except ReplayError as e:
                    report.skipped.append(str(e))
                    say(str(e))
                advance(1)
        if not report.imported and not report.duplicates:
            reasons = "\n".join(f"  {reason}" for reason in report.skipped[:_REASONS_SHOWN])
            raise ReplayError(
                f"{store}: not written, none of {len(sources)} file(s) could be imported; why:\n{reasons}"
            )
    return report


def _add(record: GameRecord, writer: StoreWriter, report: ImportReport, *, verify: bool) -> None:
    if original := writer.seen.get(record.content_id):
        report.duplicates.append((record.name, original))
        return
    found = verdict(record) if verify else None
    writer.add(record, found.label if found else "")
    report.add(record, found.label if found and found.difference else "")
