"""The folder of releases: the audit log, refused artefacts, and what people ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from td_loop.deploy.canary import store
from td_loop.deploy.canary.machine import Event, Release, Stage
from td_loop.errors import DataError, Refused

A, B = "a" * 64, "ab" * 32


def line(seq: int, stage: Stage = Stage.RAMP) -> store.Line:
    release = Release(1, A, "/a", seq=seq, stage=stage, weight=20.0, held=("source",))
    return store.Line(seq, 12.5, Event.HOLD, Stage.RAMP, release, "why", {"x": float("inf")})


def test_lines_are_what_was_written(tmp_path: Path) -> None:
    store.append_audit(tmp_path, line(1))
    store.append_audit(tmp_path, line(2, Stage.ROLLED_BACK), durable=False)
    found = store.read_audit(tmp_path)
    assert [x.release for x in found] == [line(1).release, line(2, Stage.ROLLED_BACK).release]
    assert found[0].evidence == {"x": "Infinity"}
    assert store.under_way(tmp_path) is None


def test_a_torn_last_line_does_not_count_and_is_cut_off(tmp_path: Path) -> None:
    store.append_audit(tmp_path, line(1))
    path = tmp_path / store.AUDIT
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert len(store.read_audit(tmp_path)) == 1
    store.repair(tmp_path)
    assert path.read_bytes() == whole
    found = store.under_way(tmp_path)
    assert found is not None
    assert found.weight == 20.0


@pytest.mark.parametrize("damage", [b"{}\n", b"not json\n", b'{"seq": 1, "release": {"stage": "nowhere"}}\n'])
def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path, damage: bytes) -> None:
    store.append_audit(tmp_path, line(1))
    with (tmp_path / store.AUDIT).open("ab") as f:
        f.write(damage)
    with pytest.raises(DataError, match=r"audit\.jsonl, line 2: .*put a sound copy in its place"):
        store.read_audit(tmp_path)


def test_a_rolled_back_artefact_is_refused_until_somebody_says_otherwise(tmp_path: Path) -> None:
    store.refuse(tmp_path, A, "the reward fell", 1)
    store.refuse(tmp_path, A, "the reward fell", 1)
    store.refuse(tmp_path, B, "it was slow", 2)
    assert len((tmp_path / store.REFUSED).read_bytes().splitlines()) == 2
    with pytest.raises(Refused, match=r"aaaaaaaaaaaa has been rolled back before: the reward fell; .* allow") as e:
        store.check_not_refused(tmp_path, A)
    assert e.value.exit_code == 8
    assert store.allow(tmp_path, A[:8], "the reward was measured wrongly") == A
    store.check_not_refused(tmp_path, A)
    assert store.refusal(tmp_path, B) == "it was slow"
    store.refuse(tmp_path, A, "again", 3)
    assert store.refusal(tmp_path, A) == "again"


@pytest.mark.parametrize("sha", ["a", "ab", "abab", "ffffff"])
def test_only_one_artefact_that_is_refused_can_be_allowed(tmp_path: Path, sha: str) -> None:
    store.refuse(tmp_path, A, "x", 1)
    store.refuse(tmp_path, B, "x", 1)
    with pytest.raises(DataError, match="names no one artefact that is refused; there are: aaaaaaaaaaaa, abab"):
        store.allow(tmp_path, sha, "because")


def test_a_request_is_there_until_it_is_forgotten(tmp_path: Path) -> None:
    assert store.asked(tmp_path, "abort") is None
    store.ask(tmp_path, store.Request("abort", 3, "too slow", refuse=True))
    found = store.asked(tmp_path, "abort")
    assert found is not None
    assert (found.release, found.reason, found.refuse) == (3, "too slow", True)
    assert found.by
    store.forget(tmp_path, "abort")
    assert store.asked(tmp_path, "abort") is None


def test_of_a_request_that_cannot_be_read_an_abort_is_meant_and_an_approval_is_not(tmp_path: Path) -> None:
    for what in store.REQUESTS:
        (tmp_path / f"{what}.json").write_text("{")
    assert store.asked(tmp_path, "approve") is None
    found = store.asked(tmp_path, "abort")
    assert found is not None
    assert found.release == 0


def test_a_state_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert store.read_state(tmp_path) is None
    (tmp_path / store.STATE).write_text("{}")
    with pytest.raises(DataError, match=r"canary\.json: is no state of a release"):
        store.read_state(tmp_path)
