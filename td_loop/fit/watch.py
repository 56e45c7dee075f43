"""What tells of a fit while it runs, and what a guard outside of it may ask for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from td_loop.fit.checkpoint import load_checkpoint, save_checkpoint
from td_loop.fit.config import FitConfig
from td_loop.fit.history import Progress
from td_loop.fit.probe import Probe
from td_loop.fit.problem import Problem
from td_loop.fit.trainer import Trainer
from td_loop.guard import environment
from td_loop.guard.staging import Staging
from td_loop.guard.telemetry import Telemetry

CHECKPOINT_EVERY = 64
"""Steps between two checkpoints, where the guard wants some and does not say how many."""


@dataclass(frozen=True)
class Attempt:
    """One process that had a share in a fit.

    Attributes:
        attempt: the guard's number.
        from_step: steps that had been done when it took over.
        multiplier: of the learning rate.
        seed: of the batch order.
    """

    attempt: int
    from_step: int
    multiplier: float
    seed: int


class Watch:
    """Reports every step, and saves checkpoints for the guard and goes on from one of them.

    Nothing of it touches what is learned: the probe only reads, and draws its rows from a stream of its own. The
    number of a step is how many have been done, so a checkpoint of step s is what the record of step s speaks of.
    """

    def __init__(self, config: FitConfig, problem: Problem, telemetry: Telemetry) -> None:
        """Read from the environment what the guard asks for.

        Raises:
            UsageError: a variable of the guard holds what it cannot.
        """
        self._asked = config
        self._problem = problem
        self._telemetry = telemetry
        self._multiplier = environment.multiplier()
        self._staging = Staging(telemetry, self._save, suffix=".npz", every=CHECKPOINT_EVERY)
        self._probe = Probe(problem.val, config.seed) if telemetry.where is not None else None
        self._attempts: tuple[Attempt, ...] = ()
        self._fit: tuple[Trainer, Progress] | None = None
        self.config = replace(config, lr=self._multiplier * config.lr, seed=environment.seed(config.seed))
        """The config to train with: the guard's rate and seed."""

    @staticmethod
    def wanted(telemetry: Telemetry) -> bool:
        """Whether there is anything to do for one."""
        return telemetry.where is not None or environment.guarded()

    def begin(self, trainer: Trainer, progress: Progress) -> None:
        """Go on from the checkpoint that the guard names, or save what the fit starts from.

        Raises:
            DataError: the checkpoint is missing, damaged, or of another fit.
        """
        self._fit = trainer, progress
        path = environment.resume_path()
        earlier: tuple[Attempt, ...] = ()
        if path is not None:
            meta = load_checkpoint(path, self._asked, self._problem, trainer, progress)
            earlier = tuple(Attempt(**attempt) for attempt in meta["attempts"])
        this = Attempt(environment.attempt() or 0, trainer.steps_done, self._multiplier, self.config.seed)
        self._attempts = (*earlier, this)
        self._staging.begin(trainer.steps_done)
        if self._probe is not None:
            self._probe.begin(trainer.value())

    def report(self, trainer: Trainer, lr: float, grad_norm: float) -> None:
        """Tell of the step that `trainer` has just taken."""
        if self._probe is None:
            return
        kl, entropy = self._probe.after_step(trainer.value())
        loss = trainer.losses()
        self._telemetry.log(
            trainer.steps_done,
            kl=kl,
            entropy=entropy,
            value_loss=loss.total,
            td_loss=loss.td,
            mc_loss=loss.mc,
            grad_norm=grad_norm,
            lr=lr,
        )

    def stage(self, step: int) -> None:
        """Save a checkpoint, if it is time."""
        self._staging.after_step(step)

    def account(self) -> dict[str, Any]:
        """What happened, for training.json."""
        return {
            "attempts": [asdict(attempt) for attempt in self._attempts],
            "checkpoints_saved": self._staging.saved,
            "checkpoints_failed": self._staging.failed,
            "telemetry_lost": self._telemetry.lost,
        }

    def _save(self, path: Path) -> None:
        assert self._fit is not None, "begin comes first"
        attempts = [asdict(attempt) for attempt in self._attempts]
        save_checkpoint(path, self._asked, self._problem, *self._fit, {"attempts": attempts})
