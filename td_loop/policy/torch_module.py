"""The policy network in torch: the formulas of `shape`, for training, and as a second opinion on the others."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from td_loop.games.served import MASKED, Inputs, PolicyContract
from td_loop.games.served import Tensor as Array
from td_loop.policy.artefact import Artefact
from td_loop.policy.shape import BLOCKED, Parameters, check, shapes


class PolicyModule(nn.Module):
    """Parameters are named as in `shape`, with `_` for `.`."""

    def __init__(self, parameters: Parameters, contract: PolicyContract) -> None:
        super().__init__()
        self.size = check(parameters, contract)
        self._names = tuple(shapes(contract, self.size))
        for name in self._names:
            value = np.array(parameters[name], np.float32)
            self.register_parameter(name.replace(".", "_"), nn.Parameter(torch.from_numpy(value)))

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """`logits` [B, S, 1 + N Z]."""
        p = {name: self.get_parameter(name.replace(".", "_")) for name in self._names}
        x = inputs["nodes"] @ p["nodes.w"] + (inputs["world"] @ p["world.w"] + p["nodes.b"])[:, None]
        y = torch.relu(inputs["events"] @ p["events.w"] + p["events.b"])
        x = torch.relu(x)
        x = x + self._attend(p, x, y, inputs) @ p["out.w"] + p["out.b"]
        x = x + torch.relu(x @ p["hidden.w"] + p["hidden.b"]) @ p["back.w"] + p["back.b"]
        slots = inputs["slots"] @ x
        t = inputs["pairs"] @ p["pairs.w"]
        t = t + (slots @ p["slot.w"] + p["pairs.b"])[:, :, None] + (x @ p["target.w"])[:, None]
        send = torch.relu(t) @ p["send.w"] + p["send.b"]
        opened = inputs["open"] * inputs["pair_mask"][..., None]
        send = send * opened + (1.0 - opened) * MASKED
        stay = torch.relu(slots @ p["stay.w"] + p["stay.b"]) @ p["stay.out"] + p["stay.bias"]
        stay = stay * inputs["slot_mask"][:, :, None]
        return torch.cat([stay, send.flatten(2)], dim=2)

    def _attend(self, p: dict[str, nn.Parameter], x: Tensor, y: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        heads = self.size.heads
        b, n, d = x.shape
        both = torch.cat([x, y], dim=1)

        def split(z: Tensor) -> Tensor:
            return z.reshape(b, -1, heads, d // heads).transpose(1, 2)

        q, k, v = split(x @ p["query.w"]), split(both @ p["key.w"]), split(both @ p["value.w"])
        near = inputs["near"][:, None] * p["near.bias"][:, None, None]
        lands = inputs["lands"][:, None] * p["lands.bias"][:, None, None]
        mask = torch.cat([inputs["node_mask"], inputs["event_mask"]], dim=1)
        score = (q @ k.transpose(2, 3)) * (1.0 / math.sqrt(d // heads)) + torch.cat([near, lands], dim=3)
        score = score + ((mask - 1.0) * BLOCKED)[:, None, None]
        return (torch.softmax(score, dim=-1) @ v).transpose(1, 2).reshape(b, n, d)

    def parameters_now(self) -> dict[str, Array]:
        """What was learnt, under the names of `shape`."""
        return {n: self.get_parameter(n.replace(".", "_")).detach().numpy().copy() for n in self._names}


class TorchRunner:
    """The network of an artefact (see `runner`). torch computes with one thread from then on, in this process:
    several take longer for so little, and on a busy machine a hundred times as long, as they wait for each other.

    Raises:
        DataError: its weights are not those of this network.
    """

    def __init__(self, artefact: Artefact) -> None:
        torch.set_num_threads(1)
        self._module = PolicyModule(artefact.weights, artefact.meta.contract).eval()

    def __call__(self, inputs: Inputs) -> Array:
        """`logits` f32[B, S, 1 + N Z]."""
        with torch.inference_mode():
            logits: Array = self._module(
                {name: torch.from_numpy(np.array(x)) for name, x in inputs.items()}
            ).numpy()
        return logits
