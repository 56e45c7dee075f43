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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from td_loop.progress import progress
from tests.crash.faults import Kind
from tests.crash.runs import SCENARIOS
from tests.crash.sweep import KINDS, Point, Sweep, Tried


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append", help="kind of fault (default: all)")
    names = [s.name for s in SCENARIOS]
    parser.add_argument("--scenario", choices=names, action="append", help="default: all")
    parser.add_argument("--every", type=int, default=1, help="try one point in so many")
    parser.add_argument("--point", type=int, help="try this point alone")
    parser.add_argument("--jobs", type=int, default=3, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="folder to work in, and to leave (default: a temporary one)")
    args = parser.parse_args()
    scenarios = [s for s in SCENARIOS if s.name in (args.scenario or names)]
    kinds = [Kind(kind) for kind in args.kind or KINDS]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Sweep(scenarios, args.keep or Path(folder), args.jobs) as sweep:
        points = [point for kind in kinds for point in sweep.points(kind)[:: args.every]]
        if args.point:
            points = [Point(name, kind, args.point) for name in sweep.changes for kind in kinds]
        with progress("points", len(points)) as advance:
            tried = sweep.try_all(points, advance)
    failed = [t for t in tried if t.problems]
    print(table(tried))
    print(f"\n{len(tried)} points in {(time.monotonic() - began) / 60:.1f} minutes, failures: {len(failed)}")
    for t in failed:
        print(f"\n{t}")
    return 1 if failed else 0


def table(tried: list[Tried]) -> str:
    """Points by process and kind of change, and how many of them failed."""
    points = Counter((t.change.process, t.change.what, t.point.kind) for t in tried)
    failed = Counter((t.change.process, t.change.what) for t in tried if t.problems)
    rows = sorted({(process, what) for process, what, _ in points})
    lines = [f"{'process':<9}{'change':<14}" + "".join(f"{kind:>8}" for kind in KINDS) + f"{'failures':>10}"]
    for process, what in rows:
        counts = "".join(f"{points[process, what, kind]:8d}" for kind in KINDS)
        lines.append(f"{process:<9}{what:<14}{counts}{failed[process, what]:10d}")
    totals = "".join(f"{sum(t.point.kind is kind for t in tried):8d}" for kind in KINDS)
    return "\n".join([*lines, f"{'all':<23}{totals}{sum(failed.values()):10d}"])


if __name__ == "__main__":
    sys.exit(main())
