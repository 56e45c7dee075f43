"""What one run of prepare is asked to do, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from td_loop.errors import UsageError
from td_loop.games.base import Budget

SEARCH_S = 0.2
"""Seconds that a search may take, unless told otherwise."""


@dataclass(frozen=True)
class WorkerPolicy:
    """When a worker counts as lost, and how often its rows are tried again."""

    hang_grace_s: float = 30.0
    """Seconds that a chunk may take beyond what its budget allows for; then its worker is stuck and is killed."""

    search_attempts: int = 2
    """Attempts of an agent row that may search; after that the replay's action stands in."""

    attempts: int = 4
    """Attempts of any row before the run fails and names it."""

    memory: int | None = None
    """Bytes that a worker may use before it is replaced; None: its share of what is free."""

    give_up_after: int = 16
    """Agent rows lost for good after which, if they are the majority, the rest is not searched any more: a search
    that kills or blocks every worker would otherwise cost hours, a few seconds a row."""


@dataclass(frozen=True)
class PrepareConfig:
    """Everything that decides the rows and targets of one iteration. Values out of range raise `UsageError`."""

    weights: Path
    """V_snap."""

    out: Path
    """The branch_data npz to write."""

    seed: int = 0
    """The run's seed (the loop adds 1000 in a retry)."""

    iter_index: int = 0
    """Index of the iteration; the stage draws from the streams of `seed + iter_index`."""

    n: int = 80_000
    """Rows, of both branches together."""

    k: float = 0.3
    """Probability of a row to be an agent row (Branch A)."""

    budget: Budget = field(default_factory=lambda: Budget(seconds=SEARCH_S))
    """What one search may spend: seconds or evaluations."""

    workers: int = 1
    """Processes."""

    partial_input_p: float = 0.5
    """Probability that a row's input has a prefix of the focal seat's launches already made."""

    mc_target_p: float = 0.5
    """Probability that a row carries the game's outcome as well."""

    replays: Path | None = None
    """Replay set; None is the game's bundled one."""

    game: str = "orbit_wars"
    """A built-in game, or `package.module:ATTRIBUTE`."""

    cache: Path = Path()
    """Folder for what the game converts first."""

    mc_rows: Path | None = None
    """Where the outcome rows are kept; None: do not write them."""

    policy: WorkerPolicy = field(default_factory=WorkerPolicy)

    def __post_init__(self) -> None:
        at_least("--n", self.n, 1, "how many rows to prepare")
        at_least("--seed", self.seed, 0, "any whole number from 0")
        at_least("--iter-index", self.iter_index, 0, "the index of the iteration, from 0")
        at_least("--workers", self.workers, 1, "leave it out for one per physical core")
        probability("--k", self.k, "the share of rows that are searched: 0 for none, 1 for all")
        probability("--partial-input-p", self.partial_input_p, "the share of rows with a half-built turn as input")
        probability("--mc-target-p", self.mc_target_p, "the share of rows that carry the game's outcome")

    @property
    def stage_seed(self) -> int:
        """Seed of every stream of this stage: an iteration draws afresh while the run's seed stays."""
        return self.seed + self.iter_index


def search_budget(seconds: float, evals: int | None) -> Budget:
    """The budget that the flags ask for: evaluations if they are given, else seconds.

    Raises:
        UsageError: out of range.
    """
    if evals is not None:
        at_least("--budget-evals", evals, 1, "candidates that one search may evaluate")
        return Budget(evals=evals)
    if not 0 < seconds < math.inf:
        raise UsageError(f"--budget-s {seconds}: must be above 0, in seconds a search, say 0.2")
    return Budget(seconds=seconds)


def at_least(flag: str, value: int, low: int, remedy: str) -> None:
    """Raise UsageError when `value` is below `low`."""
    if value < low:
        raise UsageError(f"{flag} {value}: must be {low} or more; {remedy}")


def probability(flag: str, value: float, remedy: str) -> None:
    """Raise UsageError when `value` is not in 0..1 (NaN is not)."""
    if not 0 <= value <= 1:
        raise UsageError(f"{flag} {value:g}: must lie in 0..1; {remedy}")
