"""What runs a policy network: one contract, three implementations (onnxruntime, plain numpy, torch)."""

from __future__ import annotations

from typing import Protocol

from td_loop.games.served import Inputs, Tensor


class Runner(Protocol):
    """A loaded network. It keeps nothing between calls and may be called from several threads at once."""

    def __call__(self, inputs: Inputs) -> Tensor:
        """`logits` f32[B, S, O] of `inputs`, which are those of the artefact's contract."""
        ...
