"""What is noticed of a policy's answers, after they are on their way: how sure it is, and whether it wavers.

Entropies and replayed states are counters; inputs and choices are windows of counts. All of them add up over the
processes of a server.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any

import orjson

from td_loop.deploy.observe.drift import Bins, Drift
from td_loop.deploy.observe.entropy import Choices, choices, decision_entropy
from td_loop.deploy.observe.replays import Replays, key_of
from td_loop.deploy.server.inference import Inferred
from td_loop.games.served import Served
from td_loop.policy.artefact import Artefact


class Watch:
    """Of one policy in one process.

    Attributes:
        drift: the inputs of the last decisions.
        choices: what was chosen in them.
        replays: answers to states that were asked for before.
        entropy_sum, entropy_count: of all decisions in which there was a choice.
    """

    def __init__(self, game: Served[Any, Any], artefact: Artefact) -> None:
        """Nothing was seen yet."""
        self.drift = Drift(Bins(artefact.meta.contract, artefact.meta.reference))
        self.choices, self.replays = Choices(), Replays()
        self.entropy_sum, self.entropy_count = 0.0, 0
        self._game = game
        self._lock = threading.Lock()
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
        opened = self._game.open_options(x.state, x.seat, *x.logits.shape)
        entropy = decision_entropy(x.logits, opened)
        if entropy is not None:
            self.choices.add(choices(x.logits, opened))
            with self._lock:
                self.entropy_sum += entropy
                self.entropy_count += 1
        self.drift.add(x.inputs)
        self.replays.add(key_of(x.inputs), orjson.dumps(x.moves))
