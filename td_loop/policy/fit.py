"""`td-loop policy fit`: rounds of data and training, and the artefact at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.files import sha256
from td_loop.games.served import Taught
from td_loop.kernels import cache_dir
from td_loop.policy.artefact import Artefact, import_onnx, read_artefact
from td_loop.policy.config import PolicyFitConfig
from td_loop.policy.export import export
from td_loop.policy.network import NumpyNetwork
from td_loop.policy.rows import Row, play_rows, replay_rows
from td_loop.policy.shape import NetworkSize, shapes, start
from td_loop.progress import progress
from td_loop.rng import Stream, stream
from td_loop.value.io import load_weights

_PARAMETERS, _BATCHES, _REFERENCE = 2, 3, 4  # streams of Stream.POLICY
N_REFERENCE = 1000
"""Decisions from which the reference statistics are taken."""


@dataclass(frozen=True)
class FitResult:
    """What a fit brought: the artefact, and how it does on held-out games."""

    artefact: Artefact
    figures: dict[str, Any]


def run_fit(
    game: Taught[Any, Any],
    config: PolicyFitConfig,
    out: Path,
    weights: Path,
    *,
    replays: Path | None = None,
    resume: Path | None = None,
    size: NetworkSize | None = None,
    command: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> FitResult:
    """Fit a policy and write it to `out`. Nothing is written before the end.

    Args:
        game: the game.
        config: see there.
        out: the artefact.
        weights: value function of the teacher.
        replays: games whose winners are learnt from, too.
        resume: an artefact whose network is fitted on; it plays in the first round already.
        size: of the network; that of `resume`, where there is one.
        command: how it was asked for: kept in the artefact.
        say: told of every round.

    Raises:
        WeightsError, ReplayError, DataError: a file cannot be used, or too few games were played.
        UsageError: onnx is not installed.
        StorageError: the disk is full, read-only or failing.
    """
    import_onnx()  # what is missing is said before an hour of games, not after
    teacher = game.make_search(load_weights(weights, feature_names=game.feature_names))
    parents = {"weights": sha256(weights)}
    if resume is None:
        rng = stream(config.seed, Stream.POLICY, _PARAMETERS)
        parameters = start(game.contract, size or NetworkSize(), rng)
        learner = None
    else:
        before = read_artefact(resume, game.contract)
        learner = NumpyNetwork(before.weights, game.contract)
        parameters = {name: before.weights[name] for name in shapes(game.contract, learner.size)}
        parents["policy"] = before.sha256
    rows: list[Row] = []
    if replays is not None:
        found = game.open_replays(replays, cache_dir())
        parents["replays"] = found.content_hash
        rows += replay_rows(game, config, found, config.rounds * config.games)
        say(f"{len(rows)} moves of winners from {len(found.games)} replayed games")

    from td_loop.policy.train import PolicyTrainer  # torch: a second or two

    trainer = PolicyTrainer(game, parameters, config, stream(config.seed, Stream.POLICY, _BATCHES))
    history = []
    for k in range(config.rounds):
        with progress(f"round {k + 1}", config.games) as advance:
            rows += play_rows(game, config, k, teacher, learner, advance)
        learnt, held_out = _split(rows)
        epochs = config.epochs if k + 1 < config.rounds else config.last_epochs
        with progress("training", trainer.n_steps(len(learnt), epochs)) as advance:
            trainer.fit(learnt, epochs, advance)
        learner = NumpyNetwork(trainer.parameters, game.contract)
        figures = trainer.figures(held_out or learnt)
        history.append(asdict(figures))
        say(
            f"round {k + 1}: {len(rows)} rows; held out: loss {figures.loss:.3f}, agreement "
            f"{figures.agreement:.1%} (stay {figures.stay:.1%}), of launches {figures.launch_agreement:.1%}"
        )
    parents["data"] = _hash(rows)
    shown = stream(config.seed, Stream.POLICY, _REFERENCE).permutation(len(rows))[:N_REFERENCE]
    decisions = [game.policy_inputs(rows[i].state, rows[i].seat) for i in np.sort(shown)]
    training = {"command": command, "settings": asdict(config), "rounds": history, "rows": len(rows)}
    artefact = export(out, trainer.parameters, game.contract, decisions, parents, training)
    return FitResult(artefact, history[-1])


def _split(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """(learnt from, held out); a set of one game is all learnt from."""
    held_out = [row for row in rows if row.held_out]
    learnt = [row for row in rows if not row.held_out]
    return (learnt, held_out) if learnt else (list(rows), [])


def _hash(rows: Sequence[Row]) -> str:
    """Hex SHA-256 of what was learnt from: games, seats and options, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(np.array([row.game, row.seat, len(row.options)]).tobytes() + row.options.tobytes())
    return digest.hexdigest()
