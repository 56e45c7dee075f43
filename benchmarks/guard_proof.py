"""Does the guard save a training that nobody here wrote, and leave a healthy one alone?

    python benchmarks/guard_proof.py [--seeds 3]

`guard_train_sb3.py` trains PPO, DQN and SAC of stable-baselines3, each run in a process of its own. Guarded ones
run under `td-loop guard run` as it is without a guard.toml, all detectors on, but with six retries: from a hundred
times the rate that suits, three halvings do not lead far enough.

- healthy: a rate that suits. The guard must not trip, and the very same policy must come out, bit for bit.
- too high: 100 times that rate. Without the guard training fails. With it, it must trip, end with exit code 0, and
  come to the healthy run's return within TOLERANCE, in the mean over the seeds.
- too high, late: the same, with the rate that suits for the first two thirds. Here there is something to lose, and
  little time to win it back: the guard must go back to a snapshot that has learned, and end with a policy at least
  BETTER times as good as training without it, in the mean.

"trips" are the steps at which it tripped, "back to" those of the snapshots that it went back to, "rate" the
learning rate at the end, "value loss" the largest of the last attempt, "ratio" the return to the healthy run's of
the same seed. The limit of the value loss is 50 by default, which suits these programs and not all: the loss goes
with the square of the returns, and who has larger ones sets max_value_loss.

Exit status 1: one of these did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from td_loop.guard.breaker import Event, Transition
from td_loop.guard.breaker_log import NAME, read_log
from td_loop.guard.record import parse
from td_loop.text import table

ROOT = Path(__file__).parents[1]
TOLERANCE = 0.15
"""Share of the healthy run's mean return by which a guarded one may fall short of it."""
FAILED = 0.5
"""Share of it below which a run has failed."""
BETTER = 2.0
FLAGS = ["--max-retries", "6"]
STEPS = 40960
HEALTHY, HIGH, LATE = "PPO, healthy", "PPO, too high", "PPO, too high, late"
DQN, SAC = "DQN, healthy", "SAC, healthy"
_PPO = ["PPO", "--steps", str(STEPS), "--lr"]
PROGRAMS = {
    HEALTHY: [*_PPO, "1e-3"],
    HIGH: [*_PPO, "0.1"],
    LATE: [*_PPO, "1e-3", "--restart-lr", "0.1", "--restart-at", str(STEPS * 2 // 3)],
    DQN: ["DQN", "--steps", "16000", "--lr", "2.3e-3"],
    SAC: ["SAC", "--steps", "4000", "--lr", "1e-3"],
}
HEAD = ["program", "seed", "guard", "exit", "trips", "back to", "rate", "value loss", "return", "ratio", "s"]


@dataclass(frozen=True)
class Outcome:
    """What one run came to.

    Attributes:
        code: exit code.
        result: what the program wrote at its end; empty where it did not come to that.
        transitions: of the breaker; empty without a guard.
        largest: value loss of the last attempt; None without a guard.
    """

    program: str
    seed: int
    guarded: bool
    code: int
    seconds: float
    result: Mapping[str, Any]
    transitions: Sequence[Transition]
    largest: float | None

    @property
    def trips(self) -> list[Transition]:
        return [t for t in self.transitions if t.event is Event.TRIP]

    @property
    def back_to(self) -> list[int]:
        return [t.step or 0 for t in self.transitions if t.event is Event.RESTART]

    @property
    def mean_return(self) -> float:
        return float(self.result.get("return", "nan"))

    def row(self, healthy: float) -> list[str]:
        """Its line of the table. `healthy`: return of the run to compare with."""
        return [
            self.program,
            str(self.seed),
            "yes" if self.guarded else "no",
            str(self.code),
            " ".join(str(t.step) for t in self.trips) or "-",
            " ".join(map(str, self.back_to)) or "-",
            f"{self.result.get('rate', float('nan')):.2g}",
            "-" if self.largest is None else f"{self.largest:.1f}",
            f"{self.mean_return:.1f}",
            f"{self.mean_return / healthy:.2f}",
            f"{self.seconds:.0f}",
        ]


def run(program: str, seed: int, guarded: bool, folder: Path) -> Outcome:
    """Run a program to its end, in a folder that is empty."""
    guard, out = folder / "guard", folder / "result.json"
    script = str(ROOT / "benchmarks" / "guard_train_sb3.py")
    command = [sys.executable, script, *PROGRAMS[program], "--seed", str(seed), "--out", str(out)]
    if guarded:
        command = [sys.executable, "-m", "td_loop", "guard", "run", "--dir", str(guard), *FLAGS, "--", *command]
    began = time.perf_counter()
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if not out.exists():
        print(f"{program}, seed {seed}: no result\n{ran.stderr}", file=sys.stderr)
    return Outcome(
        program,
        seed,
        guarded,
        ran.returncode,
        seconds,
        json.loads(out.read_text()) if out.exists() else {},
        read_log(guard / NAME),
        largest_value_loss(guard) if guarded else None,
    )


def largest_value_loss(guard: Path) -> float | None:
    """Of the last attempt."""
    last = max(guard.glob("telemetry.a*.jsonl"), key=lambda path: int(path.stem.partition(".a")[2]), default=None)
    lines = [] if last is None else last.read_bytes().splitlines()
    return max(
        (x for x in (parse(line).values.get("value_loss") for line in lines) if x is not None), default=None
    )


def faults(runs: Sequence[Outcome]) -> Iterator[str]:
    """What did not hold."""
    found = {(r.program, r.seed, r.guarded): r for r in runs}
    healthy = mean(runs, HEALTHY, False)
    for r in runs:
        name = f"{r.program}, seed {r.seed}"
        if r.code:
            yield f"{name}: ended with {r.code}"
        if not r.guarded:
            continue
        if r.program in (HIGH, LATE):
            if not r.trips:
                yield f"{name}: did not trip"
            if r.program == LATE and 0 in r.back_to:
                yield f"{name}: went back to the start"
        elif r.trips:
            yield f"{name}: tripped, {r.trips[0].reason}"
        elif r.result.get("policy") != found[r.program, r.seed, False].result.get("policy"):
            yield f"{name}: the guard has changed what was learned"
    for program in (HIGH, LATE):
        if not mean(runs, program, False) < FAILED * healthy:
            yield f"{program}: did well without a guard"
    if not mean(runs, HIGH, True) >= (1 - TOLERANCE) * healthy:
        yield f"{HIGH}: worse under guard than a healthy run"
    if not mean(runs, LATE, True) >= BETTER * mean(runs, LATE, False):
        yield f"{LATE}: the guard has saved little"


def mean(runs: Sequence[Outcome], program: str, guarded: bool) -> float:
    """Mean return over the seeds."""
    return statistics.fmean(r.mean_return for r in runs if (r.program, r.guarded) == (program, guarded))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each PPO run (3)")
    args = parser.parse_args()

    ppo = [(program, seed) for program in (HEALTHY, HIGH, LATE) for seed in range(args.seeds)]
    runs: list[Outcome] = []
    references: dict[tuple[str, int], float] = {}
    rows = []
    for program, seed in [*ppo, (DQN, 0), (SAC, 0)]:
        for guarded in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                r = run(program, seed, guarded, Path(folder))
            runs.append(r)
            if program not in (HIGH, LATE) and not guarded:
                references[program, seed] = r.mean_return
            rows.append(r.row(references[HEALTHY if program in (HIGH, LATE) else program, seed]))
            print(", ".join(rows[-1]), file=sys.stderr, flush=True)

    print("\n".join(table(HEAD, rows, "<><>>>>>>>>")))
    print()
    for r in runs:
        for t in r.trips:
            print(f"{r.program}, seed {r.seed}, attempt {t.attempt}: {t.reason}")
    healthy = mean(runs, HEALTHY, False)
    print()
    for program, guarded in ((HEALTHY, True), (HIGH, False), (HIGH, True), (LATE, False), (LATE, True)):
        found = mean(runs, program, guarded)
        what = "under guard" if guarded else "without"
        print(f"{program}, {what}: mean return {found:.1f}, {found / healthy:.2f} of the healthy run's")
    missed = list(faults(runs))
    print("\n".join(["", *missed]) if missed else "\nall as it must be")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
