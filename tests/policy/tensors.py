"""Random inputs of a contract, and such with padding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from td_loop.games.served import Inputs, PolicyContract, Tensor


def random_inputs(contract: PolicyContract, lengths: Mapping[str, int], rng: np.random.Generator) -> Inputs:
    """Inputs of these lengths, some entries of every batch row masked, but never the first."""
    out: dict[str, Tensor] = {}
    masks = {spec.mask for spec in contract.inputs if spec.mask}
    for spec in contract.inputs:
        shape = tuple(a if isinstance(a, int) else lengths[a] for a in spec.axes)
        if spec.name in masks or spec.name == "open":
            out[spec.name] = (rng.random(shape) < 0.8).astype(np.float32)
            if len(shape) == 2:
                out[spec.name][:, 0] = 1
        elif spec.name in ("slots", "lands"):
            out[spec.name] = np.zeros(shape, np.float32)
            place = rng.integers(0, lengths["N"], (shape[0], lengths["S" if spec.name == "slots" else "A"]))
            for b, row in enumerate(place):
                for k, n in enumerate(row):
                    out[spec.name][(b, k, n) if spec.name == "slots" else (b, n, k)] = 1
        else:
            out[spec.name] = rng.normal(size=shape).astype(np.float32)
    return out


def padded(contract: PolicyContract, inputs: Inputs, more: Mapping[str, int], rng: np.random.Generator) -> Inputs:
    """`inputs` with more entries along every axis: masks are 0 there, everything else of padded rows is noise."""
    out: dict[str, Tensor] = {}
    masks = {spec.mask for spec in contract.inputs if spec.mask}
    for spec in contract.inputs:
        x = inputs[spec.name]
        wider = [(0, more.get(a, 0) if isinstance(a, str) else 0) for a in spec.axes]
        shape = tuple(n + w for n, (_, w) in zip(x.shape, wider, strict=True))
        noisy = spec.name not in masks and spec.name not in ("slots", "lands")
        out[spec.name] = rng.normal(size=shape).astype(np.float32) if noisy else np.zeros(shape, np.float32)
        out[spec.name][tuple(slice(0, n) for n in x.shape)] = x
    return out
