"""Artefacts, loaded for serving: checked against their record, opened, warm, with threads of their own."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from td_loop.deploy.admission.record import require_verified
from td_loop.deploy.canary.store import check_not_refused
from td_loop.deploy.served import served_game
from td_loop.deploy.server.inference import NoMoves, Question, infer
from td_loop.deploy.server.policies import Named
from td_loop.deploy.server.pool import Pool
from td_loop.deploy.server.watch import Watch
from td_loop.errors import DataError, Refused
from td_loop.games.served import Served
from td_loop.policy.artefact import Artefact, read_artefact
from td_loop.policy.runner import Runner
from td_loop.policy.runtimes import Runtime, open_runner

PAUSE_S = 0.002
"""Seconds between them, in which requests to the policies that are there are answered."""
WARM_UP, WARM_UP_S = 20, 3.0
"""Decisions that a policy makes before it gets traffic, since the first few are slow; seconds they may take."""


@dataclass(frozen=True)
class Loaded:
    """A policy that is ready to answer.

    Attributes:
        named: which.
        game: what it plays.
        artefact: what it says of itself.
        runner: its network, warm.
        pool: the threads that it computes in; no other policy's.
        watch: what is noticed of its answers.
    """

    named: Named
    game: Served[Any, Any]
    artefact: Artefact
    runner: Runner
    pool: Pool
    watch: Watch

    @property
    def short(self) -> bytes:
        """The first bytes of the hash, as names of decisions carry them."""
        return bytes.fromhex(self.named.sha256[:16])


@dataclass(frozen=True)
class Loading:
    """How policies are loaded.

    Attributes:
        folder: the server's, where records and the list of refused artefacts may stand.
        runtime: see `open_runner`.
        threads: that compute for a policy.
        most_stuck: threads that are started for those that hang.
    """

    folder: Path
    runtime: Runtime = "onnxruntime"
    threads: int = 4
    most_stuck: int = 8


def load(named: Named, how: Loading, game: Served[Any, Any] | None = None) -> Loaded:
    """Check, open and warm up an artefact.

    Args:
        named: which; its bytes must be those of the hash.
        how: see `Loading`.
        game: what it has to play; None: whatever it says.

    Raises:
        Refused: it was not verified, has changed since, or has been rolled back.
        DataError: it is no artefact, or one for another game.
        UsageError: the runtime is not installed.
    """
    path = Path(named.path)
    artefact = read_artefact(path, None if game is None else game.contract)
    if artefact.sha256 != named.sha256:
        raise Refused(f"{path}: has changed since it was chosen; choose it again")
    _require_record(artefact, how.folder)
    check_not_refused(how.folder, artefact.sha256)
    game = game or served_game(artefact.meta.contract.game)
    _refuse_other_contract(artefact, game)
    runner = open_runner(artefact, how.runtime)
    warm_up(game, runner, artefact)  # here, where kernels that must be compiled may take the minute that they take
    pool, one_at_a_time = Pool(f"policy-{artefact.sha256[:8]}", how.threads, how.most_stuck), threading.Lock()

    def warm_thread() -> None:
        with one_at_a_time:  # others are being answered
            warm_up(game, runner, artefact, 2)

    with contextlib.suppress(TimeoutError):  # a policy that is so slow is the canary's controller's to judge
        pool.on_each(warm_thread, WARM_UP_S)
    return Loaded(named, game, artefact, runner, pool, Watch(game, artefact))


def _require_record(artefact: Artefact, folder: Path) -> None:
    """The record may stand beside the artefact, or in the server's folder."""
    try:
        require_verified(artefact)
    except Refused:
        try:
            require_verified(artefact, folder)
        except Refused:
            pass
        else:
            return
        raise


def _refuse_other_contract(artefact: Artefact, game: Served[Any, Any]) -> None:
    """Refuse an artefact whose contract is not the game's.

    Raises:
        DataError: it is another.
    """
    if artefact.meta.contract != game.contract:
        raise DataError(f"{artefact.path}: was made for another version of {game.name}; export it again")


def warm_up(game: Served[Any, Any], runner: Runner, artefact: Artefact, decisions: int = WARM_UP) -> None:
    """Make decisions that nobody sees, so that kernels are compiled and sessions have grown.

    What a policy answers is none of its business: admission has judged that, and the canary's controller will.
    """
    end, watch = time.monotonic() + WARM_UP_S, Watch(game, artefact)
    questions = [case.inputs for case in artefact.meta.cases]
    for k in range(decisions):
        if time.monotonic() > end:
            break
        state = game.initial(k, 2 + 2 * (k % 2))
        body = game.pack(state, 0)
        game.rule_of(state, 0)
        with contextlib.suppress(NoMoves):
            watch.see(infer(game, runner, Question(partial(game.unpack, body))))
        with contextlib.suppress(Exception):  # a runner may raise anything
            runner(questions[k % len(questions)])
        time.sleep(PAUSE_S)
