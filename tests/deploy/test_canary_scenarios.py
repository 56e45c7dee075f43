"""Whole releases on a street of their own: what becomes of them, and what the canary got of the traffic."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from td_loop.deploy.canary import store
from td_loop.deploy.canary.machine import Stage
from td_loop.deploy.canary.observation import Observation
from td_loop.deploy.canary.serving import Policies, ServingError
from td_loop.deploy.canary.settings import CanarySettings
from td_loop.deploy.routing.contract import RouterError
from td_loop.errors import Interrupted
from tests.deploy.canary_world import BAD, GOOD, QUICK, SAME, START, Bench, Policy, Street, bench


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # nobody pulls the plug here


def test_a_good_canary_is_promoted(tmp_path: Path) -> None:
    b = bench(tmp_path)
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert b.events() == [
        "begin verified",
        "advance shadow",
        "advance canary",
        "advance ramp",
        "advance promoting",
        "advance promoted",
    ]
    assert (b.street.serving.stable, b.street.serving.canary, b.street.router.weight) == (SAME, "", 0.0)
    weights = b.street.router.set_to
    assert weights[0] == 5.0
    assert weights[:-1] == sorted(weights[:-1])
    assert (weights[-2], weights[-1]) == (95.0, 0.0)
    assert len(weights) > 15
    assert not store.refusal(tmp_path, SAME)


@pytest.mark.parametrize(
    ("policy", "trigger"),
    [
        (Policy(reward=1.0), "reward"),
        (Policy(fallback=0.2, why="output"), "output"),
        (Policy(fallback=0.2, why="timeout"), "fallback"),
        (Policy(error=0.05), "error"),
        (Policy(slow=0.3), "latency"),
        (Policy(entropy=0.01), "entropy"),
        (Policy(differing=0.3), "nondeterminism"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_bad_canary_is_rolled_back_for_its_reason(tmp_path: Path, policy: Policy, trigger: str) -> None:
    b = bench(tmp_path, policy)
    assert b.begin(BAD).run() is Stage.ROLLED_BACK
    assert b.triggers()[0] == trigger
    assert (b.street.serving.stable, b.street.serving.canary, b.street.router.weight) == (GOOD, "", 0.0)
    assert b.street.now_s - START < 400
    assert [x.event for x in b.lines()][-3:] == ["roll_back", "withdrawn", "advance"]
    assert [x.release.sha256 for x in b.postmortems] == [BAD]
    assert b.postmortems[0].evidence["observation"]["canary"]["requests"] > 0
    assert store.refusal(tmp_path, BAD)


def test_rewards_below_zero_are_compared_the_right_way_round(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy(reward=-3.5))
    b.street.policies |= {GOOD: Policy(reward=-2.0), SAME: Policy(reward=-2.0)}
    assert b.begin(SAME).run() is Stage.PROMOTED
    b = Bench(tmp_path / "other", b.street)
    b.street.policies[SAME] = Policy(reward=-2.0)
    assert b.begin(BAD).run() is Stage.ROLLED_BACK
    assert b.triggers()[0] == "reward"


def test_after_a_rollback_every_request_reaches_the_stable_policy(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy(reward=0.5))
    b.begin(BAD).run()
    before = b.street.answered[BAD]
    b.street.sleep(1000)
    assert b.street.answered[BAD] == before
    assert b.street.tally["stable"].requests > 10_000


def test_episodes_that_get_lost_are_a_reason_of_their_own(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.biased = 0.5
    assert b.begin(SAME).run() is Stage.ROLLED_BACK
    assert b.triggers() == ["sample ratio"]


def test_no_traffic_for_the_canary_holds_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    b = bench(tmp_path)
    # At second 100 the canary has its 5 %; then its clients are away for ten minutes.
    b.street.at(100, lambda: setattr(b.street, "rate", 0.0))
    b.street.at(700, lambda: setattr(b.street, "rate", 10.0))
    seen: list[float] = []
    b.street.at(699, lambda: seen.append(b.street.router.weight))
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert seen == [5.0]
    held = next(x for x in b.lines() if x.event == "hold")
    assert "no requests of the canary for" in held.reason
    advance = next(x for x in b.lines() if x.event == "advance" and x.release.stage is Stage.RAMP)
    assert advance.t > START + 700


def test_load_that_stops_in_mid_ramp_leaves_the_weights_where_they_are(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(300, lambda: setattr(b.street, "rate", 0.0))
    weights: list[float] = []
    for second in (320, 600, 900):
        b.street.at(second, lambda: weights.append(b.street.router.weight))
    b.street.at(900, lambda: store.ask(tmp_path, store.Request("abort", 1)))
    assert b.begin(SAME).run() is Stage.ROLLED_BACK
    assert 30 < weights[0] < 60
    assert weights == [weights[0]] * 3
    assert next(x.reason for x in b.lines() if x.event == "hold").startswith("no requests of the")


def spoiled(o: Observation) -> Observation:
    return replace(o, canary=replace(o.canary, positive=math.nan), stable=replace(o.stable, positive=math.nan))


def test_samples_that_are_no_numbers_hold(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(300, lambda: setattr(b.street, "spoil", spoiled))
    b.street.at(900, lambda: store.ask(tmp_path, store.Request("abort", 1)))
    weights: list[float] = []
    b.street.at(310, lambda: weights.append(b.street.router.weight))
    b.street.at(890, lambda: weights.append(b.street.router.weight))
    assert b.begin(SAME).run() is Stage.ROLLED_BACK
    assert weights[0] == weights[1] > 5
    assert "no count (NaN, say)" in next(x for x in b.lines() if x.event == "hold").reason


def test_a_source_that_is_down_for_a_minute_costs_a_minute(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(300, lambda: setattr(b.street, "source_down", True))
    b.street.at(360, lambda: setattr(b.street, "source_down", False))
    assert b.begin(SAME).run() is Stage.PROMOTED
    events = [(x.event, x.reason) for x in b.lines() if x.event in ("hold", "go_on")]
    assert events[0] == ("hold", "http://127.0.0.1:9090 does not answer: connection refused")
    assert events[1] == ("go_on", "no longer: source")
    ramp = {x.release.stage: x.t for x in b.lines() if x.event == "advance"}
    assert 300 + 60 <= ramp[Stage.PROMOTING] - ramp[Stage.RAMP] <= 300 + 60 + 40


def test_a_server_that_begins_anew_is_noticed_and_nothing_is_concluded_from_its_counters(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(300, b.street.restart)
    b.street.at(300, b.street.serving.unload_canary)
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert "went backwards: a server was restarted" in next(x for x in b.lines() if x.event == "hold").reason
    assert b.street.serving.loads == 3  # in shadow, live, and after the restart


def test_episodes_are_not_held_against_a_canary_that_a_new_server_does_not_have_yet(tmp_path: Path) -> None:
    b = bench(tmp_path)

    def restart() -> None:
        b.street.restart()
        b.street.serving.unload_canary()
        b.street.serving.down = True

    b.street.at(300, restart)
    b.street.at(600, lambda: setattr(b.street.serving, "down", False))
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert "server" in [t for x in b.lines() if x.event == "hold" for t in x.evidence["triggers"]]


def test_a_rollback_waits_for_a_router_that_is_down_and_says_so(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy(reward=0.5))
    b.street.policies[BAD] = Policy()
    b.street.at(300, lambda: b.street.policies.update({BAD: Policy(reward=-1.0)}))
    b.street.at(301, lambda: setattr(b.street.router, "down", True))
    b.street.at(600, lambda: setattr(b.street.router, "down", False))
    assert b.begin(BAD).run() is Stage.ROLLED_BACK
    assert b.street.router.weight == 0
    assert sum(line.startswith("CANNOT take the canary's traffic away") for line in b.heard.said) > 10
    withdrawn = next(x for x in b.lines() if x.event == "withdrawn")
    assert withdrawn.t >= START + 600
    assert withdrawn.evidence["tries"] > 10


def test_after_a_rollback_the_next_canary_gets_traffic_and_the_first_gets_none(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy(reward=0.5))
    b.begin(BAD).run()
    answered = b.street.answered[BAD]
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert b.street.answered[BAD] == answered
    assert b.street.answered[SAME] > 1000
    assert [x.release.number for x in b.lines() if x.event == "begin"] == [1, 2]


def test_weights_changed_by_hand_hold_and_are_left_alone_until_approved(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(260, lambda: setattr(b.street.router, "weight", 50.0))
    weights: list[float] = []
    b.street.at(500, lambda: weights.append(b.street.router.weight))
    b.street.at(500, lambda: store.ask(tmp_path, store.Request("approve", 1)))
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert weights == [50.0]
    by_hand = next(x for x in b.lines() if x.event == "by_hand")
    assert "gives the canary 50 %, it was told" in by_hand.reason
    events = [str(x.event) for x in b.lines() if x.event not in ("weigh", "note")]
    assert events[events.index("by_hand") :][:4] == ["by_hand", "hold", "approve", "go_on"]
    assert "sample ratio" not in str([x.reason for x in b.lines()])


def test_episodes_are_not_held_against_a_weight_that_the_router_would_not_take(tmp_path: Path) -> None:
    b = bench(tmp_path)
    takes = b.street.router.set

    def refuses(canary: float) -> float:
        if 200 < b.street.now_s - START < 500:
            raise RouterError("somebody else sets it")
        return takes(canary)

    b.street.router.set = refuses  # type: ignore[method-assign]
    assert b.begin(SAME).run() is Stage.PROMOTED
    held = next(x for x in b.lines() if x.event == "hold")
    assert (held.evidence["triggers"], b.street.biased) == (["router"], 0.0)


def test_weights_set_to_zero_by_hand_are_not_raised_again_without_a_word(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(260, lambda: setattr(b.street.router, "weight", 0.0))
    b.street.at(900, lambda: store.ask(tmp_path, store.Request("abort", 1)))
    assert b.begin(SAME).run() is Stage.ROLLED_BACK
    after = [x for x in b.street.router.set_to if x]
    assert b.street.router.set_to[-1] == 0
    assert max(after) < 50
    assert not store.refusal(tmp_path, SAME)  # an abort says nothing about the artefact


def test_a_canary_is_rolled_back_from_weights_that_were_changed_by_hand(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(260, lambda: setattr(b.street.router, "weight", 50.0))
    b.street.at(290, lambda: b.street.policies.update({SAME: Policy(reward=0.5)}))
    assert b.begin(SAME).run() is Stage.ROLLED_BACK
    assert b.triggers()[0] == "reward"
    assert b.street.router.weight == 0


def test_what_goes_wrong_late_is_found_within_minutes(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.settings = CanarySettings.from_mapping(
        {"stages": {"shadow_s": 0, "canary_s": 7200.0}, "watch": {"poll_s": 20.0}}
    )
    b.street.at(2500, lambda: b.street.policies.update({SAME: Policy(reward=1.0)}))
    assert b.begin(SAME).run() is Stage.ROLLED_BACK
    assert b.triggers() == ["reward"]
    assert b.street.now_s - START < 2500 + 900


def test_a_change_of_the_settings_waits_for_the_next_release(tmp_path: Path) -> None:
    b = bench(tmp_path / "folder")
    b.config = tmp_path / "canary.toml"
    b.config.write_text("[limits]\ndrop = 0.2\n")
    b.street.at(260, partial(b.config.write_text, "[stages]\nramp_s = 1.0\n"))
    assert b.begin(SAME).run() is Stage.PROMOTED
    notes = [x.reason for x in b.lines() if x.event == "note"]
    assert sum("has changed: this release keeps" in note for note in notes) == 1
    assert b.street.now_s - START > 440


def test_a_manual_gate_waits_for_a_person_at_each_stage(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.settings = CanarySettings.from_mapping({**QUICK, "stages": {**QUICK["stages"], "gate": "manual"}})
    stages: list[str] = []

    def look() -> None:
        stages.append(str(b.lines()[-1].release.stage))
        store.ask(tmp_path, store.Request("approve", 1, by="somebody"))

    for second in (250, 500, 1000):
        b.street.at(second, look)
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert stages == ["shadow", "canary", "ramp"]
    assert [x.event for x in b.lines() if x.event in ("wait", "approve")] == ["wait", "approve"] * 3


def test_a_word_for_another_release_is_no_word(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(300, lambda: store.ask(tmp_path, store.Request("abort", 7)))
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert store.asked(tmp_path, "abort") is None


def test_a_canary_that_not_all_processes_have_gets_no_traffic_yet(tmp_path: Path) -> None:
    b = bench(tmp_path)
    load, policies, loads = b.street.serving.load_canary, b.street.serving.policies, list[bool]()

    def load_late(path: str, *, shadow: bool) -> None:
        load(path, shadow=shadow)
        loads.append(shadow)
        assert b.street.router.weight == 0
        if len(loads) in (1, 3):
            raise ServingError("server processes [1] do not serve revision 5; see their log")

    b.street.serving.load_canary = load_late  # type: ignore[method-assign]
    b.street.serving.policies = lambda: replace(policies(), settled=len(loads) not in (1, 3))  # type: ignore[method-assign]
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert loads == [True, True, False, False]


def test_an_artefact_that_was_replaced_after_shadow_gets_no_traffic(tmp_path: Path) -> None:
    b = bench(tmp_path)
    load = b.street.serving.load_canary

    def load_what_is_there(path: str, *, shadow: bool) -> None:
        load(path if shadow else f"/policies/{BAD}", shadow=shadow)

    b.street.serving.load_canary = load_what_is_there  # type: ignore[method-assign]
    b.street.at(400, lambda: store.ask(tmp_path, store.Request("abort", 1)))
    assert b.begin(SAME).run() is Stage.ROLLED_BACK
    assert set(b.street.router.set_to) == {0.0}
    assert any("after it was to load" in x.reason for x in b.lines() if x.event == "hold")


def test_a_promotion_that_not_all_processes_have_made_is_none_yet(tmp_path: Path) -> None:
    b = bench(tmp_path)
    promote, policies, asked = b.street.serving.promote, b.street.serving.policies, list[str]()

    def promote_late(sha256: str) -> None:
        asked.append(sha256)
        if len(asked) == 1:
            promote(sha256)
            raise ServingError("server processes [1] do not serve revision 5; see their log")

    b.street.serving.promote = promote_late  # type: ignore[method-assign]
    b.street.serving.policies = lambda: replace(policies(), settled=len(asked) != 1)  # type: ignore[method-assign]
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert asked == [SAME, SAME]


def test_an_abort_that_comes_after_the_promotion_is_told_so_and_rolls_nothing_back(tmp_path: Path) -> None:
    b = bench(tmp_path)
    promote = b.street.serving.promote

    def promote_and_fall(sha256: str) -> None:
        """The server does it; then the router is down for a while, and a person loses patience."""
        promote(sha256)
        b.street.router.down = True
        now = b.street.now_s - START
        b.street.at(now + 2, lambda: store.ask(tmp_path, store.Request("abort", 1, refuse=True)))
        b.street.at(now + 20, lambda: setattr(b.street.router, "down", False))

    b.street.serving.promote = promote_and_fall  # type: ignore[method-assign]
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert b.street.serving.stable == SAME
    assert sum("an abort came too late" in line for line in b.heard.said) == 1
    assert not store.refusal(tmp_path, SAME)


@pytest.mark.parametrize(
    "content", ["", "{", '{"release": {}}', '{"release": 1, "weighed": 1, "config": 1, "evidence": 1}']
)
def test_a_release_whose_state_is_damaged_goes_on_and_can_be_aborted(tmp_path: Path, content: str) -> None:
    b = bench(tmp_path)

    def stop() -> None:
        raise Interrupted(15)

    b.street.at(300, stop)
    with pytest.raises(Interrupted):
        b.begin(SAME).run()
    weight = b.street.router.weight
    assert weight > 0
    (tmp_path / store.STATE).write_text(content)
    store.ask(tmp_path, store.Request("abort", 1))
    resumed = b.resume()
    assert resumed is not None
    assert resumed.release.weight == weight
    assert resumed.run() is Stage.ROLLED_BACK
    assert b.street.router.weight == 0
    assert any("counting begins anew" in line for line in b.heard.said)


def test_who_stops_a_rollback_that_the_router_does_not_confirm_is_told(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy(reward=0.5))

    def stop() -> None:
        raise Interrupted(15)

    b.street.at(60, lambda: setattr(b.street.router, "down", True))
    b.street.at(60, lambda: store.ask(tmp_path, store.Request("abort", 1)))
    b.street.at(90, stop)
    with pytest.raises(Interrupted):
        b.begin(BAD).run()
    assert b.street.router.weight == 5.0
    assert "stopped before it was known that the canary has no traffic" in b.heard.said[-1]
    b.street.router.down = False
    resumed = b.resume()
    assert resumed is not None
    assert resumed.run() is Stage.ROLLED_BACK
    assert b.street.router.weight == 0.0


def test_a_router_that_splits_and_does_not_answer_leaves_the_canary_nothing_to_answer_with(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy(reward=0.5))

    def fall() -> None:
        b.street.router.down = True
        store.ask(tmp_path, store.Request("abort", 1))

    answered = []
    b.street.at(60, fall)
    b.street.at(66, lambda: answered.append(b.street.answered[BAD]))
    b.street.at(400, lambda: answered.append(b.street.answered[BAD]))
    b.street.at(400, lambda: setattr(b.street.router, "down", False))
    assert b.begin(BAD).run() is Stage.ROLLED_BACK
    assert answered[0] == answered[1] > 0
    assert b.street.router.set_to[-2:] == [5.0, 0.0]
    assert any("the canary was unloaded at the server" in line for line in b.heard.said)
    assert next(x for x in b.lines() if x.event == "withdrawn").evidence["tries"] > 5


def test_where_the_subsets_are_servers_apart_a_promoted_canary_has_all_traffic(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.router.apart = True
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert (b.street.serving.stable, b.street.serving.canary, b.street.router.weight) == (GOOD, SAME, 100.0)
    last = b.lines()[-1]
    assert (last.release.weight, "deploy it as the stable policy" in last.reason) == (100.0, True)


@pytest.mark.parametrize("apart", [False, True])
def test_a_server_that_lost_the_canary_while_it_was_promoted_loads_it_again(tmp_path: Path, apart: bool) -> None:
    b = bench(tmp_path)
    b.street.router.apart = apart
    policies = b.street.serving.policies

    def begins_anew() -> Policies:
        if b.lines()[-1].release.stage is Stage.PROMOTING and b.street.serving.loads == 2:
            b.street.serving.canary = ""
        return policies()

    b.street.serving.policies = begins_anew  # type: ignore[method-assign]
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert b.street.serving.loads == 3
    assert (b.street.serving.canary if apart else b.street.serving.stable) == SAME


def test_where_the_subsets_are_servers_apart_an_abort_is_never_too_late(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.router.apart = True
    set_to = b.street.router.set

    def fails_at_the_end(canary: float) -> float:
        if canary == 100.0:
            b.street.serving.stable = SAME  # somebody has promoted it at that server meanwhile
            store.ask(tmp_path, store.Request("abort", 1))
            raise RouterError("the router does not answer")
        return set_to(canary)

    b.street.router.set = fails_at_the_end  # type: ignore[method-assign]
    assert b.begin(SAME).run() is Stage.ROLLED_BACK
    assert b.street.router.weight == 0.0


def test_an_artefact_that_the_server_does_not_take_ends_the_release(tmp_path: Path) -> None:
    b = bench(tmp_path)
    assert b.begin("f" * 64).run() is Stage.ROLLED_BACK
    assert "does not take the artefact" in b.lines()[-1].reason
    assert not store.refusal(tmp_path, "f" * 64)


def test_a_server_that_is_down_delays_the_beginning_and_the_end(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.serving.down = True
    b.street.at(100, lambda: setattr(b.street.serving, "down", False))
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert sum(line.startswith("cannot begin") for line in b.heard.said) >= 10


def test_traffic_on_a_left_over_canary_is_taken_away_before_a_release_begins(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.router.weight, b.street.serving.canary = 30.0, BAD
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert b.street.router.set_to[0] == 0.0
    assert b.street.answered[BAD] == 0


def test_a_router_of_whole_percents_is_no_edit_by_hand(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.router._step = 1.0
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert not [x for x in b.lines() if x.event == "by_hand"]
    assert all(w == int(w) for w in b.street.router.set_to)


def test_a_canary_with_too_few_rewards_waits(tmp_path: Path) -> None:
    b = Bench(tmp_path, Street({GOOD: Policy(), SAME: Policy()}, GOOD, rate=0.5))
    b.street.at(600, lambda: store.ask(tmp_path, store.Request("abort", 1)))
    b.begin(SAME).run()
    assert b.lines()[-1].before is Stage.ROLLING_BACK
    assert max(b.street.router.set_to) == 5.0
    assert any("of 50 canary rewards" in line for line in b.heard.shown)


def test_a_postmortem_that_fails_does_not_keep_a_rollback_from_its_end(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy(error=0.2))

    def fails(_folder: Path, _line: store.Line) -> None:
        raise KeyError("no such figure")

    controller = b.begin(BAD)
    controller._world = replace(controller._world, postmortem=fails)
    assert controller.run() is Stage.ROLLED_BACK
    assert any(x.reason == "no postmortem: KeyError: 'no such figure'" for x in b.lines())


def test_a_canary_that_a_server_has_forgotten_is_loaded_again_to_be_promoted(tmp_path: Path) -> None:
    b = bench(tmp_path)
    serving = b.street.serving
    promote = serving.promote

    def forgets(sha256: str) -> None:
        serving.promote = promote  # type: ignore[method-assign]
        serving.canary = ""
        raise ServingError("the server was restarted")

    serving.promote = forgets  # type: ignore[method-assign]
    assert b.begin(SAME).run() is Stage.PROMOTED
    assert (serving.stable, serving.canary, serving.loads) == (SAME, "", 3)


def test_a_controller_that_takes_over_goes_on_where_the_other_was(tmp_path: Path) -> None:
    b = bench(tmp_path)
    b.street.at(100, partial(setattr, b.street, "source_down", True))

    def killed() -> None:
        raise KeyboardInterrupt

    b.street.at(200, killed)
    with pytest.raises(KeyboardInterrupt):
        b.begin(SAME).run()
    b.street.source_down = False
    resumed = b.resume()
    assert resumed is not None
    assert resumed.run() is Stage.PROMOTED
    assert [x.reason for x in b.lines() if x.event == "resumed"] == ["a controller goes on, in stage canary"]
    assert b.resume() is None
