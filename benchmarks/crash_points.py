"""Kill a run, or fail its disk, at every change that it makes: `python benchmarks/crash_points.py --help`.

Three scenarios of tiny runs on the toy game (tests/crash/runs.py): each undisturbed at first, which gives the list
of its changes; then once for every change and kind of fault, resumed, and checked after both. Exit code 1 if
anything was not as it must be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).parents[1]))

from td_loop.progress import progress
from tests.crash.faults import Change, Kind
from tests.crash.runs import SCENARIOS, Bench, ForkServer

KINDS = [kind for kind in Kind if kind is not Kind.COUNT]


@dataclass(frozen=True)
class Tried:
    """One point, and what was wrong."""

    scenario: str
    kind: Kind
    point: int
    change: Change
    problems: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append", help="kind of fault (default: all)")
    names = [s.name for s in SCENARIOS]
    parser.add_argument("--scenario", choices=names, action="append", help="default: all")
    parser.add_argument("--every", type=int, default=1, help="try every so-manieth point")
    parser.add_argument("--point", type=int, help="try this point alone")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="folder to work in, and to leave (default: a temporary one)")
    args = parser.parse_args()
    began = time.monotonic()
    with ExitStack() as stack:
        work = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tried = sweep(args, work, stack)
    print(table(tried))
    failed = [t for t in tried if t.problems]
    print(f"\n{len(tried)} points in {(time.monotonic() - began) / 60:.1f} minutes, failures: {len(failed)}")
    for t in failed:
        print(f"\n{t.scenario}, {t.kind} at {t.point}: {t.change}")
        print(*(f"  {problem}" for problem in t.problems), sep="\n")
        print(f"  python benchmarks/crash_points.py --scenario {t.scenario} --kind {t.kind} --point {t.point}")
    return 1 if failed else 0


def sweep(args: argparse.Namespace, work: Path, stack: ExitStack) -> list[Tried]:
    """Try all points that the flags ask for."""
    scenarios = [s for s in SCENARIOS if s.name in (args.scenario or [s.name])]
    servers = [stack.enter_context(ForkServer()) for _ in range(args.jobs)]

    def benches(job: int) -> dict[str, Bench]:
        return {s.name: Bench(s, work / f"job{job}", servers[job]) for s in scenarios}

    pool = stack.enter_context(ThreadPoolExecutor(args.jobs))
    free: SimpleQueue[dict[str, Bench]] = SimpleQueue()
    for made in pool.map(benches, range(args.jobs)):
        free.put(made)
    first = made
    todo = [
        (name, kind, point)
        for name, bench in first.items()
        for kind in args.kind or KINDS
        for point in ([args.point] if args.point else bench.points(kind)[:: args.every])
    ]
    with progress("points", len(todo)) as advance:

        def try_one(task: tuple[str, Kind, int]) -> Tried:
            name, kind, point = task
            mine = free.get()
            try:
                bench = mine[name]
                problems = bench.problems(Kind(kind), point)
            finally:
                free.put(mine)
            advance(1)
            return Tried(name, Kind(kind), point, bench.changes[point - 1], problems)

        return list(pool.map(try_one, todo))


def table(tried: list[Tried]) -> str:
    """Points by process and kind of change, and how many of them failed."""
    points = Counter((t.change.process, t.change.what, t.kind) for t in tried)
    failed = Counter((t.change.process, t.change.what) for t in tried if t.problems)
    rows = sorted({(process, what) for process, what, _ in points})
    lines = [f"{'process':<9}{'change':<14}" + "".join(f"{kind:>8}" for kind in KINDS) + f"{'failures':>10}"]
    for process, what in rows:
        counts = "".join(f"{points[process, what, kind]:8d}" for kind in KINDS)
        lines.append(f"{process:<9}{what:<14}{counts}{failed[process, what]:10d}")
    totals = "".join(f"{sum(t.kind is kind for t in tried):8d}" for kind in KINDS)
    return "\n".join([*lines, f"{'all':<23}{totals}{sum(failed.values()):10d}"])


if __name__ == "__main__":
    sys.exit(main())
