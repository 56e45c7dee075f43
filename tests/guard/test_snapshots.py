from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import DataError, UsageError
from td_loop.guard import snapshots as rules
from td_loop.guard.snapshots import Promotion, Snapshot


def snapshot(number: int, step: int | None = None, *, promoted: bool = False, initial: bool = False) -> Snapshot:
    step = 10 * number if step is None else step
    return Snapshot(
        name=rules.folder_name(step, 0, ()),
        number=number,
        step=step,
        attempt=0,
        payload="model.zip",
        sha256={"model.zip": "0" * 64},
        bytes=3,
        time=1000.0,
        initial=initial,
        promoted=Promotion(5, 2000.0) if promoted else None,
    )


@st.composite
def sets(draw: st.DrawFn) -> list[Snapshot]:
    flags = draw(st.lists(st.booleans(), max_size=8))
    return draw(st.permutations([snapshot(i + 1, promoted=flag) for i, flag in enumerate(flags)]))


def test_what_json_tells_is_what_was_written() -> None:
    for one in (snapshot(3), snapshot(4, promoted=True, initial=True)):
        assert rules.from_json(one.name, one.as_json()) == one


@pytest.mark.parametrize(
    "change",
    [{"step": None}, {"payload": "../x"}, {"payload": ""}, {"sha256": 3}, {"promoted": 1}, {"number": "x"}],
    ids=str,
)
def test_what_is_no_description_is_a_data_error(change: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"is no snapshot\.json"):
        rules.from_json("a", snapshot(1).as_json() | change)
    with pytest.raises(DataError):
        rules.from_json("a", [])


def test_names_are_ordered_by_step_and_never_taken_twice() -> None:
    assert rules.folder_name(1200, 1, ()) == "step_000001200_a1"
    assert rules.folder_name(1200, 1, {"step_000001200_a1", "step_000001200_a1.2"}) == "step_000001200_a1.3"


def test_a_snapshot_is_due_after_enough_healthy_steps_without_a_sick_one() -> None:
    one, two = snapshot(1, 10), snapshot(2, 13)
    counts: dict[str, int] = {}
    due_at = {}
    for step, healthy in [(11, True), (12, True), (13, True), (14, False), *((k, True) for k in range(15, 20))]:
        counts = rules.counted(counts, [one, two] if step >= 13 else [one], step, healthy=healthy)
        for s in rules.due([one, two], counts, 4):
            due_at.setdefault(s.name, step)
    assert due_at == {one.name: 18, two.name: 18}  # the sick step 14 made both begin again


def test_a_step_told_late_does_not_follow_a_newer_snapshot() -> None:
    assert rules.counted({}, [snapshot(1, 10)], 10, healthy=True) == {snapshot(1, 10).name: 0}


def test_an_initial_snapshot_is_due_at_once_if_nothing_is_stable() -> None:
    first = snapshot(1, 0, initial=True)
    assert rules.due([first], {}, 20) == [first]
    assert rules.due([snapshot(2, promoted=True), first], {}, 20) == []


@given(sets())
def test_a_rollback_leaves_what_is_stable_and_not_newer_than_its_target(found: list[Snapshot]) -> None:
    stable = rules.stable(found)
    target = stable[0] if stable else None
    fenced = rules.beyond(found, target)
    left = [s for s in found if s not in fenced]
    assert rules.stable(left) == stable
    assert rules.newest(left) == target
    assert not rules.pending(left)
    assert rules.beyond(left, target) == []  # again it has nothing to do
    assert fenced == sorted(fenced, key=lambda s: -s.number)  # the newest goes first


@given(sets(), st.integers(1, 4), st.sets(st.integers(1, 8)))
def test_pruning_keeps_the_newest_stable_all_pending_and_what_pointers_name(
    found: list[Snapshot], keep: int, numbers: set[int]
) -> None:
    pointed = {s.name for s in found if s.number in numbers}
    gone = rules.outdated(found, keep, pointed)
    left = [s for s in found if s not in gone]
    assert rules.stable(left)[:keep] == rules.stable(found)[:keep]
    assert rules.pending(left) == rules.pending(found)
    assert pointed <= {s.name for s in left}
    assert rules.outdated(left, keep, pointed) == []
    if not pointed:
        assert len(rules.stable(left)) <= keep


def test_keeping_none_is_refused() -> None:
    with pytest.raises(UsageError, match="keep is 0"):
        rules.outdated([], 0, ())


def test_a_pending_snapshot_older_than_the_target_is_fenced_off_as_well() -> None:
    old, target, new = snapshot(1), snapshot(2, promoted=True), replace(snapshot(3), step=5)
    assert rules.beyond([old, target, new], target) == [new, old]
    assert rules.beyond([old, target, new], None) == [new, target, old]
