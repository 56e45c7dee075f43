"""What evidence comes to: fine, hold, or roll back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.canary import trials
from td_loop.deploy.canary.evidence import Evidence, Setting
from td_loop.deploy.canary.observation import Counts, Observation
from td_loop.deploy.canary.rules import Outcome, Verdict, judge
from td_loop.deploy.canary.settings import CanarySettings, LimitSettings

SETTINGS = CanarySettings()
LIVE = Setting(live=True, weight=5.0, since=0.0, rewards_from=0.0)
SHA = "a" * 64


def counts(n: float, **others: Any) -> Counts:
    """Counters after n requests of a healthy policy, whose rewards are 1 and 3 in turn."""
    plain: dict[str, Any] = {
        "requests": n,
        "fallbacks": {"timeout": 0.0, "output": 0.0},
        "errors": 0.0,
        "episodes": n,
        "rewards": n,
        "positive": 2.0 * n,
        "negative": 0.0,
        "squares": 5.0 * n,
        "seconds": ((0.005, n), (0.015, n), (float("inf"), n)),
        "entropy": 1.2 * n,
        "entropies": n,
        "replayed": n,
        "differing": 0.0,
        "sha256": SHA,
    }
    return Counts(**plain | others)


def seen(
    canary: dict[str, Any] | None = None,
    stable: dict[str, Any] | None = None,
    *,
    requests: float = 1000.0,
    settings: CanarySettings = SETTINGS,
    under: Setting = LIVE,
    **observation: Any,
) -> Verdict:
    """The verdict after a second in which 5 % of the requests were the canary's."""
    evidence = Evidence().take(Observation(10.0, 0.0, counts(0), counts(0), ("a",)), settings, under)
    now = Observation(
        11.0, 0.0, counts(19 * requests, **(stable or {})), counts(requests, **(canary or {})), ("a",)
    )
    now = replace(now, **observation)
    if not now.fault():
        evidence = evidence.take(now, settings, under)
    return judge(evidence, now, settings, under, SHA)


def test_a_canary_like_the_stable_policy_is_fine() -> None:
    found = seen()
    assert (found.outcome, found.findings, found.lacking, found.fresh) == (Outcome.FINE, (), "", True)


@pytest.mark.parametrize(
    ("canary", "trigger", "words"),
    [
        ({"positive": 1000.0, "squares": 2000.0}, "reward", "the canary's mean reward is 1 (1000 rewards)"),
        ({"fallbacks": {"timeout": 50.0, "output": 0.0}}, "fallback", "5.00% the fallback's answers"),
        ({"fallbacks": {"timeout": 0.0, "output": 50.0}}, "output", "invalid or illegal outputs"),
        ({"errors": 50.0}, "error", "5.00% 5xx answers"),
        (
            {"seconds": ((0.005, 0.0), (0.015, 900.0), (float("inf"), 1000.0))},
            "latency",
            "10.00% answers slower than 15 ms by the canary (100 of 1000), 0.00% by the stable policy",
        ),
        ({"differing": 100.0}, "nondeterminism", "identical states answered differently"),
        ({"entropy": 10.0}, "entropy", "it nearly always does the same"),
        ({"episodes": 500.0}, "sample ratio", "500 of 19500 episodes went to the canary"),
    ],
)
def test_each_fault_is_rolled_back_for_its_reason(canary: dict[str, Any], trigger: str, words: str) -> None:
    found = seen(canary)
    assert found.outcome is Outcome.ROLL_BACK
    assert found.findings[0].trigger == trigger
    assert words in found.findings[0].sentence
    if trigger != "entropy":
        assert found.findings[0].figures["log_e"] >= found.findings[0].figures["log_e_needed"]


def test_an_invalid_output_is_named_before_the_fallback_that_it_caused() -> None:
    found = seen({"fallbacks": {"timeout": 0.0, "output": 300.0}})
    assert [f.trigger for f in found.findings] == ["output", "fallback"]


def test_what_both_have_is_not_the_canarys_and_still_no_reason_to_go_on() -> None:
    slow = {"seconds": ((0.005, 0.0), (0.015, 900.0), (float("inf"), 1000.0))}
    both = {"seconds": ((0.005, 0.0), (0.015, 19 * 900.0), (float("inf"), 19_000.0))}
    found = seen(slow, both)
    assert found.outcome is Outcome.HOLD
    assert found.reason.endswith("not proven to be the canary's")


def test_a_rate_that_is_worse_within_the_limit_is_fine() -> None:
    assert seen({"fallbacks": {"timeout": 8.0, "output": 0.0}}).outcome is Outcome.FINE


def test_a_canary_that_is_provably_worse_by_less_than_the_limit_goes_on() -> None:
    n = 100_000.0
    found = seen({"positive": 1.8 * n, "squares": 4.24 * n}, requests=n)
    assert found.outcome is Outcome.FINE


