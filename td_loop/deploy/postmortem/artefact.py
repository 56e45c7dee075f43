"""The artefact once more, without traffic: what of its admission can be repeated on its own reference cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from td_loop.deploy.admission import answers, behaviour, lengths, noise
from td_loop.deploy.admission.check import Check, Subject
from td_loop.errors import OutputError, TdLoopError
from td_loop.games.served import Inputs
from td_loop.policy.artefact import Artefact, read_artefact
from td_loop.policy.reference import Column, column_names
from td_loop.policy.runner import Runner
from td_loop.policy.runtimes import open_runner

_BEYOND = (1.0, 10.0, 100.0)
"""Standard deviations beyond what training saw, to either side."""


@dataclass(frozen=True)
class Examined:
    """What was found.

    Attributes:
        fault: why the artefact could not be examined; "" if it was.
        checks: by name, those of the admission that need no game.
        beyond: columns with a value outside the training data that makes an answer that is not finite.
    """

    fault: str = ""
    checks: Mapping[str, Check] | None = None
    beyond: Sequence[tuple[str, float]] = ()

    @property
    def failed(self) -> list[Check]:
        """The checks that were not passed."""
        return [c for c in (self.checks or {}).values() if not c.passed]


def examine_artefact(path: Path, sha256: str) -> Examined:
    """Repeat the checks; nothing is raised, for a postmortem goes on without."""
    try:
        artefact = read_artefact(path)
        if artefact.sha256 != sha256:
            return Examined(f"{path} is another file by now: {artefact.sha256[:12]}, the canary was {sha256[:12]}")
        runner = open_runner(artefact)
    except TdLoopError as e:
        return Examined(str(e))
    # Without decisions no game is asked for: whoever writes the postmortem may not have it.
    subject = Subject(artefact, None, open_runner, runner, ())  # type: ignore[arg-type]
    made = [
        _made(name, check, subject)
        for name, check in (
            ("output shape", answers.output_shape),
            ("parity: stored", answers.parity_stored),
            ("padding", lengths.padding),
            ("lengths", lengths.lengths),
            ("determinism", behaviour.determinism),
            ("exploration noise", noise.exploration_noise),
        )
    ]
    return Examined("", {c.name: c for c in made}, list(_not_finite(artefact, runner)))


def _made(name: str, check: Callable[[Subject], Check], subject: Subject) -> Check:
    try:
        return check(subject)
    except Exception as e:  # whatever a runtime raises about this network: it has not passed
        return Check(name, False, f"{type(e).__name__}: {' '.join(str(e).split())}", "no error")


def _not_finite(artefact: Artefact, runner: Runner) -> Iterator[tuple[str, float]]:
    """The value of each column that is nearest to the training data, of those that make an answer not finite."""
    meta = artefact.meta
    case = max(meta.cases, key=lambda c: c.logits.size).inputs
    for spec, c, name in column_names(meta.contract):
        for value in _values(meta.reference[name]):
            x = case[spec.name].copy()
            x[..., c] = value
            if not _is_finite(runner, {**case, spec.name: x}):
                yield name, value
                break


def _values(column: Column) -> Iterator[float]:
    width = max(column.std, 1e-3 * max(1.0, abs(column.mean)))
    for k in _BEYOND:
        yield column.high + k * width
        yield column.low - k * width


def _is_finite(runner: Runner, inputs: Inputs) -> bool:
    try:
        return bool(np.isfinite(runner(inputs)).all())
    except OutputError:
        return False
