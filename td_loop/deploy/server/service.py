"""What one server process does with a request: assign it, ask a policy in time, answer, count. No HTTP in here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td_loop.deploy.names import Subset
from td_loop.deploy.server.assignment import Choice, assign
from td_loop.deploy.server.counters import CELLS, Counters
from td_loop.deploy.server.decision_id import POLICY_BYTES, DecisionId, Signer, folder_key
from td_loop.deploy.server.episodes import Episodes, Known, episode_key, policy_tag
from td_loop.deploy.server.exposition import exposition
from td_loop.deploy.server.inference import Inferred, Moves, NoMoves, Question, infer
from td_loop.deploy.server.ledger import Ledger, Redeemed
from td_loop.deploy.server.loading import Loaded
from td_loop.deploy.server.pool import Busy, Late, Pool
from td_loop.deploy.server.problem import Fault
from td_loop.deploy.server.watched import Watched
from td_loop.deploy.traffic import Traffic, TrafficState
from td_loop.errors import DataError
from td_loop.games.served import Served

RULE_S = 0.1
"""Seconds that the rule may take; then there are no moves. It takes less than one of a hundred of them."""
_RULE_THREADS, _RULE_STUCK = 2, 4
WARM_UP_S = 300.0
"""Seconds that compiling the rule may take."""


@dataclass(frozen=True, slots=True)
class Request:
    """A decision that is asked for.

    Attributes:
        episode: the client's name of it.
        previous: the name of the episode's last decision, or "".
        told: the subset that a router in front has chosen.
        read: the state and seat; see `Question`.
    """

    episode: str
    previous: str
    told: Subset | None
    read: Callable[[], tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer.

    Attributes:
        id: its name.
        moves: as the game's official environment takes them.
        subset: whose it is.
        reason: why the rule answered and not the policy; "" if it did not.
    """

    id: str
    moves: Moves
    subset: Subset
    reason: str


@dataclass(frozen=True, slots=True)
class Serving:
    """The policies of this process, replaced as a whole.

    Attributes:
        revision: of `policies.json`.
        stable, canary: loaded and warm.
        shadow: the canary answers for nobody.
    """

    revision: int
    stable: Loaded
    canary: Loaded | None
    shadow: bool

    def of(self, subset: Subset) -> Loaded | None:
        """The policy of a subset."""
        return self.canary if subset == "canary" else self.stable

    def both(self) -> Iterator[tuple[Subset, Loaded]]:
        """The subsets that have a policy, with it."""
        yield "stable", self.stable
        if self.canary is not None:
            yield "canary", self.canary


