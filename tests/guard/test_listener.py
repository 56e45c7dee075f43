from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from td_loop.guard import listener as listening
from td_loop.guard.config import GuardConfig
from td_loop.guard.console import Console, Faults
from td_loop.guard.listener import Listener
from td_loop.guard.record import Record
from td_loop.guard.sources import Poll, Position
from td_loop.guard.store import Store


class Endless:
    """A source with many records more than are to be held at once."""

    def __init__(self, records: Iterator[Record]) -> None:
        self._records = records
        self.polls = 0

    def poll(self) -> Poll:
        self.polls += 1
        found = [r for _, r in zip(range(100), self._records, strict=False)]
        return Poll(found, more=len(found) == 100)

    def address(self) -> str:
        return "memory"

    def position(self) -> Position:
        return {}

    def close(self) -> None:
        pass


def made(folder: Path, source: Endless) -> Listener:
    console = Console()
    found = Listener(folder, GuardConfig(), Store(folder), console, Faults(console), 0)
    found._source = source
    return found


def test_what_is_left_is_heard_piece_by_piece_and_nothing_is_judged_after_a_trip(tmp_path: Path) -> None:
    def records() -> Iterator[Record]:
        for step in range(1000):
            yield Record(step, {"kl": 0.9 if step >= 500 else 0.01})

    source = Endless(records())
    listener = made(tmp_path, source)
    told: list[int] = []
    trip = listener.hear_rest(lambda step, _: told.append(step))
    assert trip is not None
    assert trip.step == 502
    assert told[-1] == 502
    assert listener.watch.last == 999
    assert source.polls == 11


def test_a_run_without_any_checkpoint_is_told_of_once(tmp_path: Path) -> None:
    listener = made(tmp_path, Endless(Record(step, {"kl": 0.01}) for step in range(3 * listening.UNKEPT)))
    listener.hear_rest(lambda *_: None)
    assert listener._faults.counts == {"no checkpoint": 1}


def test_records_of_one_step_count_once(tmp_path: Path) -> None:
    listener = made(tmp_path, Endless(Record(step // 3, {"kl": 0.01}) for step in range(90)))
    told: list[int] = []
    listener.hear_rest(lambda step, _: told.append(step))
    assert told == list(range(30))
