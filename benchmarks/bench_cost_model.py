"""The cost model: predicted against measured wall time of one iteration, for three settings.

    python benchmarks/bench_cost_model.py [--workers 2] [--replays PATH] [--bootstrap PATH]

Every setting is one real iteration of the driver in a run of its own, after one that is not counted (it compiles
the kernels and imports the replays). Two forecasts are compared with what it took: from the constants of
`td_loop/loop/cost.py`, and from these corrected by the first setting, as a run is by its own iterations. The
reference is the bare formula of docs/td_outer_loop.md, n_a * budget_s / workers.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from td_loop.loop.config import RunConfig
from td_loop.loop.cost import CostModel, calibrated, work_of
from td_loop.loop.driver import drive
from td_loop.loop.forecast import measured_cost
from td_loop.loop.presets import PRESETS
from td_loop.machine import physical_cores

SETTINGS: dict[str, dict[str, Any]] = {
    "quick preset": {},
    "2.5 x the budget": {"budget_s": 0.05},
    "twice the rows": {"n": 6000, "batches_per_epoch": 24},
}


def config_of(name: str, args: argparse.Namespace, runs_dir: Path, **flags: Any) -> RunConfig:
    """One iteration with the quick preset's values, changed by `flags`."""
    common = {"tag": name.replace(" ", "-"), "iters": 1, "runs_dir": runs_dir}
    given = {"replays": args.replays, "bootstrap": args.bootstrap, "workers": args.workers}
    return RunConfig.from_flags({**PRESETS["quick"], **common, **given, **flags})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=physical_cores())
    parser.add_argument("--replays", type=Path, default=None)
    parser.add_argument("--bootstrap", type=Path, default=RunConfig.bootstrap)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        drive(config_of("warm up", args, Path(folder), n=100, epochs=1))
        for name, flags in SETTINGS.items():
            config = config_of(name, args, Path(folder), **flags)
            rows.append((name, work_of(config), measured_cost(drive(config).iters[0])))
    learned = calibrated([(work, cost) for _, work, cost in rows[:1]])
    print(f"\n{args.workers} workers; seconds of one iteration, and the forecast over what it took\n")
    print(f"{'setting':<18}{'measured':>9} {'formula':>8}       {'constants':>9}       {'corrected':>9}")
    for name, work, cost in rows:
        line = f"{name:<18}{cost.total_s:>8.1f}s"
        for seconds in (work.full_search_s, CostModel().predict(work).total_s, learned.predict(work).total_s):
            line += f" {seconds:>7.1f}s {seconds / cost.total_s:>5.2f}x"
        print(line)
    print("\nThe corrected forecast of the first setting is 1.00x by construction.")


if __name__ == "__main__":
    main()
