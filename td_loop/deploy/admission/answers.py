"""Checks of what a network answers: its shape, finite numbers, and the same from three programs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from td_loop.deploy.admission.check import Check, Subject
from td_loop.games.served import Tensor
from td_loop.policy.runtimes import Runtime

TOLERANCE = 1e-4
"""How far two runtimes may be apart, absolute and relative: the order of sums differs, in 32 bits."""


def output_shape(subject: Subject) -> Check:
    """f32[1, S, O] for every reference case, with as many options as were stored."""
    wrong, shapes = 0, set()
    for case in subject.artefact.meta.cases:
        logits = subject.runner(case.inputs)
        shapes.add(f"{logits.dtype}{list(logits.shape)}")
        wrong += logits.dtype != np.float32 or logits.shape != case.logits.shape
    n = len(subject.artefact.meta.cases)
    figure = f"{wrong} of {n} cases differ" if wrong else f"{n} cases, {sorted(shapes)[0]}"
    return Check("output shape", wrong == 0, figure, "as stored", {"wrong": wrong, "cases": n})


def finite_outputs(subject: Subject) -> Check:
    """No answer holds NaN or an infinity."""
    finite = [bool(np.isfinite(subject.runner(x)).all()) for x in subject.inputs()]
    bad = finite.count(False)
    figure = f"{bad} of {len(finite)} answers not finite"
    return Check("finite outputs", bad == 0, figure, "0", {"not_finite": bad, "answers": len(finite)})


def parity_stored(subject: Subject) -> Check:
    """onnxruntime gives the logits that were stored when the artefact was made."""
    cases = subject.artefact.meta.cases
    return _parity("parity: stored", ((subject.runner(c.inputs), c.logits) for c in cases))


def parity(subject: Subject, runtime: Runtime) -> Check:
    """Another runtime gives the logits of onnxruntime."""
    other = subject.open_runner(subject.artefact, runtime)
    return _parity(f"parity: {runtime}", ((subject.runner(x), other(x)) for x in subject.inputs()))


def _parity(name: str, pairs: Iterable[tuple[Tensor, Tensor]]) -> Check:
    worst, flips, slots = 0.0, 0, 0
    for a, b in pairs:
        if a.shape != b.shape:
            return Check(name, False, f"shapes {a.shape} and {b.shape}", f"{TOLERANCE:g}")
        worst = max(worst, distance(a, b))
        flips += other_choices(a, b)
        slots += a.shape[0] * a.shape[1]
    figure = f"{worst:.1e}, {flips} of {slots} argmax differ"
    values = {"distance": worst, "argmax_differing": flips, "slots": slots}
    return Check(name, worst <= TOLERANCE and flips == 0, figure, f"{TOLERANCE:g}, 0", values)


def distance(a: Tensor, b: Tensor) -> float:
    """The largest |a - b| / (1 + |b|); infinite where one of them is not finite."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    return float((np.abs(a.astype(np.float64) - b) / (1 + np.abs(b))).max(initial=0.0))


def other_choices(a: Tensor, b: Tensor) -> int:
    """Slots whose most likely option in `a` is none in `b`, where options within the tolerance are equal."""
    top = np.take_along_axis(b, a.argmax(-1)[..., None], -1)[..., 0]
    best = b.max(-1)
    return int((best - top > TOLERANCE * (1 + np.abs(best))).sum())
