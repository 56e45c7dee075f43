"""Gradient steps on a policy network, in torch, on one CPU thread, and what it agrees with its teacher in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from td_loop.games.served import STAY, PolicyContract, Taught
from td_loop.games.served import Tensor as Array
from td_loop.policy.config import PolicyFitConfig
from td_loop.policy.rows import Row, padded
from td_loop.policy.shape import Parameters
from td_loop.policy.torch_module import PolicyModule

_CHUNK = 16  # batches that are sorted by length together, so that little of a batch is padding
_CLIP = 1.0  # largest norm of a gradient


@dataclass(frozen=True)
class Figures:
    """How a policy does on rows, mean over their slots.

    Attributes:
        rows, slots: how many there were.
        loss: cross-entropy to the teacher's options, nats.
        agreement: part of the slots whose most likely option is the teacher's.
        launch_agreement: the same where the teacher does not stay.
        stay: part of the slots where the teacher stays: what a policy that never moves agrees in.
        moves: part of the slots where the policy does not stay.
    """

    rows: int
    slots: int
    loss: float
    agreement: float
    launch_agreement: float
    stay: float
    moves: float


class PolicyTrainer:
    """A network in training.

    Args:
        game: the game.
        parameters: where it starts.
        config: see there.
        rng: of the batch order.
    """

    def __init__(
        self, game: Taught[Any, Any], parameters: Parameters, config: PolicyFitConfig, rng: np.random.Generator
    ) -> None:
        torch.set_num_threads(1)
        self._game, self._config, self._rng = game, config, rng
        contract: PolicyContract = game.contract
        self._module = PolicyModule(parameters, contract)

    @property
    def parameters(self) -> dict[str, Array]:
        """What was learnt so far."""
        return self._module.parameters_now()

    def n_steps(self, n_rows: int, epochs: int) -> int:
        """How many steps `fit` takes."""
        return epochs * -(-n_rows // self._config.batch)

    def fit(self, rows: Sequence[Row], epochs: int, advance: Callable[[int], None]) -> None:
        """`epochs` passes over `rows`, the learning rate falling to 0 over them."""
        steps = self.n_steps(len(rows), epochs)
        optimizer = torch.optim.AdamW(
            self._module.parameters(), lr=self._config.lr, weight_decay=self._config.weight_decay
        )
        warmup = min(100, max(1, steps // 10))
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda k: min(1.0, (k + 1) / warmup) * 0.5 * (1.0 + float(np.cos(np.pi * min(1.0, k / steps)))),
        )
        for _ in range(epochs):
            for batch in self._batches(rows):
                optimizer.zero_grad(set_to_none=True)
                losses, target, _ = self._losses(batch)
                if len(target):
                    weight = torch.where(target == STAY, 1.0, self._config.launch_weight)
                    ((losses * weight).sum() / weight.sum()).backward()  # type: ignore[no-untyped-call]
                    torch.nn.utils.clip_grad_norm_(self._module.parameters(), _CLIP)
                    optimizer.step()
                schedule.step()
                advance(1)

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        size = self._config.batch
        order = self._rng.permutation(len(rows))
        for start in range(0, len(rows), size * _CHUNK):
            chunk = sorted(order[start : start + size * _CHUNK], key=lambda k: len(rows[k].options))
            cuts = range(0, len(chunk), size)
            for at in self._rng.permutation(len(cuts)):
                yield [rows[k] for k in chunk[cuts[at] : cuts[at] + size]]

    def _losses(self, batch: list[Row]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cross-entropy, option and most likely option of every slot that counts."""
        arrays, options = padded(self._game, batch)
        inputs = {name: torch.from_numpy(x) for name, x in arrays.items()}
        target = torch.from_numpy(options)
        counts = (target >= 0) & (inputs["slot_mask"] > 0)
        logits, target = self._module(inputs)[counts], target[counts]
        return functional.cross_entropy(logits, target, reduction="none"), target, logits.argmax(dim=1)

    def figures(self, rows: Sequence[Row]) -> Figures:
        """Of `rows`, of which there is one at least."""
        total, slots, agree, launches, agreed_launches, moves = 0.0, 0, 0, 0, 0, 0
        ordered = sorted(rows, key=lambda row: len(row.options))
        with torch.inference_mode():
            for at in range(0, len(ordered), self._config.batch):
                losses, target, best = self._losses(ordered[at : at + self._config.batch])
                total, slots = total + float(losses.sum()), slots + len(target)
                same, launched = target == best, target != STAY
                agree, launches = agree + int(same.sum()), launches + int(launched.sum())
                agreed_launches += int((same & launched).sum())
                moves += int((best != STAY).sum())
        some = max(1, slots)
        return Figures(
            rows=len(rows),
            slots=slots,
            loss=total / some,
            agreement=agree / some,
            launch_agreement=agreed_launches / max(1, launches),
            stay=1.0 - launches / some,
            moves=moves / some,
        )
