"""The policy network in plain numpy: the formulas of `shape`, for any batch and any lengths."""

from __future__ import annotations

import math

import numpy as np

from td_loop.games.served import MASKED, Inputs, PolicyContract, Tensor
from td_loop.policy.artefact import Artefact
from td_loop.policy.shape import BLOCKED, Parameters, check, shapes


class NumpyNetwork:
    """A `Runner` (see `runner`) of parameters. It only reads them, so any number of threads may call it.

    Raises:
        DataError: the parameters do not fit the contract.
    """

    def __init__(self, parameters: Parameters, contract: PolicyContract) -> None:
        self.size = check(parameters, contract)
        names = shapes(contract, self.size)
        self._p = {name: np.ascontiguousarray(parameters[name], np.float32) for name in names}

    def __call__(self, inputs: Inputs) -> Tensor:
        """`logits` f32[B, S, 1 + N Z]."""
        p = self._p
        x = inputs["nodes"] @ p["nodes.w"] + (inputs["world"] @ p["world.w"] + p["nodes.b"])[:, None]
        y = inputs["events"] @ p["events.w"] + p["events.b"]
        x, y = np.maximum(x, 0.0), np.maximum(y, 0.0)
        x = x + self._attend(x, y, inputs) @ p["out.w"] + p["out.b"]
        x = x + np.maximum(x @ p["hidden.w"] + p["hidden.b"], 0.0) @ p["back.w"] + p["back.b"]
        slots = inputs["slots"] @ x
        t = inputs["pairs"] @ p["pairs.w"]
        t += (slots @ p["slot.w"] + p["pairs.b"])[:, :, None]
        t += (x @ p["target.w"])[:, None]
        send = np.maximum(t, 0.0, out=t) @ p["send.w"] + p["send.b"]
        opened = inputs["open"] * inputs["pair_mask"][..., None]
        send = send * opened + (1.0 - opened) * np.float32(MASKED)
        stay = np.maximum(slots @ p["stay.w"] + p["stay.b"], 0.0) @ p["stay.out"] + p["stay.bias"]
        stay = stay * inputs["slot_mask"][:, :, None]
        b, s = stay.shape[:2]
        logits: Tensor = np.concatenate([stay, send.reshape(b, s, -1)], axis=2, dtype=np.float32)
        return logits

    def _attend(self, x: Tensor, y: Tensor, inputs: Inputs) -> Tensor:
        """[B, N, D] what every node takes from nodes and events."""
        p, heads = self._p, self.size.heads
        b, n, d = x.shape
        both = np.concatenate([x, y], axis=1)

        def split(z: Tensor) -> Tensor:
            return z.reshape(b, -1, heads, d // heads).transpose(0, 2, 1, 3)

        q, k, v = split(x @ p["query.w"]), split(both @ p["key.w"]), split(both @ p["value.w"])
        score = (q @ k.transpose(0, 1, 3, 2)) * np.float32(1.0 / math.sqrt(d // heads))
        score[..., :n] += inputs["near"][:, None] * p["near.bias"][:, None, None]
        score[..., n:] += inputs["lands"][:, None] * p["lands.bias"][:, None, None]
        mask = np.concatenate([inputs["node_mask"], inputs["event_mask"]], axis=1)
        score += ((mask - 1.0) * np.float32(BLOCKED))[:, None, None]
        score -= score.max(axis=-1, keepdims=True)
        weight = np.exp(score, out=score)
        weight /= weight.sum(axis=-1, keepdims=True)
        taken: Tensor = (weight @ v).transpose(0, 2, 1, 3).reshape(b, n, d)
        return taken


class NumpyRunner(NumpyNetwork):
    """The network of an artefact.

    Raises:
        DataError: its weights are not those of this network.
    """

    def __init__(self, artefact: Artefact) -> None:
        super().__init__(artefact.weights, artefact.meta.contract)
