"""What one process does with a request, without HTTP: faults of a policy, shadow, rewards, other policies."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from td_loop.deploy.canary import store
from td_loop.deploy.names import SUBSET_HEADER, SUBSETS, Subset
from td_loop.deploy.server.control import Control
from td_loop.deploy.server.counters import CELLS, Counters
from td_loop.deploy.server.episodes import IDLE_S
from td_loop.deploy.server.follower import load_all
from td_loop.deploy.server.http import App
from td_loop.deploy.server.inference import NoMoves, Question, infer
from td_loop.deploy.server.ledger import Redeemed
from td_loop.deploy.server.loading import Loaded, Loading
from td_loop.deploy.server.policies import Named, Policies, as_json, publish
from td_loop.deploy.server.pool import Pool
from td_loop.deploy.server.service import Decision, Request, Service, Serving
from td_loop.deploy.server.watch import Watch
from td_loop.deploy.server.watched import Watched
from td_loop.deploy.traffic import Traffic
from td_loop.errors import DataError, Refused
from td_loop.files import write_json
from td_loop.games.served import Inputs, Tensor
from td_loop.policy.artefact import Artefact
from tests.deploy.served_faulty import GAME as FAULTY
from tests.deploy.served_faulty import ILLEGAL, write_faulty
from tests.deploy.serving import observation, with_record
from tests.deploy.toy_policy import write_good
from tests.deploy.toy_served import GAME

LONG_S = 30.0


def decided(inputs: Inputs) -> Tensor:
    """Option 1 for every seat."""
    logits = np.zeros((1, inputs["seats"].shape[1], 3), np.float32)
    logits[..., 1] = 1.0
    return logits


def undecided(inputs: Inputs) -> Tensor:
    """To stay, always."""
    return np.zeros((1, inputs["seats"].shape[1], 3), np.float32) + np.array([2, 0, 0], np.float32)


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return write_good(tmp_path_factory.mktemp("artefact") / "policy.onnx")


@dataclass
class Rig:
    """A service with policies to order."""

    folder: Path
    artefact: Artefact
    stack: ExitStack
    service: Any = None
    now: float = 1000.0

    def policy(self, letter: str, runner: Callable[[Inputs], Any], game: Any = GAME) -> Loaded:
        pool = Pool(letter, 2, 1)
        self.stack.callback(pool.close)
        return Loaded(
            Named("/nowhere", letter * 64), game, self.artefact, runner, pool, Watch(game, self.artefact)
        )

    def hangs(self) -> Callable[[Inputs], Tensor]:
        """A runner that hangs until the test ends."""
        gate = threading.Event()
        self.stack.callback(gate.set)

        def wait(inputs: Inputs) -> Tensor:
            gate.wait()
            return decided(inputs)

        return wait

    def start(
        self, stable: Loaded, canary: Loaded | None = None, *, shadow: bool = False, within: float = LONG_S
    ) -> Service:
        counters = Counters(self.folder, 1, fresh=True)
        watched = Watched(self.folder, counters, 1, 0, fresh=True)
        self.stack.callback(counters.close)
        self.stack.callback(watched.close)
        self.service = Service(
            self.folder,
            stable.game,
            Serving(0, stable, canary, shadow),
            counters,
            watched,
            process=0,
            processes=1,
            deadline_s=within,
            wall_clock=lambda: self.now,
        )
        self.stack.callback(self.service.close)
        return self.service

    def count(self, subset: Subset, name: str, reason: str = "") -> float:
        cell = getattr(CELLS[subset], name)
        return self.service.counters.own(cell[reason] if reason else cell)


@pytest.fixture
def rig(tmp_path: Path, artefact: Artefact) -> Iterator[Rig]:
    with ExitStack() as stack:
        made = Rig(tmp_path, artefact, stack)
        yield made
        assert {s: made.count(s, "in_flight") for s in SUBSETS} == dict.fromkeys(SUBSETS, 0.0)


async def ask(service: Service, episode: str = "e", **of: Any) -> Decision:
    read = partial(service.game.read_observation, of.pop("shown", observation()))
    request = Request(episode, of.pop("previous", ""), of.pop("told", None), read)
    return await service.decide(request, asyncio.get_running_loop().time())


def looked_at(policy: Loaded) -> None:
    """Wait until what follows an answer is done, too."""
    policy.pool.on_each(lambda: None, LONG_S)


def run(what: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await what

    return asyncio.run(main())


def test_a_policy_answers_and_is_counted(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided))
    decision = run(ask(service))
    assert (decision.moves, decision.subset, decision.reason) == ([[0, 2], [1, 2]], "stable", "")
    assert rig.count("stable", "requests") == rig.count("stable", "episodes") == 1
    assert rig.count("canary", "requests") == 0


def raises(inputs: Inputs) -> Tensor:
    raise SystemError("to order")


FAULTS: dict[str, tuple[str, Callable[[Inputs], Any]]] = {
    "raises": ("error", raises),
    "is no array": ("output", lambda x: [[0.0]]),
    "has one slot too few": ("output", lambda x: decided(x)[:, 1:]),
    "has no batch": ("output", lambda x: decided(x)[0]),
    "has one option too many": ("output", lambda x: np.zeros((1, 2, 4), np.float32)),
    "is a number of integers": ("output", lambda x: np.zeros((1, 2, 3), np.int64)),
    "holds a NaN": ("output", lambda x: decided(x) * np.float32(np.nan)),
    "holds an infinity": ("output", lambda x: np.full((1, 2, 3), np.inf, np.float32)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_when_an_answer_is_a_fault_the_rule_answers_and_the_reason_is_counted(rig: Rig, fault: str) -> None:
    reason, runner = FAULTS[fault]
    service = rig.start(rig.policy("a", runner))
    decision = run(ask(service))
    assert (decision.moves, decision.reason) == (GAME.rule_of(*GAME.read_observation(observation())), reason)
    assert rig.count("stable", "fallbacks", reason) == rig.count("stable", "requests") == 1


def test_an_action_that_is_not_legal_is_never_returned(rig: Rig, tmp_path: Path) -> None:
    rig.artefact = write_faulty(tmp_path / "faulty.onnx")
    service = rig.start(rig.policy("a", decided, FAULTY))
    decision = run(ask(service, shown=observation(ILLEGAL)))
    assert (decision.moves, decision.reason) == (
        FAULTY.rule_of(*FAULTY.read_observation(observation(ILLEGAL))),
        "illegal",
    )


def test_a_policy_that_is_late_delays_nobody_but_the_one_who_asked(rig: Rig) -> None:
    gate = threading.Event()
    rig.stack.callback(gate.set)

    def hangs_on_9(inputs: Inputs) -> Tensor:
        if np.isclose(inputs["seats"][0, 0, 1], np.log1p(9)):
            gate.wait()
        return decided(inputs)

    service = rig.start(rig.policy("a", hangs_on_9))

    async def all_of_them() -> None:
        slow = [asyncio.ensure_future(ask(service, "slow", shown=observation(troops=9))) for _ in range(2)]
        await asyncio.sleep(0)
        # Both threads of the pool hang; a third one has taken their place long before anybody is late.
        assert [(await ask(service, str(k))).reason for k in range(4)] == [""] * 4
        assert not any(task.done() for task in slow)
        gate.set()
        assert [decision.reason for decision in await asyncio.gather(*slow)] == ["", ""]

    run(all_of_them())


def test_when_every_thread_hangs_the_rule_answers_at_once_and_the_other_policy_does_not_notice(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", rig.hangs()), within=0.02)
    reasons = [run(ask(service, told="canary")).reason for _ in range(20)]
    # A call that no thread had begun when it was given up leaves that thread free: it may be more than three.
    assert set(reasons[:3]) == {"timeout"}
    assert reasons[-1] == "busy"
    assert run(ask(service, told="stable")).subset == "stable"
    assert rig.count("canary", "fallbacks", "busy") == reasons.count("busy")
    assert rig.count("stable", "fallbacks", "busy") == 0


class Untold(type(GAME)):  # type: ignore[misc]
    """The toy game, whose actions cannot be told to a client."""

    def answer(self, action: Any) -> list[list[Any]]:
        raise OverflowError("to order")


def test_an_action_that_cannot_be_told_is_answered_by_the_rule(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided, Untold()))
    decision = run(ask(service))
    assert (decision.moves, decision.reason) == (GAME.rule_of(*GAME.read_observation(observation())), "error")


@pytest.mark.parametrize("subset", SUBSETS)
def test_a_5xx_answer_is_an_error_of_the_subset_that_was_to_answer(
    rig: Rig, subset: Subset, capsys: pytest.CaptureFixture[str]
) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", decided))
    app = App(service, Control(rig.folder, service.traffic, lambda: [0], lambda _: None), behind_proxy=True)
    answers: list[int] = []

    class Protocol:
        async def __call__(self) -> bytes:
            return orjson.dumps({"episode": "e", "observation": observation()})

        def response_bytes(self, status: int, headers: Any, body: bytes) -> None:
            if status == 200:
                raise RuntimeError("to order")
            answers.append(status)

    headers = {"content-length": "99", SUBSET_HEADER: subset}
    scope = SimpleNamespace(path="/v1/decide", method="POST", headers=headers, client="127.0.0.1:9")
    run(app.__rsgi__(scope, Protocol()))
    assert answers == [500]
    assert {s: rig.count(s, "errors") for s in SUBSETS} == {s: float(s == subset) for s in SUBSETS}
    assert "RuntimeError: to order" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("behind_proxy", "told", "status", "answers"),
    [
        (True, "canary", 200, "canary"),
        (True, "stable", 200, "stable"),
        (True, "blue", 400, ""),
        (True, None, 200, "stable"),
        (False, "canary", 200, "stable"),
        (False, "blue", 200, "stable"),
    ],
)
def test_only_a_router_in_front_may_say_who_answers(
    rig: Rig, behind_proxy: bool, told: str | None, status: int, answers: str
) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", decided))
    control = Control(rig.folder, service.traffic, lambda: [0], lambda _: None, behind_proxy)
    app = App(service, control, behind_proxy=behind_proxy)
    answered: list[tuple[int, Any]] = []

    class Protocol:
        async def __call__(self) -> bytes:
            return orjson.dumps({"episode": "e", "observation": observation()})

        def response_bytes(self, status: int, headers: Any, body: bytes) -> None:
            answered.append((status, orjson.loads(body)))

    headers = {"content-length": "99"} | ({} if told is None else {SUBSET_HEADER: told})
    scope = SimpleNamespace(path="/v1/decide", method="POST", headers=headers, client="127.0.0.1:9")
    run(app.__rsgi__(scope, Protocol()))
    [(got, content)] = answered
    assert (got, content.get("subset", "")) == (status, answers)
    if status != 200:
        assert f"{SUBSET_HEADER}: {told!r}" in content["error"]


def test_a_process_that_goes_on_does_without_a_canary_that_was_rolled_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [
        Named(str(x.path), x.sha256)
        for x in (with_record(write_faulty(tmp_path / f"{seed}.onnx", seed)) for seed in (1, 2))
    ]
    store.refuse(tmp_path, named[1].sha256, "it lost", 1)
    policies, how = Policies(3, named[0], named[1]), Loading(tmp_path, threads=1)
    with pytest.raises(Refused, match="it lost"):
        load_all(policies, how)
    found = load_all(policies, how, goes_on=True)
    assert (found.revision, found.stable.named, found.canary) == (3, named[0], None)
    assert "going on without a canary" in capsys.readouterr().err
    found.stable.pool.close()


def test_a_promotion_that_a_kill_cut_short_is_made_when_it_is_asked_for_again(tmp_path: Path) -> None:
    with contextlib.closing(Traffic.open(tmp_path)) as traffic:
        before = publish(tmp_path, traffic, Policies(0, Named("/a", "a"), Named("/b", "b")), 500)
        promoted = replace(before, revision=before.revision + 1, stable=Named("/b", "b"), canary=None)
        write_json(tmp_path / "policies.json", as_json(promoted))
        control = Control(tmp_path, traffic, lambda: [traffic.read().revision], lambda _: None)
        found = run(control.promote({"sha256": "b"}))
        assert found["processes"] == [found["revision"]]
        assert (found["stable"]["sha256"], traffic.read().canary_weight_bp) == ("b", 0)
        again = run(control.promote({"sha256": "b"}))
        assert again["revision"] == found["revision"]


def test_who_publishes_the_same_canary_again_undoes_no_rollback_that_came_between(tmp_path: Path) -> None:
    with contextlib.closing(Traffic.open(tmp_path)) as traffic:
        policies = publish(tmp_path, traffic, Policies(0, Named("/a", "a"), Named("/b", "b")), 500)
        publish(tmp_path, traffic, policies, None)
        assert traffic.read().canary_weight_bp == 500
        traffic.set(0)
        publish(tmp_path, traffic, policies, None)
        assert traffic.read().canary_weight_bp == 0


def test_what_is_no_state_is_the_requests_fault(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided))
    with pytest.raises(DataError, match="observation"):
        run(ask(service, shown={}))
    broken = rig.policy("b", raises)
    service.serve(Serving(1, broken, None, False))
    with pytest.raises(DataError, match="observation"):
        run(ask(service, shown={}))


def test_inference_alone_says_why_there_are_no_moves(artefact: Artefact) -> None:
    question = Question(partial(GAME.read_observation, observation()))
    assert infer(GAME, decided, question).moves == [[0, 2], [1, 2]]
    with pytest.raises(NoMoves) as found:
        infer(GAME, raises, question)
    assert found.value.reason == "error"


def test_a_canary_in_shadow_answers_for_nobody_and_is_counted_as_its_own(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", undecided), shadow=True)

    async def some() -> None:
        for k in range(4):
            decision = await ask(service, str(k))
            assert (decision.subset, decision.moves) == ("stable", [[0, 2], [1, 2]])
        async with asyncio.timeout(LONG_S):
            while rig.count("canary", "requests") < 4:
                await asyncio.sleep(0.001)

    run(some())
    assert rig.count("canary", "agreeing") == rig.count("canary", "episodes") == 0
    for _, policy in service.serving.both():
        looked_at(policy)
    service.tick()
    assert rig.count("canary", "entropy_count") == rig.count("stable", "entropy_count") == 4


def test_a_canary_in_shadow_answers_nobody_whatever_weight_or_router_say(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", undecided), shadow=True)
    service.traffic.set(10_000)

    async def both() -> None:
        for told in (None, "canary"):
            decision = await ask(service, f"{told}", told=told)
            assert (decision.subset, decision.moves) == ("stable", [[0, 2], [1, 2]])
        while service._shadows:
            await asyncio.sleep(0.001)

    run(both())
    assert rig.count("canary", "episodes") == 0
    assert rig.count("canary", "requests") == 2


def test_what_a_canary_in_shadow_still_computes_is_given_up_when_the_server_stops(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", rig.hangs()), shadow=True)

    async def stop() -> None:
        await ask(service)
        await asyncio.sleep(0)  # the comparison has begun
        assert rig.count("canary", "in_flight") == 1
        await service.settle()

    run(stop())
    assert rig.count("canary", "in_flight") == rig.count("canary", "requests") == 0


def test_a_broken_canary_in_shadow_is_counted_and_does_no_harm(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", raises), shadow=True)

    async def some() -> None:
        assert (await ask(service)).reason == ""
        async with asyncio.timeout(LONG_S):
            while rig.count("canary", "requests") < 1:
                await asyncio.sleep(0.001)

    run(some())
    assert rig.count("canary", "fallbacks", "error") == 1
    assert rig.count("stable", "fallbacks", "error") == 0


def test_an_equal_policy_in_shadow_agrees(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", decided), shadow=True)

    async def some() -> None:
        await ask(service)
        async with asyncio.timeout(LONG_S):
            while rig.count("canary", "requests") < 1:
                await asyncio.sleep(0.001)

    run(some())
    assert rig.count("canary", "agreeing") == 1


def test_rewards_go_to_the_subset_that_decided_and_are_counted_once(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", decided))
    for told, reward in (("stable", 2.0), ("canary", -3.0)):
        decision = run(ask(service, told, told=told))
        assert service.reward(decision.id, reward) is Redeemed.COUNTED
        assert service.reward(decision.id, reward) is Redeemed.DUPLICATE
    for subset, positive, negative, squares in (("stable", 2.0, 0.0, 4.0), ("canary", 0.0, 3.0, 9.0)):
        assert rig.count(subset, "reward_count") == 1
        assert rig.count(subset, "reward_positive") == positive
        assert rig.count(subset, "reward_negative") == negative
        assert rig.count(subset, "reward_squares") == squares
    assert service.reward("canary.made-up", 1.0) is Redeemed.UNKNOWN


def test_a_reward_for_the_rules_answer_is_not_the_policys(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", raises))
    decision = run(ask(service, told="canary"))
    assert service.reward(decision.id, 1.0) is Redeemed.COUNTED
    assert rig.count("canary", "reward_fallback") == 1
    assert rig.count("canary", "reward_count") == rig.count("canary", "reward_positive") == 0


def test_a_reward_that_comes_late_is_not_the_next_canarys(rig: Rig) -> None:
    stable, first, second = (rig.policy(letter, decided) for letter in "abc")
    service = rig.start(stable, first)
    decision = run(ask(service, told="canary"))
    service.serve(Serving(1, stable, second, False))
    assert service.reward(decision.id, 5.0) is Redeemed.COUNTED
    assert rig.count("canary", "reward_uncredited", "replaced") == 1
    assert rig.count("canary", "reward_count") == 0


def test_a_reward_of_an_episode_that_was_moved_is_nobodys(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", decided))
    service.traffic.set(10_000)
    assert run(ask(service)).subset == "canary"
    service.traffic.set(0)
    decision = run(ask(service))
    assert decision.subset == "stable"
    assert service.reward(decision.id, 5.0) is Redeemed.COUNTED
    assert rig.count("stable", "reward_uncredited", "switched") == 1
    assert rig.count("stable", "reward_count") == 0


def test_an_episode_that_the_table_has_forgotten_keeps_its_policy_by_its_last_decision(
    rig: Rig,
) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", decided))
    service.traffic.set(1)
    last = run(ask(service, "e", told="canary"))
    rig.now += IDLE_S + 2
    assert run(ask(service, "e", previous=last.id)).subset == "canary"
    assert run(ask(service, "another", previous=last.id)).subset == "stable"
    assert rig.count("stable", "episodes") == 1


def test_the_canary_of_a_split_that_this_process_does_not_follow_yet_gets_nothing(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", decided))
    woken: list[int] = []
    service.on_revision = lambda: woken.append(1)
    service.traffic.change(lambda s: replace(s, revision=7, canary_weight_bp=10_000))
    assert run(ask(service)).subset == "stable"
    assert woken


def test_a_state_that_is_answered_in_two_ways_is_noticed(rig: Rig) -> None:
    answers = iter([decided, decided, undecided])

    def wavers(inputs: Inputs) -> Tensor:
        return next(answers)(inputs)

    service = rig.start(rig.policy("a", wavers))
    for _ in range(3):
        run(ask(service))
        looked_at(service.serving.stable)
    service.tick()
    assert rig.count("stable", "replayed") == 2
    assert rig.count("stable", "differing") == 1


def test_a_busy_process_looks_at_part_of_the_answers_but_for_replays_in_all(artefact: Artefact) -> None:
    wall, work = iter(np.arange(0.0, 1e3, 0.01)), iter(np.arange(0.0, 1e3, 0.01))
    watch = Watch(
        GAME, artefact, lambda: float(next(wall)), lambda: float(next(work))
    )  # an answer and a look: 10 ms
    seen = infer(GAME, decided, Question(partial(GAME.read_observation, observation())))
    for _ in range(1000):
        watch.see(seen)
    assert watch.replays.replayed == 999
    # Those that were saved up for, and then a twentieth.
    assert 70 <= watch.entropy_count <= 80


def test_metrics_tell_of_both_subsets(rig: Rig) -> None:
    service = rig.start(rig.policy("a", decided), rig.policy("b", undecided))
    for subset in SUBSETS:
        run(ask(service, subset, told=subset))
    content = service.metrics().decode()
    assert f'rl_policy_info{{subset="canary",sha256="{"b" * 64}"}} 1.0' in content
    assert 'rl_feature_drift{subset="stable",feature="seats.land"}' in content
    assert 'rl_traffic_weight{subset="stable"} 100.0' in content
