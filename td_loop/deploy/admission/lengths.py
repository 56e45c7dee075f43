"""Checks of sequence lengths: padding that is masked changes nothing, and every length that may come works."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from td_loop.deploy.admission.answers import TOLERANCE, distance
from td_loop.deploy.admission.check import Check, Subject
from td_loop.games.served import Inputs, PolicyContract, Tensor
from td_loop.policy.reference import masked_axes

_CASES = 3
_PADDINGS = (1, 7)
_NOISE = (0.0, 3.0)
_BATCHES = (2, 5)


def padding(subject: Subject) -> Check:
    """Entries behind a mask, zeros or noise, leave the logits of the real slots as they were."""
    contract, rng = subject.artefact.meta.contract, np.random.default_rng(0)
    paddable = [x for x in contract.limits if any(x in masked_axes(contract, spec) for spec in contract.inputs)]
    worst, where, tried = 0.0, "", 0
    for case in subject.artefact.meta.cases[:_CASES]:
        bare = subject.runner(case.inputs)
        for axis, scale in itertools.product(paddable, _NOISE):
            for extra in _extras(contract, case.inputs, axis):
                padded = subject.runner(pad(contract, case.inputs, axis, extra, scale, rng))
                off = distance(padded[:, : bare.shape[1], : bare.shape[2]], bare)
                worst, where = max((worst, where), (off, f" ({axis} + {extra})"))
                tried += 1
    passed = worst <= TOLERANCE
    figure = f"{worst:.1e} in {tried} paddings{'' if passed else where}"
    return Check("padding", passed, figure, f"{TOLERANCE:g}", {"distance": worst, "paddings": tried})


def lengths(subject: Subject) -> Check:
    """Every length of every axis up to its limit, all at once, and batches: finite logits for each slot."""
    contract, case = subject.artefact.meta.contract, subject.artefact.meta.cases[0]
    failed, tried = [], 0
    for name, inputs in _resized(contract, case.inputs):
        tried += 1
        try:
            logits = subject.runner(inputs)
        except Exception:  # whatever a runtime raises: it does not work
            failed.append(name)
            continue
        slots = _length(contract, inputs, contract.slots)
        batch = _length(contract, inputs, "B")
        if logits.shape[:2] != (batch, slots) or not np.isfinite(logits).all():
            failed.append(name)
    limits = ", ".join(f"{axis} 1..{most}" for axis, most in contract.limits.items())
    figure = f"{len(failed)} of {tried} fail ({failed[0] if failed else limits})"
    return Check("lengths", not failed, figure, "0", {"failing": len(failed), "lengths": tried})


def pad(
    contract: PolicyContract, inputs: Inputs, axis: str, extra: int, scale: float, rng: np.random.Generator
) -> Inputs:
    """`inputs` with `extra` masked entries along `axis`: noise of that scale behind masks, zeros in all else."""
    out: dict[str, Tensor] = {}
    for spec in contract.inputs:
        x = inputs[spec.name]
        shape = [n + extra * (a == axis) for a, n in zip(spec.axes, x.shape, strict=True)]
        hidden = scale if axis in masked_axes(contract, spec) else 0.0
        out[spec.name] = (hidden * rng.standard_normal(shape)).astype(np.float32)
        out[spec.name][tuple(slice(n) for n in x.shape)] = x
    return out


def resize(contract: PolicyContract, inputs: Inputs, wanted: dict[str, int]) -> Inputs:
    """`inputs` with other lengths: entries are dropped from the end, or repeated from the start."""
    out: dict[str, Tensor] = {}
    for spec in contract.inputs:
        x = inputs[spec.name]
        for d, axis in enumerate(spec.axes):
            if axis in wanted:
                x = np.take(x, np.arange(wanted[str(axis)]) % x.shape[d], axis=d)
        out[spec.name] = x
    return out


def _extras(contract: PolicyContract, inputs: Inputs, axis: str) -> list[int]:
    room = contract.limits[axis] - _length(contract, inputs, axis)
    return sorted({extra for extra in (*_PADDINGS, room) if 0 < extra <= room})


def _resized(contract: PolicyContract, inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    for axis, most in contract.limits.items():
        for n in range(1, most + 1):
            yield f"{axis} = {n}", resize(contract, inputs, {axis: n})
    yield "all = 1", resize(contract, inputs, dict.fromkeys(contract.limits, 1))
    yield "all at their limits", resize(contract, inputs, dict(contract.limits))
    for n in _BATCHES:
        yield f"B = {n}", resize(contract, inputs, {"B": n})


def _length(contract: PolicyContract, inputs: Inputs, axis: str) -> int:
    spec = next(s for s in contract.inputs if axis in s.axes)
    return int(inputs[spec.name].shape[spec.axes.index(axis)])
