"""The state machine of a release: what may follow what, and when weights may rise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.canary.machine import (
    Event,
    IllegalMove,
    Move,
    Release,
    Stage,
    after,
    duration,
    ramp_progress,
    ramp_weight,
    roll_back,
    step,
)
from td_loop.deploy.canary.rules import Finding, Outcome, Verdict
from td_loop.deploy.canary.settings import CanarySettings, StageSettings

FINE = Verdict(Outcome.FINE, fresh=True)
HOLD = Verdict(Outcome.HOLD, (Finding("source", "the source does not answer"),))
BAD = Verdict(Outcome.ROLL_BACK, (Finding("reward", "the reward is too low"),))
SETTINGS = CanarySettings()


def drive(
    verdicts: list[tuple[Verdict, float]], settings: CanarySettings = SETTINGS, granularity: float = 0.01
) -> list[Release]:
    """The releases after each verdict, from shadow on."""
    release, now, seen = Release(1, "a" * 64, "/a", stage=Stage.SHADOW), 0.0, []
    for verdict, seconds in verdicts:
        now += seconds
        release, move = step(release, verdict, seconds, settings, granularity)
        if move is not None:
            release = after(release, move, now)
        seen.append(release)
        if release.stage in (Stage.PROMOTING, Stage.ROLLING_BACK):
            break
    return seen


def test_a_release_that_is_always_fine_takes_its_stages_time() -> None:
    seen = drive([(FINE, 10.0)] * 1000)
    assert seen[-1].stage is Stage.PROMOTING
    assert 300 + 600 + 1800 <= len(seen) * 10 <= 300 + 600 + 1800 + 30
    weights = [r.weight for r in seen if r.stage is Stage.RAMP]
    assert weights == sorted(weights)
    assert weights[-1] == 95.0
    middle = weights[len(weights) // 2]
    assert 45 < middle < 55


@given(
    st.lists(st.sampled_from([FINE, HOLD, BAD, Verdict(Outcome.FINE), Verdict(Outcome.FINE, lacking="rewards")]))
)
def test_weights_rise_only_when_all_is_fine_and_a_rollback_is_final(verdicts: list[Verdict]) -> None:
    quick = CanarySettings.from_mapping(
        {"stages": {"shadow_s": 5.0, "canary_s": 5.0, "ramp_s": 50.0, "step_s": 5.0}}
    )
    seen = drive([(v, 5.0) for v in verdicts], quick)
    weight = 0.0
    for release, verdict in zip(seen, verdicts, strict=False):
        if verdict.outcome is not Outcome.FINE:
            assert release.weight <= weight
        if verdict is BAD:
            assert (release.stage, release.weight, release.refused) == (Stage.ROLLING_BACK, 0.0, True)
        weight = release.weight
    assert Release.from_json(seen[-1].as_json()) == seen[-1] if seen else True


def test_a_stage_does_not_end_without_what_it_lacks() -> None:
    lacking = Verdict(Outcome.FINE, lacking="12 of 50 canary rewards", fresh=True)
    assert {r.stage for r in drive([(lacking, 100.0)] * 100)} == {Stage.SHADOW}


def test_a_share_that_nobody_has_tried_does_not_grow() -> None:
    stale = Verdict(Outcome.FINE, fresh=False)
    seen = drive([(FINE, 300.0), (FINE, 600.0), *[(stale, 10.0)] * 500])
    assert (seen[-1].stage, seen[-1].weight) == (Stage.RAMP, 5.0)


def test_time_in_hold_counts_in_no_stage() -> None:
    seen = drive([(FINE, 290.0), *[(HOLD, 100.0)] * 9, (FINE, 100.0), (FINE, 5.0), (FINE, 5.0)])
    assert [r.stage for r in seen[-3:]] == [Stage.SHADOW, Stage.SHADOW, Stage.CANARY]


def test_a_hold_is_told_once_and_again_when_its_reason_changes() -> None:
    other = Verdict(Outcome.HOLD, (Finding("stale", "old"),))
    release, moves = Release(1, "a" * 64, "/a", stage=Stage.RAMP, weight=20.0), []
    for verdict in (HOLD, HOLD, other, FINE, FINE):
        release, move = step(release, verdict, 1.0, SETTINGS, 0.01)
        if move is not None:
            moves.append((str(move.event), move.weight))
            release = after(release, move, 0.0)
    assert moves == [("hold", 20.0), ("hold", 20.0), ("go_on", 20.0)]


def test_a_manual_gate_waits_and_one_word_opens_one_gate() -> None:
    manual = CanarySettings.from_mapping({"stages": {"gate": "manual"}})
    release = Release(1, "a" * 64, "/a", stage=Stage.SHADOW, progress_s=300.0)
    release, move = step(release, FINE, 1.0, manual, 0.01)
    assert move is not None
    assert move.event is Event.WAIT
    release = after(release, move, 0.0)
    assert step(release, FINE, 1.0, manual, 0.01)[1] is None
    release = after(release, Move(Event.APPROVE, release.stage, release.weight, "yes"), 0.0)
    release, move = step(release, FINE, 1.0, manual, 0.01)
    assert move is not None
    assert (move.event, move.stage) == (Event.ADVANCE, Stage.CANARY)
    release = after(release, move, 0.0)
    assert not release.approved


def test_a_word_before_anybody_waits_opens_no_gate() -> None:
    release = Release(1, "a" * 64, "/a", stage=Stage.CANARY, by_hand=True)
    release = after(release, Move(Event.APPROVE, release.stage, release.weight, "yes"), 0.0)
    assert (release.by_hand, release.approved) == (False, False)


def test_weights_of_a_router_of_whole_percents_are_whole() -> None:
    seen = drive([(FINE, 10.0)] * 1000, granularity=1.0)
    assert all(r.weight == int(r.weight) for r in seen)
    assert seen[-1].stage is Stage.PROMOTING


@given(st.floats(5, 95))
def test_the_ramp_goes_on_from_where_a_person_put_it(weight: float) -> None:
    stages = StageSettings()
    assert ramp_weight(stages, ramp_progress(stages, weight)) == pytest.approx(weight, abs=1.6)


def test_a_ramp_of_no_time_is_at_its_end() -> None:
    stages = StageSettings(ramp_s=0.0)
    assert ramp_weight(stages, 0.0) == 95.0
    assert duration(stages, Stage.PROMOTING) == 0.0


@pytest.mark.parametrize(
    ("stage", "wanted"),
    [(Stage.SHADOW, Stage.RAMP), (Stage.ROLLING_BACK, Stage.RAMP), (Stage.PROMOTED, Stage.ROLLING_BACK)],
)
def test_what_may_not_follow_is_refused(stage: Stage, wanted: Stage) -> None:
    with pytest.raises(IllegalMove, match=f"from {stage} to {wanted}"):
        after(Release(1, "a", "/a", stage=stage), Move(Event.ADVANCE, wanted, 5.0, ""), 0.0)


def test_an_abort_is_a_rollback_that_blames_nobody() -> None:
    evidence: dict[str, Any] = {"triggers": ["abort"], "refuse": False}
    became = after(Release(1, "a", "/a", stage=Stage.RAMP, weight=40.0), roll_back("by hand", evidence), 1.0)
    assert (became.stage, became.weight, became.refused) == (Stage.ROLLING_BACK, 0.0, False)