class Service:
    """One process's share of a server. All methods belong to its event loop."""

    def __init__(
        self,
        folder: Path,
        game: Served[Any, Any],
        serving: Serving,
        counters: Counters,
        watched: Watched,
        *,
        process: int,
        processes: int,
        deadline_s: float,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take up what the processes of `folder` share."""
        self.folder, self.game, self.counters = folder, game, counters
        self.serving = serving
        self._watched = watched
        self.traffic = Traffic.open(folder)
        self.episodes = Episodes(folder)
        self.ledger = Ledger(folder, processes)
        self.on_revision: Callable[[], None] = lambda: None
        self._signer = Signer(folder_key(folder))
        self._process, self._deadline_s, self._wall_clock = process, deadline_s, wall_clock
        self._rule = Pool("rule", _RULE_THREADS, _RULE_STUCK)
        self._shadows: set[asyncio.Task[None]] = set()

    def warm_up(self) -> None:
        """Let the rule answer once in each of its threads; call this from another thread than the loop's."""
        state = self.game.initial(0, 2)
        self._rule.on_each(lambda: self.game.rule_of(state, 0), WARM_UP_S)

    async def settle(self) -> None:
        """Give up what is computed for nobody; `close` comes then."""
        for task in self._shadows:
            task.cancel()
        await asyncio.gather(*self._shadows, return_exceptions=True)

    def close(self) -> None:
        """Give back files and threads."""
        self._rule.close()
        for _, policy in self.serving.both():
            policy.pool.close()
        self.ledger.close()
        self.episodes.close()
        self.traffic.close()

    def serve(self, serving: Serving) -> None:
        """Answer with these policies from the next request on."""
        self.tick()
        self.serving = serving
        self.counters.set_ready(serving.revision)

    def tick(self) -> None:
        """Publish what is not counted request by request; call it a few times a second."""
        self._watched.flush({s: (p.named.sha256, p.watch) for s, p in self.serving.both()})

    # --- decisions -----------------------------------------------------------------------------------------

    async def decide(self, request: Request, arrived: float) -> Decision:
        """Answer a request that was read at `arrived` (the loop's clock).

        Raises:
            DataError: it holds no state.
            Fault: something of the server's own broke.
        """
        traffic = self._current()
        serving = self.serving
        subset, key, switched, begun = self._assign(request, traffic, serving)
        policy = serving.canary if subset == "canary" else serving.stable
        assert policy is not None  # `assign` knows whether there is a canary
        question, cells = Question(request.read), CELLS[subset]
        self.counters.add(cells.in_flight)
        try:
            moves, reason, inferred = await self._ask(policy, question, arrived + self._deadline_s)
        except DataError:
            raise
        except Exception as e:
            raise Fault(subset) from e
        finally:
            self.counters.add(cells.in_flight, -1.0)
        self.counters.add(cells.requests)
        if begun:
            self.counters.add(cells.episodes)
        if reason:
            self.counters.add(cells.fallbacks[reason])
        if inferred is not None and serving.shadow and serving.canary is not None:
            self._shadow(serving.canary, question, inferred)
        name = DecisionId(
            self.ledger.id,
            self._process,
            self.ledger.next_number(self._process),
            subset,
            policy.short,
            key & 0xFFFFFFFF,
            bool(reason),
            switched,
        )
        return Decision(self._signer.write(name), moves, subset, reason)

    def written(self, decision: Decision, seconds: float) -> None:
        """Take note that an answer has been written so many seconds after its request was read."""
        self.counters.observe(CELLS[decision.subset].seconds, seconds)

    def failed(self, subset: Subset) -> None:
        """Take note of an answer with a 5xx status: a fault of the server's own, where `subset` was to answer."""
        self.counters.add(CELLS[subset].errors)

    def _current(self) -> TrafficState:
        traffic = self.traffic.read()
        if traffic.revision != self.serving.revision:
            self.on_revision()
        return traffic

    def _assign(self, request: Request, traffic: TrafficState, serving: Serving) -> tuple[Subset, int, bool, bool]:
        """Subset, key of the episode, whether it was moved, and whether it is new."""
        key, now = episode_key(request.episode), self._wall_clock()
        known = self.episodes.get(key, now) or self._from_previous(request.previous, key)
        # Until this process has followed, what the split means by its canary is not there; nor is one in shadow
        # for anybody, whatever a router or a weight that was set by hand may say.
        canary = None if serving.shadow or serving.revision != traffic.revision else serving.canary
        stable, salt = policy_tag(serving.stable.named.sha256), "" if canary is None else canary.named.sha256
        choice = Choice(traffic.canary_weight_bp, salt, stable, policy_tag(salt) if salt else None)
        to = assign(request.episode, choice, known, request.told)
        policy = stable if to.subset == "stable" or choice.canary is None else choice.canary
        self.episodes.put(key, Known(to.subset, policy, to.switched), now)
        return to.subset, key, to.switched, to.begun

    def _from_previous(self, previous: str, key: int) -> Known | None:
        """What the name of an episode's last decision tells, where the table has forgotten the episode."""
        last = self._signer.read(previous) if previous else None
        if last is None or last.episode != key & 0xFFFFFFFF:
            return None
        return Known(last.subset, policy_tag(last.policy.hex()), last.switched)

    async def _ask(
        self, policy: Loaded, question: Question, deadline: float
    ) -> tuple[Moves, str, Inferred | None]:
        """Moves, the reason if they are the rule's, and the policy's answer if they are not."""
        try:
            inferred = await policy.pool.ask(
                lambda: infer(self.game, policy.runner, question), deadline, policy.watch.see
            )
        except NoMoves as e:
            reason = e.reason
        except Late:
            reason = "timeout"
        except Busy:
            reason = "busy"
        else:
            return inferred.moves, "", inferred
        end = asyncio.get_running_loop().time() + RULE_S
        try:
            moves = await self._rule.ask(lambda: self.game.rule_of(*question.state()), end)
        except (Late, Busy):
            moves = []
        return moves, reason, None

    def _shadow(self, canary: Loaded, question: Question, stable: Inferred) -> None:
        """Let the canary answer the same question, for nobody; count it as its own."""
        task = asyncio.get_running_loop().create_task(self._compare(canary, question, stable))
        self._shadows.add(task)  # the loop itself keeps no hold of a task
        task.add_done_callback(self._shadows.discard)

    async def _compare(self, canary: Loaded, question: Question, stable: Inferred) -> None:
        loop, cells = asyncio.get_running_loop(), CELLS["canary"]
        if self.serving.canary is not canary:  # it was taken away meanwhile
            return
        began = loop.time()
        reason = ""
        self.counters.add(cells.in_flight)
        try:
            mine = await canary.pool.ask(
                lambda: infer(self.game, canary.runner, question), began + self._deadline_s, canary.watch.see
            )
        except NoMoves as e:
            reason = e.reason
        except Late:
            reason = "timeout"
        except Busy:
            reason = "busy"
        else:
            self.counters.add(cells.agreeing, float(mine.moves == stable.moves))
        finally:
            self.counters.add(cells.in_flight, -1.0)
        self.counters.add(cells.requests)
        if reason:
            self.counters.add(cells.fallbacks[reason])
        self.counters.observe(cells.seconds, loop.time() - began)

    # --- rewards -------------------------------------------------------------------------------------------

    def reward(self, decision: str, reward: float) -> Redeemed:
        """Take a reward, which must be finite, for a decision of any process of this server."""
        x = self._signer.read(decision)
        if x is None:
            return Redeemed.UNKNOWN
        redeemed = self.ledger.redeem(x)
        if redeemed is Redeemed.COUNTED:
            self._count_reward(x, reward)
        return redeemed

    def _count_reward(self, x: DecisionId, reward: float) -> None:
        cells, add = CELLS[x.subset], self.counters.add
        policy = self.serving.of(x.subset)
        if x.fallback:
            add(cells.reward_fallback)
        elif policy is None or policy.short[:POLICY_BYTES] != x.policy:
            add(cells.reward_uncredited["replaced"])
        elif x.switched:
            add(cells.reward_uncredited["switched"])
        else:
            add(cells.reward_count)
            add(cells.reward_positive if reward >= 0 else cells.reward_negative, abs(reward))
            add(cells.reward_squares, reward * reward)

    # --- what there is to see ------------------------------------------------------------------------------

    def metrics(self) -> bytes:
        """All metrics of all processes."""
        self.tick()
        percent = self.traffic.read().percent
        policies = dict(self.serving.both())
        watched = {s: (p.named.sha256, p.watch.drift.bins) for s, p in policies.items()}
        return exposition(
            self.counters.totals(),
            {"stable": 100.0 - percent, "canary": percent},
            {s: p.named.sha256 for s, p in policies.items()},
            {s: self._watched.choice_entropy(s, sha) for s, (sha, _) in watched.items()},
            {s: self._watched.drift(s, sha, bins) for s, (sha, bins) in watched.items()},
        )
