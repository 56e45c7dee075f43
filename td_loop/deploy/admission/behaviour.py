"""Checks of how a policy acts: the same for the same state, and legally."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from td_loop.deploy.admission.check import Check, Subject
from td_loop.errors import OutputError

_REPEATS = 20
_THREADS = 4


def determinism(subject: Subject) -> Check:
    """Equal inputs give equal bits: call after call, from several threads at once, and when loaded anew."""
    cases = [case.inputs for case in subject.artefact.meta.cases]
    first = [subject.runner(x).tobytes() for x in cases]
    calls = list(range(len(cases))) * _REPEATS

    def differs(k: int) -> bool:
        return subject.runner(cases[k]).tobytes() != first[k]

    again = sum(map(differs, calls))
    with ThreadPoolExecutor(_THREADS) as pool:
        again += sum(pool.map(differs, calls))
    anew = subject.open_runner(subject.artefact, "onnxruntime")
    again += sum(anew(x).tobytes() != bits for x, bits in zip(cases, first, strict=True))
    n = 2 * len(calls) + len(cases)
    figure = f"{again} of {n} calls differ ({_THREADS} threads)"
    return Check("determinism", again == 0, figure, "0", {"differing": again, "calls": n})


def legality(subject: Subject) -> Check:
    """Every action that the game makes of an answer is taken by its engine as it stands."""
    illegal, first = 0, ""
    for d in subject.decisions:
        try:
            action = subject.game.choose(d.state, d.seat, d.inputs, subject.runner(d.inputs)[0])
        except OutputError as e:
            illegal, first = illegal + 1, first or f" ({e})"
            continue
        illegal += not subject.game.is_legal(d.state, d.seat, action)
    n = len(subject.decisions)
    figure = f"{illegal} of {n} actions illegal{first}"
    return Check("legality", illegal == 0, figure, "0", {"illegal": illegal, "actions": n})
