from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import ManifestError
from td_loop.files import write_json
from td_loop.loop.manifest import BestVal, IterRecord, Manifest, Status, read_manifest, write_manifest

KEYS = [
    "schema_version",
    "tag",
    "bootstrap_sha256",
    "hyperparams",
    "hyperparams_initial",
    "hyperparams_current",
    "hyperparams_history",
    "iters",
    "latest_good",
    "best_val",
]
RECORD_KEYS = [
    "i",
    "attempt",
    "iter_dir",
    "weights",
    "v_snap",
    "v_snap_sha256",
    "prepare",
    "stage3_validation",
    "fit",
    "stage4_validation",
    "knot_coverage",
    "status",
    "promoted_to_latest_good",
    "weights_sha256",
]


def promoted(i: int, loss: float | str = 0.5) -> IterRecord:
    return IterRecord(
        i,
        0,
        f"iter{i}",
        "iter0/V_snap.npz",
        "aa",
        Status.PROMOTED,
        weights=f"iter{i}/weights.npz",
        fit={"wall_s": 1.0, "exit_code": 0, "final_val_mc_nll": loss},
        promoted_to_latest_good=True,
        weights_sha256="bb",
    )


def ended(i: int, status: Status) -> IterRecord:
    return IterRecord(i, 0, f"iter{i}", "iter0/V_snap.npz", "aa", status)


def new() -> Manifest:
    return Manifest.new("t", "cc", {"n": 1})


def test_a_new_manifest_starts_from_the_bootstrap() -> None:
    assert new().as_json() == {
        "schema_version": 1,
        "tag": "t",
        "bootstrap_sha256": "cc",
        "hyperparams": {"n": 1},
        "hyperparams_initial": {"n": 1},
        "hyperparams_current": {"n": 1},
        "hyperparams_history": [{"resume_index": 0, "hyperparams": {"n": 1}}],
        "iters": [],
        "latest_good": "iter0/V_snap.npz",
        "best_val": None,
    }


def test_keys_are_those_of_the_seed_document_in_its_order() -> None:
    content = new().with_record(promoted(0)).as_json()
    assert list(content) == KEYS
    assert list(content["iters"][0]) == RECORD_KEYS


@given(st.lists(st.one_of(st.floats(0, 9), st.sampled_from(["NaN", "Infinity"])), max_size=6))
def test_best_val_is_the_lowest_finite_loss_and_latest_good_the_last(losses: list[float | str]) -> None:
    manifest = new()
    for i, loss in enumerate(losses):
        manifest = manifest.with_record(promoted(i, loss))
    finite = {i: loss for i, loss in enumerate(losses) if isinstance(loss, float)}
    if finite:
        best = min(finite, key=lambda i: (finite[i], i))
        assert manifest.best_val == BestVal(best, finite[best], f"iter{best}/weights.npz")
    else:
        assert manifest.best_val is None
    assert manifest.latest_good == (f"iter{len(losses) - 1}/weights.npz" if losses else "iter0/V_snap.npz")


@pytest.mark.parametrize("status", [Status.REVERTED, Status.HARD_ABORTED, Status.INTERRUPTED])
def test_an_attempt_that_is_not_promoted_moves_nothing(status: Status) -> None:
    before = new().with_record(promoted(0))
    after = before.with_record(ended(1, status))
    assert (after.latest_good, after.best_val) == (before.latest_good, before.best_val)
    assert [r.status for r in after.iters] == [Status.PROMOTED, status]


def test_a_retry_takes_the_place_of_the_attempt_before() -> None:
    manifest = new().with_record(promoted(0)).with_record(ended(1, Status.REVERTED)).with_record(promoted(1))
    assert [r.i for r in manifest.iters] == [0, 1]


def test_a_resume_trims_what_was_not_promoted_and_keeps_the_history_of_hyperparams() -> None:
    manifest = new().with_record(promoted(0, 0.4)).with_record(ended(1, Status.HARD_ABORTED))
    same = manifest.resumed("t", {"n": 1})
    assert [r.i for r in same.iters] == [0]
    assert same.best_val == manifest.best_val
    assert same.hyperparams_history == manifest.hyperparams_history
    changed = same.resumed("t", {"n": 2})
    assert changed.hyperparams_initial == {"n": 1}
    assert changed.hyperparams_current == {"n": 2}
    assert changed.hyperparams_history[-1] == {"resume_index": 1, "hyperparams": {"n": 2}}
    assert len(changed.hyperparams_history) == 2


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    manifest = new().with_record(promoted(0)).with_record(ended(1, Status.REVERTED))
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest


def test_there_may_be_no_manifest_yet(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None


def test_a_best_val_that_is_no_number_is_forgotten(tmp_path: Path) -> None:
    content = new().with_record(promoted(0)).as_json()
    content["best_val"]["val_mc_nll"] = math.nan
    write_json(tmp_path / "manifest.json", content)
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.best_val is None


def _without(key: str) -> dict[str, Any]:
    return {k: v for k, v in new().as_json().items() if k != key}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        *(_without(key) for key in KEYS if key != "hyperparams"),
        {**new().as_json(), "schema_version": 99},
        {**new().as_json(), "iters": [{"i": 0}]},
        {**new().as_json(), "iters": [{**promoted(0).as_json(), "status": "fine"}]},
        {**new().as_json(), "iters": [{**promoted(0).as_json(), "weights": None}]},
        {**new().as_json(), "best_val": {"iter": 0}},
    ],
)
def test_what_is_no_manifest_is_refused_by_name(tmp_path: Path, content: Any) -> None:
    write_json(tmp_path / "manifest.json", content)
    with pytest.raises(ManifestError, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_half_a_manifest_is_refused_by_name(tmp_path: Path) -> None:
    write_manifest(tmp_path, new())
    path = tmp_path / "manifest.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ManifestError, match=r"manifest\.json: not valid JSON"):
        read_manifest(tmp_path)
