"""The telemetry in a guard's folder: read line by line, whatever its size, and only the end of it kept."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from td_loop.errors import DataError
from td_loop.guard.record import MAX_LINE, BadLine, Record, parse

TAIL = 20_000
"""Records before the trip that are kept."""

_FILE = re.compile(r"telemetry\.a(\d+)\.jsonl")


@dataclass(frozen=True)
class Series:
    """A metric over the records that report it.

    Attributes:
        steps: i64[N].
        values: f64[N]; they may be NaN or infinite.
    """

    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]

    @property
    def finite(self) -> Series:
        """Without the values that are not."""
        good = np.isfinite(self.values)
        return Series(self.steps[good], self.values[good])


@dataclass
class RateTrace:
    """The learning rate of an attempt, of which nothing but its turning points is kept.

    Attributes:
        first: the first rate.
        highest: the highest one.
        last: the last one, and `last_step` its step.
        flat_since: the step from which on the rate has been `last`.
    """

    first: float
    highest: float
    last: float
    last_step: int
    flat_since: int

    def add(self, step: int, rate: float) -> None:
        """One more record."""
        if not math.isclose(rate, self.last, rel_tol=1e-6, abs_tol=0.0):
            self.flat_since = step
        self.highest = max(self.highest, rate)
        self.last, self.last_step = rate, step


@dataclass
class History:
    """The telemetry of one attempt, up to and with the step that tripped.

    Attributes:
        attempt: its number.
        path: the file.
        records: the last TAIL of them.
        total: how many there were.
        bad: lines that were no records; `first_bad` says where the first one is and why.
        foreign: records of other attempts, and of steps after the trip: what a process wrote late.
        rate: of learning; None where it was not reported.
    """

    attempt: int
    path: Path
    records: deque[Record] = field(default_factory=lambda: deque(maxlen=TAIL))
    total: int = 0
    bad: int = 0
    first_bad: str = ""
    foreign: int = 0
    rate: RateTrace | None = None

    def series(self, metric: str) -> Series | None:
        """A metric over the records kept; None where none has it."""
        found = [(r.step, r.values[metric]) for r in self.records if metric in r.values]
        if not found:
            return None
        steps, values = zip(*found, strict=True)
        return Series(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics in the records kept, in their order of appearance."""
        return list(dict.fromkeys(name for r in self.records for name in r.values))


def telemetry_files(folder: Path) -> Mapping[int, Path]:
    """The telemetry files of a guard's folder by attempt."""
    found = {int(m[1]): p for p in folder.glob("telemetry.a*.jsonl") if (m := _FILE.fullmatch(p.name))}
    return dict(sorted(found.items()))


def read_history(path: Path, attempt: int, until: int | None = None) -> History:
    """Read an attempt's file.

    Args:
        path: of the file.
        attempt: records that say they are of another one do not count.
        until: last step that counts; None: all do.

    Raises:
        DataError: the file cannot be read.
    """
    history = History(attempt, path)
    try:
        with path.open("rb") as f:
            for at, line in _lines(f):
                _add(history, at, line, until)
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}; see to the disk and the permissions") from e
    return history


def _lines(f: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Whole lines with their byte offsets. Of one that is too long only the beginning is handed on."""
    at = 0
    while line := f.readline(MAX_LINE + 1):
        size, piece = len(line), line
        while not piece.endswith(b"\n") and (piece := f.readline(MAX_LINE + 1)):
            size += len(piece)
        if piece:  # else it is the last line, still being written or torn
            yield at, line
        at += size


def _add(history: History, at: int, line: bytes, until: int | None) -> None:
    try:
        record = parse(line)
    except BadLine as e:
        history.bad += 1
        history.first_bad = history.first_bad or f"byte {at}: {e}"
        return
    if record.attempt not in (None, history.attempt) or (until is not None and record.step > until):
        history.foreign += 1
        return
    history.total += 1
    history.records.append(record)
    rate = record.values.get("lr")
    if rate is None or not math.isfinite(rate):
        return
    if history.rate is None:
        history.rate = RateTrace(rate, rate, rate, record.step, record.step)
    else:
        history.rate.add(record.step, rate)
