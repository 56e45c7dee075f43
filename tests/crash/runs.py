"""Tiny runs of the real loop on the toy game, and what happens to them at one change or another.

A scenario is a command line and the state of the run directory that it starts from.
"""

from __future__ import annotations

import json
import os
import random
import select
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from td_loop.loop.verify import faults
from tests.crash.door import STAGES
from tests.crash.faults import Change, Kind, Plan, read_changes
from tests.crash.forkserver import DOOR, Answer
from tests.crash.invariants import differences, digest, ending, temporary_files, violations
from tests.crash.kills import Tally, soak
from tests.loop.toy_run import toy_flags

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120.0
STORAGE = 74

# Iteration 1 is reverted and promoted in its retry; every loss is 2 % or more away from where that would change.
FLAGS = shlex.split(
    "--workers 1 --seed 1 --lr-peak 0.6 --on-fail retry-then-abort --val-regression-tau 0 --val-blowup-tau 9"
)


@dataclass(frozen=True)
class Scenario:
    """A run of `iters` iterations; with `killed_at`, the resume of one that was killed at that change."""

    name: str
    iters: int
    killed_at: Change | None = None


SCENARIOS = (
    Scenario("whole", 3),
    Scenario("first", 1, Change("fit", "create", "iter0/.weights.npz.*.tmp")),
    Scenario("resumed", 2, Change("fit", "rename", "iter1_retry1/weights.npz")),
)


class ForkServer:
    """A process that runs command lines, one at a time (`tests/crash/forkserver.py`)."""

    def __init__(self) -> None:
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forkserver"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | one_thread | {"PYTHONPATH": path},
        )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close()
        self._process.wait()
        self._answers.close()

    def start(self, argv: list[str], env: dict[str, str], output: Path) -> Forked:
        """Start a command line; what it says goes to `output`."""
        request = {"argv": argv, "env": env, "output": str(output), "timeout_s": TIMEOUT_S}
        self._requests.write(json.dumps(request).encode() + b"\n")
        return Forked(int(self._answers.readline()), self._answers)


@dataclass
class Forked:
    """A command that a `ForkServer` runs."""

    pid: int
    """Its process, and its session."""
    _answers: IO[bytes]
    answer: Answer | None = None

    def wait(self, timeout_s: float | None = None) -> Answer | None:
        """How it ended; None when it has not within `timeout_s`."""
        if self.answer is None and select.select([self._answers], [], [], timeout_s)[0]:
            self.answer = Answer(*json.loads(self._answers.readline()))
        return self.answer

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        answer = self.wait(0.0)
        return None if answer is None else answer.code


