"""Settings of `td-loop policy fit`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from td_loop.errors import UsageError


@dataclass(frozen=True)
class PolicyFitConfig:
    """What a policy is fitted with.

    Attributes:
        games: games of a round, half of them of 2 seats, half of 4.
        rounds: rounds of data. In the first the teacher plays; in each later one the policy so far does, and the
            teacher says what it would have done (DAgger; Ross, Gordon and Bagnell, 2011).
        teacher_evals: candidates that the teacher, a search, may evaluate for a decision.
        labelled: part of the policy's decisions that the teacher is asked about, 0..1. What it plays itself is
            always kept.
        replay_rows: the most rows that are drawn from winners' moves of a replay set.
        epochs: passes over all rows after a round.
        last_epochs: the same after the last round.
        batch: rows in a step.
        launch_weight: of a slot where the teacher launches, beside 1 of one where it stays. Who may go to many
            places is seldom sure of one, so the most likely option of a plain fit is nearly always to stay.
        lr: peak learning rate of AdamW; it falls to 0 along a cosine after each round.
        weight_decay: of AdamW.
        seed: what games, first parameters and batches are drawn from.
    """

    games: int = 120
    rounds: int = 5
    teacher_evals: int = 300
    labelled: float = 0.3
    replay_rows: int = 20_000
    epochs: int = 2
    last_epochs: int = 8
    batch: int = 64
    launch_weight: float = 3.0
    lr: float = 3e-3
    weight_decay: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("games", "rounds", "teacher_evals", "epochs", "last_epochs", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.replay_rows < 0 or self.seed < 0:
            raise UsageError(f"replay_rows and seed must be 0 or more, not {self.replay_rows} and {self.seed}")
        if not 0 < self.labelled <= 1:
            raise UsageError(f"labelled must be above 0 and at most 1, not {self.labelled}")
        if not 0 < self.launch_weight < math.inf:
            raise UsageError(f"launch_weight must be above 0 and finite, not {self.launch_weight}")
        if not 0 < self.lr < math.inf or not 0 <= self.weight_decay < math.inf:
            raise UsageError(f"lr must be above 0 and weight_decay 0 or more, not {self.lr}, {self.weight_decay}")
