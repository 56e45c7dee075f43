"""What to do next, given what is done. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from td_loop.loop.config import OnFail, RunConfig
from td_loop.loop.manifest import IterRecord, Status
from td_loop.rng import RETRY_SEED_OFFSET

MAX_RETRIES = 1
RETRY_LR_FACTOR = 0.5


@dataclass(frozen=True)
class RunAttempt:
    """Run attempt `attempt` of iteration `i`."""

    i: int
    attempt: int


@dataclass(frozen=True)
class Stop:
    """Run nothing more. `reason` is the last record's status; promoted: all iterations are done."""

    reason: Status


def next_step(records: Sequence[IterRecord], iters: int, on_fail: OnFail) -> RunAttempt | Stop:
    """What follows the records of this run, `iters` being the iterations in all."""
    if not records:
        return RunAttempt(0, 0)
    last = records[-1]
    if last.status is Status.PROMOTED:
        return RunAttempt(last.i + 1, 0) if last.i + 1 < iters else Stop(Status.PROMOTED)
    retries = MAX_RETRIES if on_fail is OnFail.RETRY_THEN_ABORT else 0
    if last.status is Status.REVERTED and last.attempt < retries:
        return RunAttempt(last.i, last.attempt + 1)
    return Stop(last.status)


def attempt_config(config: RunConfig, attempt: int) -> RunConfig:
    """The settings of an attempt: a retry halves the peak learning rate and moves to another seed."""
    if attempt == 0:
        return config
    fit = replace(config.fit, lr_peak=config.fit.lr_peak * RETRY_LR_FACTOR**attempt)
    return replace(config, fit=fit, seed=config.seed + RETRY_SEED_OFFSET * attempt)


def prunable(i: int, existing: dict[str, int]) -> list[str]:
    """Attempt folders whose `branch_data.npz` goes at the start of iteration `i`: those of iteration i - 2.

    `existing` maps folder names to iterations, those set aside included. The cache of i - 1 stays: S3.7 compares
    with it.
    """
    return [name for name, iteration in existing.items() if iteration == i - 2]
