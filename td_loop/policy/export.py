"""Parameters to an artefact: the graph, the reference of its inputs, and a few real decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.errors import UsageError
from td_loop.games.served import Inputs, PolicyContract, Served
from td_loop.policy.artefact import Artefact, write_artefact
from td_loop.policy.graph import build
from td_loop.policy.meta import ArtefactMeta, Case
from td_loop.policy.network import NumpyNetwork
from td_loop.policy.reference import reference_of
from td_loop.policy.shape import NetworkSize, Parameters, start
from td_loop.rng import Stream, stream

N_CASES = 6


def export(
    path: Path,
    parameters: Parameters,
    contract: PolicyContract,
    decisions: Sequence[Inputs],
    parents: Mapping[str, str],
    training: Mapping[str, Any],
) -> Artefact:
    """Write an artefact.

    Args:
        path: the file.
        parameters: of the network.
        contract: the game's.
        decisions: inputs that make the reference; the cases are among them, evenly in their order.
        parents: what it was made from -> hex SHA-256.
        training: settings and figures, JSON data.

    Raises:
        UsageError: there are no decisions, or onnx is not installed.
        DataError: the parameters do not fit the contract.
        StorageError: the disk is full, read-only or failing.
    """
    if not decisions:
        raise UsageError("an artefact needs decisions for its reference; give one at least")
    run = NumpyNetwork(parameters, contract)
    shown = np.unique(np.linspace(0, len(decisions) - 1, N_CASES).astype(int))
    cases = tuple(Case(decisions[k], run(decisions[k])) for k in shown)
    meta = ArtefactMeta(contract, reference_of(contract, decisions), cases, dict(parents), dict(training))
    return write_artefact(path, build(parameters, contract), meta)


def export_untrained(
    path: Path, game: Served[Any, Any], seed: int = 0, size: NetworkSize | None = None, n: int = 60
) -> Artefact:
    """A valid artefact that has learnt nothing, its decisions from `n` turns of games that it plays itself."""
    rng = stream(seed, Stream.POLICY)
    parameters = start(game.contract, size or NetworkSize(), rng)
    run = NumpyNetwork(parameters, game.contract)
    decisions: list[Inputs] = []
    for p in (2, 4):
        state = game.initial(seed, p)
        for _ in range(n // 2):
            alive = game.alive(state)
            actions: list[Any] = []
            for seat in range(p):
                if not alive[seat]:
                    actions.append(None)
                    continue
                decisions.append(game.policy_inputs(state, seat))
                actions.append(game.choose(state, seat, decisions[-1], run(decisions[-1])[0]))
            state = game.step(state, actions)
            if game.outcome(state) is not None:
                break
    return export(path, parameters, game.contract, decisions, {}, {"seed": seed, "untrained": True})