@dataclass
class Bench:
    """One scenario in one folder: how it goes undisturbed, and how it goes with a fault."""

    scenario: Scenario
    work: Path
    server: ForkServer
    changes: list[Change] = field(init=False)
    _inputs: dict[Path, str] = field(init=False)
    _flags: list[str] = field(init=False)
    _ending: dict[str, Any] = field(init=False)
    _took_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.work = self.work.resolve() / self.scenario.name
        self.work.mkdir(parents=True)
        self._flags = [*toy_flags(self.work), *FLAGS]
        self._inputs = {p: digest(p) for p in (self.work / "games.json", self.work / "bootstrap.npz")}
        self._make_base()
        began = time.monotonic()
        self.changes = self.count()
        self._took_s = time.monotonic() - began
        self._ending = ending(self.run_dir)

    @property
    def run_dir(self) -> Path:
        return self.work / "runs" / "td_loop_toy"

    @property
    def output(self) -> Path:
        """What the last command said."""
        return self.work / "output.txt"

    def count(self) -> list[Change]:
        """The changes of the undisturbed run, which is then there."""
        self._restore()
        answer = self._command(Plan(str(self.run_dir), str(self.work / "changes"), Kind.COUNT))
        assert answer == (0, 0, False), f"{answer}: {self.output.read_text()}"
        return read_changes(self.work / "changes")

    def problems(self, kind: Kind, point: int) -> list[str]:
        """Let `kind` happen at `point`, then resume: all that was not as it must be."""
        self._restore()
        answer = self._command(Plan(str(self.run_dir), str(self.work / "changes"), kind, point))
        wrong = [f"after the fault: {x}" for x in self._after_fault(kind, point, answer)]
        promoted = self._promoted()
        pruned = answer.code != 0
        answer = self._command(None)
        wrong += [f"after the resume: {x}" for x in self._after_resume(answer, pruned)]
        if lost := promoted.keys() - {name for name, sha in self._promoted().items() if promoted.get(name) == sha}:
            wrong.append(f"I11: promoted before the resume, and gone after it: {sorted(lost)}")
        return wrong

    def soak(self, rng: random.Random) -> Tally:
        """Kill parts of the run, ten in the time that it takes and then ever fewer, until it is done."""
        self._restore()
        check, mean_s = self._invariants, self._took_s / 10
        tally = soak(lambda: self._start(None), check, rng=rng, mean_s=mean_s, slower=1.1, max_starts=200)
        if not tally.problems:
            tally.problems += differences(self.run_dir, self._ending) + temporary_files(self.run_dir)
        return tally

    def _after_fault(self, kind: Kind, point: int, answer: Answer) -> list[str]:
        change = self.changes[point - 1]
        wrong = self._no_processes(answer)
        said = self.output.read_text()
        if read_changes(self.work / "changes")[:point] != self.changes[:point]:
            wrong.append("the run made other changes than before")
        if kind is Kind.KILL:
            if answer.code != -9:
                wrong.append(f"exit code {answer.code}, not killed")
        elif answer.code not in (STORAGE, *([0] if _may_fail(change) else [])):
            wrong.append(f"exit code {answer.code}: {said.strip().splitlines()[-1:]}")
        elif answer.code and not said.strip().splitlines()[-1].startswith("error: "):
            wrong.append(f"the last line is no error: {said.strip().splitlines()[-1]}")
        if "Traceback" in said:
            wrong.append("a traceback")
        if kind is not Kind.KILL and self.scenario.killed_at is None:
            wrong += temporary_files(self.run_dir)
        return wrong + self._invariants()

    def _after_resume(self, answer: Answer, pruned: bool) -> list[str]:
        wrong = self._no_processes(answer)
        if answer.code != 0:
            return [*wrong, f"exit code {answer.code}: {self.output.read_text().strip().splitlines()[-1:]}"]
        wrong += self._invariants() + temporary_files(self.run_dir)
        wrong += [f"td-loop verify: {fault}" for fault in faults(self.run_dir)]
        return wrong + differences(self.run_dir, self._ending, pruned=pruned)

    def _no_processes(self, answer: Answer) -> list[str]:
        wrong = [f"{answer.left} processes left"] if answer.left else []
        return [*wrong, f"took longer than {TIMEOUT_S:.0f} s"] if answer.hung else wrong

    def _invariants(self) -> list[str]:
        wrong = violations(self.run_dir, self.work / "bootstrap.npz") if self.run_dir.exists() else []
        return wrong + [f"I11: {p.name} was changed" for p, sha in self._inputs.items() if digest(p) != sha]

    def _promoted(self) -> dict[str, str]:
        manifest = self.run_dir / "manifest.json"
        try:
            records = json.loads(manifest.read_bytes())["iters"] if manifest.exists() else []
        except ValueError:  # reported by the invariants
            records = []
        return {r["weights"]: r["weights_sha256"] for r in records if r["status"] == "promoted"}

    # --- running -----------------------------------------------------------------------------------------------

    def _command(self, plan: Plan | None) -> Answer:
        (self.work / "changes").unlink(missing_ok=True)
        answer = self._start(plan).wait()
        assert answer is not None
        return answer

    def _start(self, plan: Plan | None) -> Forked:
        door = shlex.join([sys.executable, DOOR])
        stages = [word for stage in STAGES for word in (f"--{stage}-cmd", f"{door} {stage}")]
        where = ["--runs-dir", str(self.work / "runs"), "--iters", str(self.scenario.iters)]
        argv = ["run", *self._flags, *where, "--cache-dir", str(self.work), *stages]
        return self.server.start(argv, {} if plan is None else plan.as_env(), self.output)

    def _make_base(self) -> None:
        """The state that the scenario starts from."""
        base, at = self.work / "base", self.scenario.killed_at
        base.mkdir()
        if at is not None:
            self._restore()
            point = self.count().index(at) + 1
            self._restore()
            answer = self._command(Plan(str(self.run_dir), str(self.work / "changes"), Kind.KILL, point))
            assert answer.code == -9, self.output.read_text()
            shutil.rmtree(base)
            shutil.copytree(self.work / "runs", base, symlinks=True)

    def _restore(self) -> None:
        runs = self.work / "runs"
        shutil.rmtree(runs, ignore_errors=True)
        shutil.copytree(self.work / "base", runs, symlinks=True)


def _may_fail(change: Change) -> bool:
    """Changes that a run can do without: the removal of what has had its day."""
    return change.what == "remove" and Path(change.path).name in ("branch_data.npz", "branch_data.chunks")
