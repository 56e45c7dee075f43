"""What a fit remembers of every epoch, and `weights.training.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from td_loop.files import sha256
from td_loop.fit.blowup import Aborted
from td_loop.fit.config import FitConfig
from td_loop.fit.problem import Problem
from td_loop.fit.schedule import WARMUP_START, Schedule
from td_loop.value.model import SplineValue


@dataclass
class History:
    """One entry an epoch in every list; an epoch cut short by an abort has one too.

    A loss without rows (a branch of which the cache has none, k = 0 or k = 1) has an empty list: no data is not a
    number, and S4.1 finds nothing to object to.

    Attributes:
        train_mc_nll: loss to outcomes on a sample of the training rows of mc_rows, after the epoch.
        val_mc_nll: the same on all validation rows.
        sample_td_r_nll: loss to the targets of a sample of the Branch-R rows, after the epoch.
        sample_td_a_nll: the same of Branch A.
        lr_first: learning rate of the epoch's first step.
        lr_last: and of its last.
        grad_norm: mean norm of the gradient over its steps.
        seconds: wall time, losses included.
    """

    train_mc_nll: list[float] = field(default_factory=list)
    val_mc_nll: list[float] = field(default_factory=list)
    sample_td_r_nll: list[float] = field(default_factory=list)
    sample_td_a_nll: list[float] = field(default_factory=list)
    lr_first: list[float] = field(default_factory=list)
    lr_last: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, **values: float | None) -> None:
        """Append one epoch's values by field name; None is left out."""
        for name, value in values.items():
            if value is not None:
                getattr(self, name).append(value)


@dataclass
class Progress:
    """Where a fit stands between two steps, besides its trainer.

    Attributes:
        kept: the weights to write, if it ended now.
        final: their val_mc_nll.
        kept_epoch: the epoch that they are of; None: they are the start's, or the fit was aborted.
        history: of the epochs that are done.
        rates: learning rates of the steps of the running epoch.
        norms: and the norms of their gradients.
    """

    kept: SplineValue
    final: float
    kept_epoch: int | None = None
    history: History = field(default_factory=History)
    rates: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)

    @property
    def epochs_done(self) -> int:
        """Epochs that have been judged."""
        return len(self.history.val_mc_nll)

    def end_epoch(self, **values: float | None) -> None:
        """Add the running epoch to the history, with these values beside its rates and norms."""
        self.history.add(
            lr_first=self.rates[0],
            lr_last=self.rates[-1],
            grad_norm=sum(self.norms) / len(self.norms),
            **values,
        )
        self.rates, self.norms = [], []

    def keep(self, v: SplineValue, epoch: int | None, val_mc_nll: float) -> None:
        """Take `v` for the weights to write."""
        self.kept, self.kept_epoch, self.final = v, epoch, val_mc_nll


@dataclass(frozen=True)
class Summary:
    """What one fit came to.

    Attributes:
        history: losses and rates by epoch.
        baseline: val_mc_nll of the start, before the first step.
        constant: val_mc_nll of the constant predictor.
        final: val_mc_nll of the weights written; of an aborted fit, the one that it was aborted for.
        final_by_segment: the same of the validation rows of each segment.
        kept_epoch: the epoch that the weights are of; None when aborted.
        aborted: why it stopped itself, or None.
        seconds: wall time of the training loop.
    """

    history: History
    baseline: float
    constant: float
    final: float
    final_by_segment: dict[str, float | None]
    kept_epoch: int | None
    aborted: Aborted | None
    seconds: float


def training_json(
    config: FitConfig,
    schedule: Schedule,
    problem: Problem,
    s: Summary,
    output: Path | None,
    guard: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of `<stem>.training.json` (see docs/td_training.md).

    `output`: the weights that it is about; None: none were written. `guard`: how the fit went under the guard, and
    only where there was one is there a key of that name.
    """
    return {
        "format_version": 1,
        "history": asdict(s.history),
        "val_mc_nll_baseline": s.baseline,
        "val_mc_nll_constant": s.constant,
        "final_val_mc_nll": s.final,
        "final_val_mc_nll_by_segment": s.final_by_segment,
        "kept_epoch": s.kept_epoch,
        "lr_schedule": {
            "peak": config.lr,
            "warmup_start_frac": WARMUP_START,
            "warmup_frac": schedule.warmup_frac,
            "hold_frac": schedule.hold_frac,
            "floor_frac": schedule.floor_frac,
            "total_steps": schedule.total_steps,
            "warmup_steps": schedule.warmup_steps,
            "hold_steps": schedule.hold_end - schedule.warmup_steps,
            "knot_requantize_warmup_steps": schedule.flat_steps,
        },
        "aborted": None if s.aborted is None else asdict(s.aborted),
        "knot_coverage_stats": problem.knot_coverage,
        "rows": {"train": len(problem.rows.n_players), "val": len(problem.val)},
        "inputs": problem.inputs,
        "output": None if output is None else {"sha256": sha256(output)},
        "hyperparams": asdict(config),
        "warnings": list(problem.warnings),
        "wall_s": s.seconds,
        **({} if guard is None else {"guard": guard}),
    }