def test_too_few_rewards_prove_nothing() -> None:
    found = seen({"positive": 10.0, "squares": 20.0}, requests=20.0)
    assert found.outcome is Outcome.FINE
    assert found.lacking == "20 of 200 canary requests, 20 of 50 canary rewards"


@pytest.mark.parametrize(("stable", "limit"), [(2.0, 1.6), (-10.0, -12.0), (0.0, 0.0)])
def test_a_fifth_less_is_a_fifth_of_the_size_whatever_the_sign(stable: float, limit: float) -> None:
    assert trials.reward_limit(np.asarray(stable), LimitSettings()) == pytest.approx(limit)


def test_of_a_mean_near_zero_a_unit_says_what_counts() -> None:
    limits = LimitSettings(reward_unit=1.0)
    assert trials.reward_limit(np.asarray(0.01), limits) == pytest.approx(-0.19)


@given(st.floats(-100, 100), st.floats(0.0, 0.5))
def test_no_canary_that_is_as_good_or_better_is_below_the_limit(mean: float, more: float) -> None:
    assert trials.reward_limit(np.asarray(mean), LimitSettings()) <= mean + more


def test_equal_negative_means_are_fine_and_worse_ones_are_not() -> None:
    stable = {"positive": 0.0, "negative": 19_000 * 10.0, "squares": 19_000 * 101.0}
    same = {"positive": 0.0, "negative": 10_000.0, "squares": 101_000.0}
    worse = {"positive": 0.0, "negative": 15_000.0, "squares": 226_000.0}
    assert seen(same, stable).outcome is Outcome.FINE
    assert [f.trigger for f in seen(worse, stable).findings] == ["reward"]


def test_a_policy_that_is_sure_of_each_of_its_different_choices_has_not_collapsed() -> None:
    assert seen({"entropy": 10.0, "choice_entropy": 1.9}, {"choice_entropy": 2.0}).outcome is Outcome.FINE
    collapsed = seen({"choice_entropy": 0.1}, {"choice_entropy": 2.0})
    assert [f.trigger for f in collapsed.findings] == ["entropy"]


def test_collapse_is_not_looked_for_while_all_episodes_of_the_canary_have_just_begun() -> None:
    just_begun = replace(LIVE, rewards_from=20.0)
    assert seen({"choice_entropy": 0.1}, {"choice_entropy": 2.0}, under=just_begun).outcome is Outcome.FINE
    shadow = replace(just_begun, live=False)
    assert seen({"choice_entropy": 0.1}, {"choice_entropy": 2.0}, under=shadow).outcome is Outcome.ROLL_BACK


def test_a_policy_that_was_always_sure_has_not_collapsed() -> None:
    assert seen({"entropy": 0.0}, {"entropy": 0.0}).outcome is Outcome.FINE


@pytest.mark.parametrize(
    ("change", "trigger"),
    [
        ({"canary": {"positive": float("nan")}}, "no numbers"),
        ({"age": 61.0}, "stale"),
        ({"canary": {"sha256": "b" * 64}}, "artefact"),
        ({"instances": ("b",)}, "reset"),
        ({"stable": {"errors": -1.0}}, "no numbers"),
    ],
)
def test_what_cannot_be_judged_holds(change: dict[str, Any], trigger: str) -> None:
    found = seen(**change)
    assert found.outcome is Outcome.HOLD
    assert [f.trigger for f in found.findings] == [trigger]


def test_silence_of_either_holds() -> None:
    quiet = Observation(11.0 + 120.0, 0.0, counts(0), counts(0), ("a",))
    evidence = Evidence().take(Observation(11.0, 0.0, counts(0), counts(0), ("a",)), SETTINGS, LIVE)
    evidence = evidence.take(quiet, SETTINGS, LIVE)
    found = judge(evidence, quiet, SETTINGS, LIVE, SHA)
    assert found.outcome is Outcome.HOLD
    assert [f.sentence for f in found.findings] == [
        "no requests of the stable policy for 2m00s",
        "no requests of the canary for 2m00s",
    ]


def test_requests_without_rewards_hold_in_time() -> None:
    start = Observation(0.0, 0.0, counts(0), counts(0), ("a",))
    evidence = Evidence().take(start, SETTINGS, LIVE)
    n = 0.0
    for second in range(60, 660, 60):
        n += 100
        rewardless = {"rewards": 0.0, "positive": 0.0, "squares": 0.0}
        now = Observation(float(second), 0.0, counts(19 * n), counts(n, **rewardless), ("a",))
        evidence = evidence.take(now, SETTINGS, LIVE)
        found = judge(evidence, now, SETTINGS, LIVE, SHA)
        assert (found.outcome is Outcome.HOLD) == (second >= 300)
    assert "no rewards of the canary for 10m00s" in found.reason


