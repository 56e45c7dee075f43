"""What a server counts, one row of doubles a process in a mapped file: `/metrics` of any process shows the sums.

Each process writes its own row, from its event loop alone, so that counting takes no lock. A process that is
started anew goes on in the row of the one that died; a server that is started anew begins at zero.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from td_loop.deploy import names
from td_loop.deploy.names import SUBSETS, Subset
from td_loop.deploy.server.mapped import HEAD_BYTES, Mapped

FILE = "metrics"
_READY = 64  # word of the head: policies that each process serves, see `set_ready`

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Cells that Prometheus calls by one name.

    Attributes:
        name: of the metric.
        kind: counter, gauge or histogram.
        help: one line.
        cells: the name's suffix, the labels and the place in a row; every bucket has its own count.
    """

    name: str
    kind: str
    help: str
    cells: tuple[tuple[str, Labels, int], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Places of a histogram: one a bucket of `names.LATENCY_BUCKETS` and one beyond, then the sum."""

    buckets: int
    sum: int


@dataclass(frozen=True, slots=True)
class SubsetCells:
    """Places of one subset's counters."""

    requests: int
    fallbacks: dict[str, int]
    errors: int
    in_flight: int
    episodes: int
    seconds: Histogram
    reward_count: int
    reward_positive: int
    reward_negative: int
    reward_squares: int
    reward_fallback: int
    reward_uncredited: dict[str, int]
    entropy_sum: int
    entropy_count: int
    replayed: int
    differing: int
    agreeing: int


@dataclass(frozen=True, slots=True)
class EngineCells:
    """Places of what a process uses."""

    cpu: int
    voluntary: int
    involuntary: int
    run_queue: int
    throttled: int


class _Layout:
    """Hands out places, and remembers what Prometheus calls them."""

    def __init__(self) -> None:
        self.size = 0
        self._families: dict[str, tuple[str, str, list[tuple[str, Labels, int]]]] = {}

    def cell(self, name: str, what: str, text: str, suffix: str = "", **labels: str) -> int:
        cells = self._families.setdefault(name, (what, text, []))[2]
        cells.append((suffix, tuple(labels.items()), self.size))
        self.size += 1
        return self.size - 1

    def histogram(self, name: str, text: str, **labels: str) -> Histogram:
        first = self.size
        for bound in (*map(str, names.LATENCY_BUCKETS), "+Inf"):
            self.cell(name, "histogram", text, "_bucket", **labels, le=bound)
        return Histogram(first, self.cell(name, "histogram", text, "_sum", **labels))

    def subset(self, subset: Subset) -> SubsetCells:
        of = {"subset": subset}

        def count(name: str, text: str, **labels: str) -> int:
            return self.cell(name, "counter", text, **of, **labels)

        def reward(suffix: str, text: str) -> int:
            return self.cell(f"{names.REWARD.format(subset=subset)}_{suffix}", "counter", text)

        return SubsetCells(
            requests=count(names.REQUESTS, "Decisions asked for."),
            fallbacks={
                reason: count(names.FALLBACKS, "Answers of the rule.", reason=reason)
                for reason in names.FALLBACK_REASONS
            },
            errors=count(names.ERRORS, "Requests answered with a 5xx status, or by nobody."),
            in_flight=self.cell(names.IN_FLIGHT, "gauge", "Decisions that are being made.", **of),
            episodes=count(names.EPISODES, "Episodes that the router gave to the subset."),
            seconds=self.histogram(names.DECISION_SECONDS, "From the request read to the answer written.", **of),
            reward_count=reward("count", "Rewards of the policy's own answers."),
            reward_positive=reward("positive_sum", "What rewards above zero add up to."),
            reward_negative=reward("negative_sum", "What rewards below zero add up to, without the sign."),
            reward_squares=reward("squares_sum", "Sum of the squares of rewards."),
            reward_fallback=count(names.REWARDS_OF_FALLBACKS, "Rewards reported for answers of the rule."),
            reward_uncredited={
                reason: count(names.REWARDS_UNCREDITED, "Rewards that no policy has earned.", reason=reason)
                for reason in names.UNCREDITED_REASONS
            },
            entropy_sum=self.cell(names.ENTROPY + "_sum", "counter", "Entropies of decisions, nats.", **of),
            entropy_count=self.cell(names.ENTROPY + "_count", "counter", "Decisions with an entropy.", **of),
            replayed=count(names.REPLAYED, "States asked for again."),
            differing=count(names.NONDETERMINISM, "Replayed states that were answered differently."),
            agreeing=count(names.SHADOW_AGREEING, "Answers in shadow that were those of the stable policy."),
        )

    def engine(self) -> EngineCells:
        def count(name: str, text: str, **labels: str) -> int:
            return self.cell(name, "counter", text, **labels)

        return EngineCells(
            count(names.CPU_SECONDS, "Processor time of all server processes."),
            count(names.CONTEXT_SWITCHES, "Context switches.", kind="voluntary"),
            count(names.CONTEXT_SWITCHES, "Context switches.", kind="involuntary"),
            count(names.RUN_QUEUE_SECONDS, "Time that threads which could run waited for a core."),
            count(names.THROTTLED_SECONDS, "Time that the control group was throttled."),
        )

    def families(self) -> tuple[Family, ...]:
        return tuple(Family(name, kind, text, tuple(c)) for name, (kind, text, c) in self._families.items())


_layout = _Layout()
CELLS: dict[Subset, SubsetCells] = {subset: _layout.subset(subset) for subset in SUBSETS}
ENGINE = _layout.engine()
FAMILIES = _layout.families()
SIZE = _layout.size


class Counters:
    """The rows of one server, as one of its processes sees them."""

    def __init__(self, folder: Path, processes: int, process: int = 0, *, fresh: bool = False) -> None:
        """Open the rows of `processes` processes; `fresh`: set them to zero, as the server does when it starts.

        Raises:
            StorageError: the file cannot be made.
        """
        what = f"td_loop metrics 1: {processes} processes, {SIZE} counters\n"
        self._file = Mapped(folder / FILE, what, processes * SIZE * 8, fresh=fresh)
        self._all = self._file.words.cast("B").cast("d")
        self._processes, self._process = processes, process
        self._base = HEAD_BYTES // 8 + process * SIZE

    def close(self) -> None:
        """Give the file back."""
        self._all.release()
        self._file.close()

    def add(self, cell: int, x: float = 1.0) -> None:
        """Count in this process's row."""
        self._all[self._base + cell] += x

    def set(self, cell: int, x: float) -> None:
        """Replace a number of this process's row."""
        self._all[self._base + cell] = x

    def own(self, cell: int) -> float:
        """A number of this process's row."""
        return self._all[self._base + cell]

    def observe(self, histogram: Histogram, seconds: float) -> None:
        """Count a duration."""
        self.add(histogram.buckets + bisect_left(names.LATENCY_BUCKETS, seconds))
        self.add(histogram.sum, seconds)

    def totals(self) -> list[float]:
        """[SIZE] sums over all processes."""
        first = HEAD_BYTES // 8
        rows = [self._all[first + k * SIZE : first + (k + 1) * SIZE].tolist() for k in range(self._processes)]
        return [sum(column) for column in zip(*rows, strict=True)]

    def set_ready(self, revision: int) -> None:
        """Let the others know which revision of the policies this process serves."""
        self._file.words[_READY + self._process] = revision

    def bury(self, process: int) -> None:
        """A process has died: it serves nothing, and whoever waited for a decision of it gets none."""
        self._file.words[_READY + process] = 0
        row = HEAD_BYTES // 8 + process * SIZE
        for cells in CELLS.values():
            lost, self._all[row + cells.in_flight] = self._all[row + cells.in_flight], 0.0
            self._all[row + cells.requests] += lost
            self._all[row + cells.errors] += lost

    def ready(self) -> list[int]:
        """The revision that each process serves; 0 of one that is not warm yet."""
        return self._file.words[_READY : _READY + self._processes].tolist()


def samples(family: Family, totals: list[float]) -> Iterator[tuple[str, Labels, float]]:
    """Name, labels and value of a family's samples; buckets are cumulative, and followed by their `_count`."""
    running = 0.0
    for suffix, labels, place in family.cells:
        value = totals[place]
        if suffix == "_bucket":
            running += value
            value = running
        yield family.name + suffix, labels, value
        if suffix == "_sum" and family.kind == "histogram":
            yield family.name + "_count", labels, running
            running = 0.0
