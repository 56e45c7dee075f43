"""Where the guard reads telemetry from: what every transport promises, and how bytes become records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from td_loop.guard.record import MAX_LINE, BadLine, Record, parse
from td_loop.guard.sinks import REDIS, UNIX

MAX_BYTES = 1 << 20
"""Bytes that one poll takes at most: some 10,000 lines, some 20 ms."""

MAX_FAULTS = 20
"""Faults that one poll spells out; of more it gives the number."""

Position = Mapping[str, int | str]
"""How far a source has been read: plain JSON, to be handed to a source of the same address later."""


@dataclass(frozen=True, slots=True)
class Poll:
    """What has come since the last poll.

    Attributes:
        records: in the order in which they came.
        faults: what could not be read, each a sentence that names the place.
        more: whether there is more to be had at once.
    """

    records: Sequence[Record] = ()
    faults: Sequence[str] = ()
    more: bool = False


class Source(Protocol):
    """A stream of telemetry. It never waits, and a poll does a bounded piece of work."""

    def poll(self) -> Poll:
        """Take what is there. Nothing that writers or disks do raises."""
        ...

    def address(self) -> str:
        """What training processes have to be given as TD_GUARD_TELEMETRY."""
        ...

    def position(self) -> Position:
        """The place behind the last record that was handed out; empty where there is none to go back to."""
        ...

    def close(self) -> None:
        """Let go of files, sockets and threads."""
        ...


def open_source(where: str | Path, at: Position | None = None) -> Source:
    """The source of an address, from its start or from where another one stood.

    Args:
        where: a file, `unix:/path/of.sock` (`unix:` alone: a path is chosen), or
            `redis://host:port/db?stream=NAME`.
        at: a `position()` of a source of the same address. Without it a file is read from its start, and a stream
            of Redis from what comes from now on.

    Raises:
        UsageError: an address that cannot be meant or is in use, a server that cannot be reached, or the package
            `redis` is not installed.
        StorageError: no socket can be made in the folder.
    """
    text = str(where)
    if text.startswith(UNIX):
        from td_loop.guard.unix_socket import UnixSource

        return UnixSource(text.removeprefix(UNIX) or None)
    if text.startswith(REDIS):
        from td_loop.guard.redis_stream import RedisSource

        return RedisSource(text, at)
    from td_loop.guard.follow import FileSource

    return FileSource(Path(text), at)


@dataclass
class Batch:
    """A poll in the making."""

    records: list[Record] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    more: bool = False

    def line(self, line: bytes, where: str) -> None:
        """Add a line, which stands at `where`. One without content is nothing, one that is no record a fault."""
        if not line or line.isspace():
            return
        try:
            self.records.append(parse(line))
        except BadLine as e:
            self.faults.append(f"{where}: {e}; the line is left out")

    def poll(self) -> Poll:
        """What it came to."""
        faults, over = self.faults[:MAX_FAULTS], len(self.faults) - MAX_FAULTS
        if over > 0:
            faults.append(f"and {over} more faults")
        return Poll(self.records, faults, self.more)


class Lines:
    """Cuts a stream of bytes into lines. Half a line waits for its rest while it has MAX_LINE bytes at most."""

    def __init__(self, name: str, start: int = 0) -> None:
        """`name` and `start` (bytes of the stream before this) are for the faults."""
        self._name = name
        self._half = b""
        self.start = start
        """Where the line begins whose newline has not come yet, in bytes."""
        self._skipped = 0  # bytes of that line that were thrown away, because it is too long

    def feed(self, data: bytes, batch: Batch) -> None:
        """Add the lines that `data` completes to `batch`."""
        pieces = (self._half + data).split(b"\n")
        for line in pieces[:-1]:
            if self._skipped:  # the end of a line that is too long
                self.start += self._skipped + len(line) + 1
                self._skipped = 0
                continue
            batch.line(line, f"{self._name}, byte {self.start}")
            self.start += len(line) + 1
        self._half = pieces[-1]
        if self._skipped or len(self._half) > MAX_LINE:
            if not self._skipped:
                batch.faults.append(
                    f"{self._name}, byte {self.start}: has more than {MAX_LINE} bytes without a newline; "
                    "the line is left out"
                )
            self._skipped += len(self._half)
            self._half = b""

    def end(self, batch: Batch) -> None:
        """There will be no more: half a line is a fault."""
        if self._half.strip():
            batch.faults.append(
                f"{self._name}, byte {self.start}: ends in mid-line; {len(self._half)} bytes are left out"
            )


class Complaints:
    """Says the same of a lasting condition only once."""

    def __init__(self) -> None:
        self._said: str | None = None

    def say(self, batch: Batch, text: str) -> None:
        """Add `text` to the faults, unless it was the last thing said."""
        if text != self._said:
            batch.faults.append(text)
            self._said = text

    def over(self) -> None:
        """The condition has gone: it may be said again."""
        self._said = None
