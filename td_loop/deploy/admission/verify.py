"""All checks of an artefact, one after the other."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from td_loop.deploy.admission import answers, behaviour, latency, lengths, noise
from td_loop.deploy.admission.check import Check, OpenRunner, Subject
from td_loop.deploy.admission.games import decisions
from td_loop.games.served import Served
from td_loop.policy.artefact import Artefact
from td_loop.policy.runtimes import open_runner

SLA_MS = 10.0
"""Milliseconds that a decision may take, at p99."""


@dataclass(frozen=True)
class Verification:
    """What was found.

    Attributes:
        artefact: what was examined.
        sla_ms: the latency that was asked for.
        checks: all of them, in the order in which they were made.
    """

    artefact: Artefact
    sla_ms: float
    checks: tuple[Check, ...]

    @property
    def failed(self) -> list[Check]:
        """Those that were not passed."""
        return [check for check in self.checks if not check.passed]


def verify(
    artefact: Artefact,
    game: Served[Any, Any],
    *,
    sla_ms: float = SLA_MS,
    clock: latency.Clock = time.perf_counter,
    open_runner: OpenRunner = open_runner,
) -> Verification:
    """Make every check. A failed one stops nothing: the others may tell why.

    Args:
        artefact: of `game`'s contract (see `read_artefact`).
        game: whose players make the states.
        sla_ms: milliseconds of a decision, at p50 and p99.
        clock: seconds.
        open_runner: opens the artefact in a runtime.

    Raises:
        DataError: onnxruntime does not take the network at all.
        UsageError: onnxruntime is not installed.
    """
    runner = open_runner(artefact, "onnxruntime")
    subject = Subject(artefact, game, open_runner, runner, decisions(game))
    checks = []
    for name, check in _checks(sla_ms, clock):
        checks += _made(name, check, subject)
    return Verification(artefact, sla_ms, tuple(checks))


Made = Callable[[Subject], Check | list[Check]]


def _checks(sla_ms: float, clock: latency.Clock) -> Iterable[tuple[str, Made]]:
    return [
        ("output shape", answers.output_shape),
        ("finite outputs", answers.finite_outputs),
        ("parity: stored", answers.parity_stored),
        ("parity: numpy", functools.partial(answers.parity, runtime="numpy")),
        ("parity: torch", functools.partial(answers.parity, runtime="torch")),
        ("determinism", behaviour.determinism),
        ("exploration noise", noise.exploration_noise),
        ("legality", behaviour.legality),
        ("padding", lengths.padding),
        ("lengths", lengths.lengths),
        ("warm-up", functools.partial(latency.warm_up, sla_ms=sla_ms, clock=clock)),
        ("latency", functools.partial(latency.latency, sla_ms=sla_ms, clock=clock)),
    ]


def _made(name: str, check: Made, subject: Subject) -> list[Check]:
    try:
        found = check(subject)
    except Exception as e:  # whatever a runtime or a game raises about this network: it has not passed
        return [Check(name, False, f"{type(e).__name__}: {' '.join(str(e).split())}", "no error")]
    return found if isinstance(found, list) else [found]
