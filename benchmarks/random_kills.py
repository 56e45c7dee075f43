"""A run that is killed every few seconds against one that is not: `python benchmarks/random_kills.py --help`.

Orbit Wars at small n with an evaluation budget. SIGKILL goes at random to the driver alone, to all processes, to a
stage or to a worker; then the same command goes on. Both runs must end with the same weights. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from td_loop.progress import progress
from tests.crash.invariants import differences, ending, temporary_files, violations
from tests.crash.kills import VICTIMS, Running, Tally, soak

ROOT = Path(__file__).parents[1]
BOOTSTRAP = ROOT / "models" / "value_spline_v2.npz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iters", type=int, default=10, help="iterations of the run")
    parser.add_argument("--seed", type=int, default=0, help="of the run, and of the kills")
    parser.add_argument("--mean-s", type=float, default=5.0, help="mean of the seconds between two kills")
    parser.add_argument("--n", type=int, default=200, help="rows an iteration")
    parser.add_argument("--budget-evals", type=int, default=1000, help="evaluations a search")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--keep", type=Path, help="folder to work in, and to leave (default: a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = (args.keep or Path(folder)).resolve()
        undisturbed, killed = work / "undisturbed", work / "killed"
        for place in (undisturbed, killed):  # they start in folders of their own, for the same relative paths
            place.mkdir(parents=True)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        began = time.monotonic()
        with (work / "undisturbed.txt").open("wb") as said:
            subprocess.run(command(args), cwd=undisturbed, stdout=said, stderr=said, check=True)
        calm_s = time.monotonic() - began
        tally = disturbed(args, work, killed)
        killed_s = time.monotonic() - began - calm_s
        problems = tally.problems
        if not problems:
            problems += differences(run_dir(killed), ending(run_dir(undisturbed)))
            problems += temporary_files(run_dir(killed))
    print(f"{'':<14}{'starts':>8}" + "".join(f"{name:>9}" for name in VICTIMS) + f"{'minutes':>9}")
    print(f"{'undisturbed':<14}{1:8d}" + f"{0:9d}" * len(VICTIMS) + f"{calm_s / 60:9.1f}")
    kills = "".join(f"{tally.kills[name]:9d}" for name in VICTIMS)
    print(f"{'killed':<14}{tally.starts:8d}{kills}{killed_s / 60:9.1f}")
    print(f"\n{args.iters} iterations, {sum(tally.kills.values())} kills, failures: {len(problems)}")
    print(*(f"  {problem}" for problem in problems), sep="\n", end="")
    print("" if problems else "the same weights, targets and manifest (less times), bit for bit")
    return 1 if problems else 0


def command(args: argparse.Namespace) -> list[str]:
    """The run, in the folder that it is started in."""
    where = ["--tag", "soak", "--bootstrap", str(BOOTSTRAP), "--iters", str(args.iters), "--seed", str(args.seed)]
    size = ["--n", str(args.n), "--budget-evals", str(args.budget_evals), "--workers", str(args.workers)]
    fit = shlex.split("--epochs 2 --batches-per-epoch 8 --val-regression-tau 1 --seg-uniform-tau 1")
    return [sys.executable, "-m", "td_loop", "run", *where, *size, *fit]


def disturbed(args: argparse.Namespace, work: Path, folder: Path) -> Tally:
    """The run with kills."""
    promoted = 0
    with progress("iterations", args.iters) as advance, (work / "killed.txt").open("ab") as said:

        def start() -> Running:
            return subprocess.Popen(command(args), cwd=folder, stdout=said, stderr=said, start_new_session=True)

        def check() -> list[str]:
            nonlocal promoted
            done = len(list(run_dir(folder).glob("iter*/weights.npz")))
            advance(done - promoted)
            promoted = done
            return violations(run_dir(folder), BOOTSTRAP) if run_dir(folder).exists() else []

        rng = random.Random(args.seed)
        return soak(start, check, rng=rng, mean_s=args.mean_s, max_starts=50 * args.iters)


def run_dir(folder: Path) -> Path:
    return folder / "runs" / "td_loop_soak"


if __name__ == "__main__":
    sys.exit(main())
