"""Many crash points, a few at a time, and a sample of them that leaves no kind of change out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import NamedTuple

from tests.crash.faults import Change, Kind
from tests.crash.runs import Bench, ForkServer, Scenario

KINDS = tuple(kind for kind in Kind if kind is not Kind.COUNT)


class Point(NamedTuple):
    """Where to do what: the change `number` (from 1) of a scenario."""

    scenario: str
    kind: Kind
    number: int


@dataclass(frozen=True)
class Tried:
    """A point that was tried, what it hit, and what was wrong then."""

    point: Point
    change: Change
    problems: list[str]

    def __str__(self) -> str:
        p = self.point
        return "\n".join(
            [
                f"{p.scenario}: {p.kind} at {p.number}, {self.change}",
                *(f"  {problem}" for problem in self.problems),
                f"  python benchmarks/crash_points.py --scenario {p.scenario} --kind {p.kind} --point {p.number}",
            ]
        )


class Sweep:
    """Scenarios, ready to be spoiled; `jobs` of each, every one in a folder of its own below `work`."""

    def __init__(self, scenarios: Sequence[Scenario], work: Path, jobs: int) -> None:
        self._stack, self._free = ExitStack(), SimpleQueue[dict[str, Bench]]()
        with ExitStack() as stack:
            servers = [stack.enter_context(ForkServer()) for _ in range(jobs)]
            self._pool = stack.enter_context(ThreadPoolExecutor(jobs))

            def make(job: int) -> dict[str, Bench]:
                return {s.name: Bench(s, work / f"job{job}", servers[job]) for s in scenarios}

            made = list(self._pool.map(make, range(jobs)))
            for benches in made:
                self._free.put(benches)
            self._stack = stack.pop_all()
        self.changes = {name: bench.changes for name, bench in made[0].items()}
        """What each scenario does when nothing happens to it."""
        again = [bench.changes for benches in made[1:] for bench in benches.values()]
        again = again or [bench.count() for bench in made[0].values()]
        for changes, wanted in zip(again, list(self.changes.values()) * jobs, strict=False):
            assert changes == wanted, f"not the same twice: {_first_other(wanted, changes)}"

    def __enter__(self) -> Sweep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def points(self, kind: Kind) -> list[Point]:
        """All points of a kind."""
        return [
            Point(name, kind, k)
            for name, changes in self.changes.items()
            for k, change in enumerate(changes, 1)
            if kind is not Kind.FULL or change.needs_space
        ]

    def sample(self, kind: Kind) -> list[Point]:
        """For each process and what it does, the middle one of the changes of the shortest scenario with any."""
        chosen: dict[tuple[str, str], list[Point]] = {}
        shortest = sorted(self.points(kind), key=lambda p: (len(self.changes[p.scenario]), p))
        for point in shortest:
            change = self.changes[point.scenario][point.number - 1]
            alike = chosen.setdefault((change.process, change.what), [point])
            if point.scenario == alike[0].scenario and point not in alike:
                alike.append(point)
        return [alike[len(alike) // 2] for alike in chosen.values()]

    @contextmanager
    def lend(self, scenario: str) -> Iterator[Bench]:
        """A scenario's bench, for the caller alone."""
        benches = self._free.get()
        try:
            yield benches[scenario]
        finally:
            self._free.put(benches)

    def try_all(self, points: Sequence[Point], advance: Callable[[int], None] = lambda _: None) -> list[Tried]:
        """Try points; `advance` hears of each that is done."""

        def try_one(point: Point) -> Tried:
            with self.lend(point.scenario) as bench:
                problems = bench.problems(point.kind, point.number)
            advance(1)
            return Tried(point, self.changes[point.scenario][point.number - 1], problems)

        return list(self._pool.map(try_one, points))


def _first_other(a: list[Change], b: list[Change]) -> str:
    for k, (x, y) in enumerate(zip(a, b, strict=False), 1):
        if x != y:
            return f"change {k} was {x}, then {y}"
    return f"{len(a)} changes, then {len(b)}"