def test_in_shadow_no_rewards_are_asked_for() -> None:
    under = replace(LIVE, live=False, weight=0.0)
    none = {"rewards": 0.0, "positive": 0.0, "squares": 0.0, "episodes": 0.0}
    found = seen(none, under=under)
    assert (found.outcome, found.lacking) == (Outcome.FINE, "")


def test_rewards_of_the_first_seconds_with_traffic_are_left_out() -> None:
    late = replace(LIVE, rewards_from=10.5)
    found = seen({"positive": 1000.0, "squares": 2000.0}, under=late)
    assert found.outcome is Outcome.FINE
    assert "0 of 50 canary rewards" in found.lacking


def test_episodes_are_held_against_the_weight_only_while_it_was_that() -> None:
    changed = replace(LIVE, since=9.0)
    assert seen({"episodes": 100.0}, under=changed).outcome is Outcome.FINE
    assert seen({"episodes": 100.0}).outcome is Outcome.ROLL_BACK


def test_the_distribution_of_a_few_requests_says_nothing() -> None:
    drifting = {"drift": {"ships": 0.6}}
    assert not seen(drifting, requests=SETTINGS.watch.requests - 1.0).warnings
    assert not seen(drifting, under=replace(LIVE, rewards_from=20.0)).warnings


def test_drift_warns_or_holds_as_is_set() -> None:
    drifting = {"drift": {"ships": 0.6, "planets": 0.1, "turn": float("nan")}}
    found = seen(drifting)
    assert (found.outcome, [f.trigger for f in found.warnings]) == (Outcome.FINE, ["drift"])
    assert "1 of the canary's features" in found.warnings[0].sentence
    strict = CanarySettings.from_mapping({"limits": {"on_drift": "hold"}})
    assert seen(drifting, settings=strict).outcome is Outcome.HOLD


def test_evidence_outlives_a_controller() -> None:
    evidence = Evidence().take(Observation(10.0, 0.0, counts(0), counts(0), ("a",)), SETTINGS, LIVE)
    evidence = evidence.take(Observation(11.0, 0.0, counts(1900), counts(100), ("a",)), SETTINGS, LIVE)
    again = Evidence.from_json(evidence.as_json())
    assert again.as_json() == evidence.as_json()
    later = Observation(12.0, 0.0, counts(3800), counts(200, errors=40.0), ("a",))
    verdicts = [judge(e.take(later, SETTINGS, LIVE), later, SETTINGS, LIVE, SHA) for e in (evidence, again)]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].outcome is Outcome.ROLL_BACK


def test_no_news_is_counted_once() -> None:
    first = Observation(10.0, 0.0, counts(0), counts(0), ("a",))
    second = Observation(11.0, 0.0, counts(1900), counts(100), ("a",))
    evidence = Evidence().take(first, SETTINGS, LIVE).take(second, SETTINGS, LIVE)
    assert evidence.take(second, SETTINGS, LIVE) is evidence


def test_a_clock_that_goes_back_is_no_silence_and_holds_once() -> None:
    first = Observation(5000.0, 0.0, counts(0), counts(0), ("a",))
    evidence = Evidence().take(first, SETTINGS, LIVE)
    back = Observation(1000.0, 0.0, counts(1900), counts(100), ("a",))
    evidence = evidence.take(back, SETTINGS, LIVE)
    verdict = judge(evidence, back, SETTINGS, LIVE, SHA)
    assert (verdict.outcome, verdict.findings[0].trigger) == (Outcome.HOLD, "reset")
    later = Observation(1001.0, 0.0, counts(3800), counts(200), ("a",))
    evidence = evidence.take(later, SETTINGS, LIVE)
    assert judge(evidence, later, SETTINGS, LIVE, SHA).outcome is Outcome.FINE
    assert evidence.stage["canary requests"] == 100.0
    silent = replace(later, time=1001.0 + SETTINGS.watch.quiet_s)
    evidence = evidence.take(silent, SETTINGS, LIVE)
    assert "no requests" in [f.trigger for f in judge(evidence, silent, SETTINGS, LIVE, SHA).findings]


def test_tests_begin_anew_every_few_minutes_and_their_number_is_bounded() -> None:
    evidence = Evidence()
    for k in range(40):
        now = Observation(300.0 * k, 0.0, counts(1900 * k), counts(100 * k), ("a",))
        evidence = evidence.take(now, SETTINGS, LIVE)
    assert evidence.started == 39
    assert [m.start for m in evidence.marks] == [0, *range(16, 39)]
    assert evidence.next_stage(live=True, was_live=False).started == 39
