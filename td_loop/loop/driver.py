"""The outer loop: run attempts until the plan says stop."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from td_loop.errors import DataError, HardAbort, Interrupted, Reverted, StorageError, TdLoopError, UsageError
from td_loop.files import make_dir
from td_loop.loop import console as text
from td_loop.loop import rundir
from td_loop.loop.attempt import Attempt
from td_loop.loop.config import RunConfig
from td_loop.loop.console import Console
from td_loop.loop.forecast import plan, predict
from td_loop.loop.layout import LOCK, MANIFEST, iter_dir, run_dir
from td_loop.loop.lock import run_lock
from td_loop.loop.manifest import IterRecord, Manifest, Status, write_manifest
from td_loop.loop.plan import RunAttempt, attempt_config, next_step
from td_loop.loop.process import StageRunner, run_stage
from td_loop.signals import Signals
from td_loop.text import duration


def drive(config: RunConfig, *, runner: StageRunner = run_stage, forecast: Sequence[RunConfig] = ()) -> Manifest:
    """Run or resume a run until all its iterations are promoted.

    Args:
        config: of the run.
        runner: runs a stage program.
        forecast: other settings whose duration the closing words forecast from what this run measured.

    Returns:
        The manifest, with `config.iters` promoted iterations or more.

    Raises:
        Reverted: a reverted iteration stopped the loop.
        HardAbort: a hard check failed, or a stage failed (with exit code 64, 65 or 74: see the last line).
        Interrupted: by a signal; the same command resumes.
        RunInUse: another driver is at work in the run directory.
        UsageError, DataError, StorageError: see their messages; what existed is intact.
    """
    run = run_dir(config.runs_dir, config.tag)
    find_programs(config)
    if not (run / MANIFEST).exists():
        rundir.find_bootstrap(config.bootstrap)  # a wrong one must not leave an empty run behind
    make_dir(run)
    with run_lock(run / LOCK) as ended, Signals() as signals:
        driver = _Driver(config, run, runner, signals, forecast)
        if ended:
            driver.console.warn(text.orphans_line(ended))
        return driver.loop(rundir.open_run(run, config, driver.console.warn))


def find_programs(config: RunConfig) -> None:
    """Check that the stages' programs can be started.

    Raises:
        UsageError: one cannot.
    """
    for stage in ("prepare", "fit"):
        program = config.stage_command(stage)[0]
        if shutil.which(program) is None:
            raise UsageError(f"--{stage}-cmd: there is no program {program!r}")


@dataclass
class _Driver:
    config: RunConfig
    run: Path
    runner: StageRunner
    signals: Signals
    forecast: Sequence[RunConfig]
    console: Console = field(default_factory=Console)

    def loop(self, manifest: Manifest) -> Manifest:
        self._announce(manifest)
        while True:
            self.signals.check()  # also after the last attempt, whose end is published by now
            step = next_step(manifest.iters, self.config.iters, self.config.on_fail)
            if not isinstance(step, RunAttempt):
                break
            manifest = self._attempt(manifest, step)
        if step.reason is not Status.PROMOTED:
            self._stopped(manifest.iters[-1])
        self.console.out(text.closing_text(self.run, manifest, self._forecasts(manifest)))
        self.signals.check()
        return manifest

    def _attempt(self, manifest: Manifest, step: RunAttempt) -> Manifest:
        """Run one attempt and publish how it ended."""
        rundir.prune(self.run, step.i, self.console.warn)
        name = iter_dir(step.i, step.attempt)
        v_snap, digest = rundir.v_snap_of(self.run, manifest)
        rundir.start_attempt(self.run, name)
        last = manifest.iters[-1] if step.attempt else None
        record = IterRecord(
            i=step.i,
            attempt=step.attempt,
            iter_dir=name,
            v_snap=v_snap,
            v_snap_sha256=digest,
            status=Status.INTERRUPTED,
            previous_attempt=None if last is None else last.as_json(),
        )
        attempt = Attempt(
            self.run,
            attempt_config(self.config, step.attempt),
            manifest,
            record,
            self._run_stage,
            self.console.out,
        )
        try:
            record = attempt.execute()
        except Interrupted as e:
            self._publish(manifest, attempt.record)
            message = f"{e} in iteration {step.i}; the same command resumes the run"
            raise Interrupted(e.signum, message) from e
        manifest = self._publish(manifest, record)
        self._report(manifest, record)
        return manifest

    def _publish(self, manifest: Manifest, record: IterRecord) -> Manifest:
        """Manifest first, links second; the data is there already."""
        manifest = manifest.with_record(record)
        write_manifest(self.run, manifest)
        rundir.link(self.run, manifest)
        return manifest

    def _run_stage(self, stage: str, argv: Sequence[str], log: Path) -> int:
        where = f"{stage} {log.parent.name}"
        self.console.progress(f"{where} ...")
        start = time.monotonic()
        code = self.runner(argv, log, self.signals)
        self.console.progress(f"{where} took {duration(time.monotonic() - start)}")
        return code

    def _report(self, manifest: Manifest, record: IterRecord) -> None:
        left = self.config.iters - len(manifest.iters)
        eta = left * predict(manifest, self.config).total_s
        shown = eta if record.status is Status.PROMOTED and left else None
        self.console.out(text.iteration_line(record, eta_s=shown))
        if line := text.gate_line(record):
            self.console.out(line)
        for line in text.warning_lines(record):
            self.console.warn(line)

    def _stopped(self, record: IterRecord) -> None:
        why = text.reason(record)
        see = f"see {self.run / record.iter_dir / 'validation.json'}; latest_good is unchanged"
        if record.status is Status.REVERTED:
            again = "the same settings give the same again, so change one (--lr-peak, --seed, --n)"
            raise Reverted(f"iteration {record.i} was reverted: {why}; {see}; {again}")
        raise _error_of(record)(f"iteration {record.i} was aborted: {why}; {see}")

    def _announce(self, manifest: Manifest) -> None:
        said, warning = plan(self.config, self.run, manifest, self.run / manifest.latest_good)
        self.console.out(said)
        if warning:
            self.console.warn(warning)

    def _forecasts(self, manifest: Manifest) -> list[str]:
        lines = []
        for other in self.forecast:
            total = other.iters * predict(manifest, other).total_s
            lines.append(f"--tag {other.tag} --iters {other.iters} will take about {duration(total)} here.")
        return lines


def _error_of(record: IterRecord) -> type[TdLoopError]:
    """A stage that says what kind of fault it met (flags, a file, the disk) ends the run with its exit code."""
    codes = [stage["exit_code"] for stage in (record.prepare, record.fit, record.gate) if stage]
    kinds: tuple[type[TdLoopError], ...] = (UsageError, DataError, StorageError)
    return next((kind for kind in kinds if codes and kind.exit_code == codes[-1]), HardAbort)
