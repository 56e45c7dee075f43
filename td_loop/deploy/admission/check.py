"""One check of an artefact, and what all of them look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from td_loop.games.served import Inputs, Served
from td_loop.policy.artefact import Artefact
from td_loop.policy.runner import Runner

OpenRunner = Callable[[Artefact, Any], Runner]
"""As `td_loop.policy.runtimes.open_runner`."""


@dataclass(frozen=True)
class Check:
    """What one check found.

    Attributes:
        name: of the check; a failure is known by it.
        passed: whether the artefact may have traffic as far as this check goes.
        figure: what was measured, for people.
        limit: what it must be, for people.
        values: the numbers behind `figure`, for programs.
    """

    name: str
    passed: bool
    figure: str
    limit: str
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """A state of a game that was played, and what the policy sees of it as `seat`."""

    state: Any
    seat: int
    inputs: Inputs


@dataclass(frozen=True)
class Subject:
    """An artefact under examination.

    Attributes:
        artefact: it.
        game: its game.
        open_runner: opens it in a runtime.
        runner: it in onnxruntime, as the server runs it.
        decisions: of games between the game's own players.
    """

    artefact: Artefact
    game: Served[Any, Any]
    open_runner: OpenRunner
    runner: Runner
    decisions: Sequence[Decision]

    def inputs(self) -> Iterator[Inputs]:
        """Those of the reference cases and of the decisions."""
        yield from (case.inputs for case in self.artefact.meta.cases)
        yield from (decision.inputs for decision in self.decisions)
