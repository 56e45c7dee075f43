"""What is noticed of a policy's answers, after they are on their way: how sure it is, and whether it wavers.

Entropies and replayed states are counters; inputs and choices are windows of counts. All of them add up over the
processes of a server.

Looking at an answer takes a third as long as making it. So a busy process looks at as many as SHARE of a core pays
for, and at all of them in the first second of a burst; replayed states it looks for in every answer.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import orjson

from td_loop.deploy.observe.drift import Bins, Drift
from td_loop.deploy.observe.entropy import Choices, choices, decision_entropy
from td_loop.deploy.observe.replays import Replays, key_of
from td_loop.deploy.server.inference import Inferred
from td_loop.games.served import Served
from td_loop.policy.artefact import Artefact

SHARE = 0.05
"""Part of one core that looking at the answers of one policy may take."""
BURST_S = 0.25
"""Seconds of work that are saved up while there is little to do."""


class Watch:
    """Of one policy in one process.

    Attributes:
        drift: the inputs of the last decisions.
        choices: what was chosen in them.
        replays: answers to states that were asked for before.
        entropy_sum, entropy_count: of the decisions that were looked at and in which there was a choice.
    """

    def __init__(
        self,
        game: Served[Any, Any],
        artefact: Artefact,
        clock: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """Nothing was seen yet; `cpu` is the processor time of the thread that asks."""
        self.drift = Drift(Bins(artefact.meta.contract, artefact.meta.reference))
        self.choices, self.replays = Choices(), Replays()
        self.entropy_sum, self.entropy_count = 0.0, 0
        self._game, self._clock, self._cpu = game, clock, cpu
        self._lock = threading.Lock()
        self._saved, self._since = BURST_S, clock()
        self._failed = False

    def see(self, x: Inferred) -> None:
        """Take note of an answer; called in the thread that made it, when nobody waits any more."""
        try:
            self._see(x)
        except Exception:  # whatever a game's own code raises must not end the thread
            if not self._failed:
                traceback.print_exc(file=sys.stderr)
            self._failed = True

    def _see(self, x: Inferred) -> None:
        self.replays.add(key_of(x.inputs), orjson.dumps(x.moves))
        with self._lock:
            now = self._clock()
            self._saved = min(BURST_S, self._saved + SHARE * (now - self._since))
            self._since = now
            if self._saved <= 0.0:
                return
        began = self._cpu()
        self._look(x)
        with self._lock:
            self._saved -= self._cpu() - began

    def _look(self, x: Inferred) -> None:
        opened = self._game.open_options(x.inputs, *x.logits.shape)
        entropy = decision_entropy(x.logits, opened)
        if entropy is not None:
            self.choices.add(choices(x.logits, opened))
            with self._lock:
                self.entropy_sum += entropy
                self.entropy_count += 1
        self.drift.add(x.inputs)
