"""Runs that were stopped anywhere and go on."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from td_loop.errors import DataError, HardAbort, Interrupted, ManifestError, Reverted, StorageError
from td_loop.files import sha256
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.loop.manifest import read_manifest
from td_loop.loop.preview import preview
from tests.loop.fakes import Flags, Stages, fit_to, prepare, reverts, stopped_after
from tests.loop.trouble import killed_after

Config = Callable[..., RunConfig]


def content(run: Path) -> Any:
    return orjson.loads((run / "manifest.json").read_bytes())


def final_weights(run: Path) -> list[str]:
    return [r["weights_sha256"] for r in content(run)["iters"]]


def interrupt(signum: int) -> Callable[[Flags], int]:
    """A stage during which a signal comes."""

    def behave(flags: Flags) -> int:
        os.kill(os.getpid(), signum)
        return 0

    return behave


def test_iters_is_a_total(config: Config, run: Path) -> None:
    drive(config(iters=1), runner=Stages())
    stages = Stages()
    drive(config(iters=3), runner=stages)
    assert [f["--iter-index"] for s, f in stages.calls if s == "prepare"] == ["1", "2"]
    stages = Stages()
    drive(config(iters=2), runner=stages)
    assert stages.calls == []
    assert len(content(run)["iters"]) == 3


def test_a_run_in_two_parts_ends_like_one_in_one_part(config: Config, run: Path, tmp_path: Path) -> None:
    drive(config(iters=2), runner=Stages())
    drive(config(iters=4), runner=Stages())
    parts = final_weights(run)
    drive(config(iters=4, runs_dir=tmp_path / "whole"), runner=Stages())
    assert final_weights(tmp_path / "whole" / "td_loop_t") == parts


def test_changed_hyperparams_are_kept_in_the_history(config: Config, run: Path) -> None:
    drive(config(iters=1, lr_peak=0.04), runner=Stages())
    drive(config(iters=1, lr_peak=0.04), runner=Stages())
    assert len(content(run)["hyperparams_history"]) == 1
    drive(config(iters=2, lr_peak=0.02), runner=Stages())
    manifest = content(run)
    assert manifest["hyperparams_initial"]["lr_peak"] == 0.04
    assert manifest["hyperparams"]["lr_peak"] == manifest["hyperparams_current"]["lr_peak"] == 0.02
    assert [(h["resume_index"], h["hyperparams"]["lr_peak"]) for h in manifest["hyperparams_history"]] == [
        (0, 0.04),
        (1, 0.02),
    ]


@pytest.mark.parametrize(("script", "error"), [(reverts, Reverted), (lambda _: 1, HardAbort)])
@pytest.mark.parametrize("i", [0, 1])
def test_what_was_not_promoted_is_set_aside_whole_and_run_again(
    config: Config, run: Path, script: Any, error: type[Exception], i: int
) -> None:
    with pytest.raises(error):
        drive(config(iters=2), runner=Stages({("fit", i): script}))
    left = {p.name: p.read_bytes() for p in (run / f"iter{i}").iterdir() if p.name != "V_snap.npz"}
    drive(config(iters=2, seed=5), runner=Stages())
    assert [r["status"] for r in content(run)["iters"]] == ["promoted", "promoted"]
    assert {p.name: p.read_bytes() for p in (run / "trimmed" / f"iter{i}").iterdir()} == left
    assert (run / "iter0" / "V_snap.npz").exists()


def test_both_attempts_of_a_reverted_retry_are_set_aside_each_time(config: Config, run: Path) -> None:
    script = {("fit", 0): reverts, ("fit", 1): reverts}
    for seed in range(2):
        with pytest.raises(Reverted):
            drive(config(iters=1, seed=seed, on_fail="retry-then-abort"), runner=Stages({**script}))
    drive(config(iters=1, seed=2), runner=Stages())
    assert sorted(p.name for p in (run / "trimmed").iterdir()) == [
        "iter0",
        "iter0.1",
        "iter0_retry1",
        "iter0_retry1.1",
    ]
    assert sorted(p.name for p in run.iterdir() if p.name.startswith("iter")) == ["iter0"]


def test_the_first_attempt_of_a_promoted_retry_stays(config: Config, run: Path) -> None:
    drive(config(iters=1, on_fail="retry-then-abort"), runner=Stages({("fit", 0): reverts}))
    drive(config(iters=2), runner=Stages())
    assert (run / "iter0" / "weights.npz").exists()
    assert not (run / "trimmed").exists()


def test_best_so_far_survives_a_resume(config: Config, run: Path) -> None:
    drive(config(iters=1), runner=Stages({("fit", 0): fit_to(0.5, 0.3)}))
    # 0.4 is better than its own first epoch, but not than the best of the run.
    with pytest.raises(Reverted, match=r"limit 0\.3150 \(reference 0\.3000"):
        drive(config(iters=2), runner=Stages({("fit", 0): fit_to(0.6, 0.4)}))
    assert content(run)["best_val"] == {"iter": 0, "val_mc_nll": 0.3, "path": "iter0/weights.npz"}


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("stage", ["prepare", "fit"])
def test_a_signal_marks_the_attempt_and_the_same_command_resumes(
    config: Config, run: Path, signum: int, code: int, stage: str, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted, match="in iteration 1; the same command resumes") as e:
        drive(config(iters=3), runner=Stages({(stage, 1): interrupt(signum)}))
    assert e.value.exit_code == code
    manifest = content(run)
    assert [r["status"] for r in manifest["iters"]] == ["promoted", "interrupted"]
    assert manifest["latest_good"] == "iter0/weights.npz"
    assert (manifest["iters"][1]["prepare"] is None) is (stage == "prepare")
    drive(config(iters=3), runner=Stages())
    drive(config(iters=3, runs_dir=tmp_path / "whole"), runner=Stages())
    assert final_weights(run) == final_weights(tmp_path / "whole" / "td_loop_t")


def test_signal_handlers_are_given_back(config: Config) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted):
        drive(config(), runner=Stages({("prepare", 0): interrupt(signal.SIGTERM)}))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def check_invariants(run: Path) -> None:
    """I8 and I9, at whatever moment the run died."""
    manifest = read_manifest(run)
    if manifest is None:
        return
    named = [manifest.latest_good, *(r.weights for r in manifest.iters if r.weights)]
    named += [manifest.best_val.path] if manifest.best_val else []
    named += [r.iter_dir for r in manifest.iters]
    for name in named:
        assert (run / name).exists(), name
    promoted = {r.weights_sha256 for r in manifest.iters if r.promoted_to_latest_good} | {
        manifest.bootstrap_sha256
    }
    if (run / "latest_good.npz").is_symlink():
        assert sha256(run / "latest_good.npz") in promoted
    if (run / "best_val.npz").is_symlink():
        assert sha256(run / "best_val.npz") in promoted


def test_a_run_killed_after_any_change_on_disk_ends_with_the_same_weights(config: Config, tmp_path: Path) -> None:
    """I8, I9, I10: kill it after the first change, after the second, and so on to its end."""
    script = {("fit", "iter1"): reverts}
    settings = {"iters": 3, "on_fail": "retry-then-abort"}
    drive(config(**settings, runs_dir=tmp_path / "whole"), runner=Stages(script))
    whole = final_weights(tmp_path / "whole" / "td_loop_t")
    killed = True
    moment = 0
    while killed:
        run = tmp_path / f"killed{moment}" / "td_loop_t"
        settings["runs_dir"] = run.parent
        killed = killed_after(moment, lambda: drive(config(**settings), runner=Stages(script)))
        check_invariants(run)
        drive(config(**settings), runner=Stages(script))
        check_invariants(run)
        assert final_weights(run) == whole
        assert (run / "latest_good.npz").readlink() == Path(content(run)["latest_good"])
        assert (run / "best_val.npz").readlink() == Path(content(run)["best_val"]["path"])
        assert not [p.name for p in run.rglob("*.tmp")]
        moment += 1
    assert moment > 30


@pytest.mark.parametrize("i", [0, 1])
def test_a_resume_killed_after_any_change_on_disk_can_be_resumed(config: Config, tmp_path: Path, i: int) -> None:
    """I8 and I9 while what was not promoted is trimmed."""
    with pytest.raises(Reverted):
        drive(config(runs_dir=tmp_path / "start"), runner=Stages({("fit", i): reverts}))
    killed = True
    moment = 0
    while killed:
        run = tmp_path / f"killed{moment}" / "td_loop_t"
        shutil.copytree(tmp_path / "start", run.parent, symlinks=True)
        again = config(runs_dir=run.parent, lr_peak=0.01)
        killed = killed_after(moment, lambda again=again: drive(again, runner=Stages()))
        check_invariants(run)
        stages = Stages()
        drive(again, runner=stages)
        check_invariants(run)
        assert len(_promoted(run)) == 2
        # However far the trimming had come, the finished cache was found again.
        assert i not in [int(f["--iter-index"]) for s, f in stages.calls if s == "prepare"]
        assert list((run / "trimmed").glob(f"iter{i}*/weights.npz"))
        moment += 1
    assert moment > 10


def _promoted(run: Path) -> list[Any]:
    return (
        [r for r in content(run)["iters"] if r["status"] == "promoted"] if (run / "manifest.json").exists() else []
    )


@pytest.mark.parametrize("moment", [5, 20, 30])
def test_a_full_disk_is_named_and_the_run_resumes_when_there_is_room(
    config: Config, run: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    calls = 0

    def full(fd: int) -> None:
        nonlocal calls
        calls += 1
        if calls > moment:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as m:
        m.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=f"cannot write {run}.*No space left on device.*; free space"):
            drive(config(iters=3), runner=Stages())
    check_invariants(run)
    drive(config(iters=3), runner=Stages())
    assert len(_promoted(run)) == 3


def test_links_are_derived_again_from_the_manifest(config: Config, run: Path) -> None:
    drive(config(), runner=Stages({("fit", 0): fit_to(0.6, 0.5), ("fit", 1): fit_to(0.6, 0.51)}))
    (run / "latest_good.npz").unlink()
    (run / "best_val.npz").unlink()
    (run / "best_val.npz").symlink_to("iter1/weights.npz")
    drive(config(), runner=Stages())
    assert (run / "latest_good.npz").readlink() == Path("iter1/weights.npz")
    assert (run / "best_val.npz").readlink() == Path("iter0/weights.npz")


@pytest.mark.parametrize("name", ["iter0/weights.npz", "iter0/V_snap.npz"])
def test_promoted_weights_that_changed_or_are_missing_are_refused_by_name(
    config: Config, run: Path, name: str
) -> None:
    drive(config(), runner=Stages())
    before = (run / "manifest.json").read_bytes()
    data = (run / name).read_bytes()
    (run / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ManifestError, match=f"{name}: promoted weights were changed"):
        drive(config(iters=3, lr_peak=0.5), runner=Stages())
    (run / name).unlink()
    with pytest.raises(ManifestError, match=f"{name}: promoted weights are missing"):
        drive(config(iters=3, lr_peak=0.5), runner=Stages())
    assert (run / "manifest.json").read_bytes() == before


def test_a_damaged_manifest_is_refused_and_left_as_it_is(config: Config, run: Path) -> None:
    drive(config(), runner=Stages())
    (run / "manifest.json").write_bytes(b"{")
    with pytest.raises(ManifestError, match=r"manifest\.json: not valid JSON"):
        drive(config(), runner=Stages())
    assert (run / "manifest.json").read_bytes() == b"{"
    assert (run / "iter1" / "weights.npz").exists()


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda m: m.update(iters=[]), "latest_good"),
        (lambda m: m["iters"][1].update(i=5), "records must count"),
        (lambda m: m["iters"][1].update(iter_dir="iter0"), "is not the attempt's folder"),
        (lambda m: m["iters"][1].update(prepare={}), "is missing"),
        (lambda m: m["iters"][1]["fit"].update(wall_s="x"), "cannot be understood"),
        (lambda m: m["iters"][1].update(weights=5), "cannot be understood"),
        (lambda m: m["iters"][1].update(weights_sha256=5), "is no hash"),
        (lambda m: m["iters"][1].update(stage3_validation={}), "cannot be understood .*config"),
        (lambda m: m["iters"][1]["stage3_validation"]["config"].pop("n"), r"config\.n: is missing"),
        (lambda m: m["iters"][1]["stage4_validation"]["config"].update(epochs="x"), "expected a number"),
        (lambda m: m.update(hyperparams_history=[]), "is empty"),
        (lambda m: m.update(latest_good="iter0/weights.npz"), "is not the last promoted weights"),
        (lambda m: m["best_val"].update(val_mc_nll=0.01), "is not the lowest finite val_mc_nll"),
    ],
)
def test_a_manifest_that_does_not_agree_with_itself_is_refused_and_nothing_moved(
    config: Config, run: Path, spoil: Callable[[Any], None], match: str
) -> None:
    drive(config(), runner=Stages())
    manifest = content(run)
    spoil(manifest)
    (run / "manifest.json").write_bytes(orjson.dumps(manifest))
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.name != ".lock"}
    with pytest.raises(ManifestError, match=match):
        drive(config(iters=3), runner=Stages())
    with pytest.raises(ManifestError, match=match):
        preview(config(iters=3))
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.name != ".lock"} == before


def test_a_run_whose_manifest_was_lost_is_not_begun_anew(config: Config, run: Path) -> None:
    drive(config(), runner=Stages())
    (run / "manifest.json").unlink()
    with pytest.raises(ManifestError, match=r"manifest\.json: is missing .*weights in iter0, iter1.*restore"):
        drive(config(), runner=Stages())
    assert (run / "iter1" / "weights.npz").exists()
    assert not (run / "trimmed").exists()


def test_a_kill_before_the_first_manifest_is_no_lost_run(config: Config, run: Path) -> None:
    drive(config(iters=1), runner=Stages())
    copy = (run / "iter0" / "V_snap.npz").read_bytes()
    shutil.rmtree(run)
    (run / "iter0").mkdir(parents=True)
    (run / "iter0" / "V_snap.npz").write_bytes(copy)
    assert len(drive(config(iters=1), runner=Stages()).iters) == 1


def test_a_file_that_cannot_be_hashed_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: cannot be read: Is a directory")):
        sha256(tmp_path)


def test_a_manifest_that_cannot_be_read_is_named(config: Config, run: Path) -> None:
    drive(config(), runner=Stages())
    (run / "manifest.json").unlink()
    (run / "manifest.json").mkdir()
    with pytest.raises(ManifestError, match=r"manifest\.json: cannot be read: Is a directory"):
        drive(config(), runner=Stages())


def test_an_attempt_is_set_aside_beside_outputs_of_another_provenance_never_among_them(
    config: Config, run: Path
) -> None:
    """Its provenance would vouch for them."""
    with pytest.raises(Interrupted):
        drive(
            config(),
            runner=Stages({("prepare", 0): stopped_after(prepare)}),
        )
    with pytest.raises(Interrupted):
        drive(config(k=0.5), runner=Stages({("prepare", 0): interrupt(signal.SIGINT)}))
    (run / "trimmed" / "iter0" / "provenance.json").unlink()
    stages = Stages()
    drive(config(k=0.5), runner=stages)
    assert stages.calls[0][0] == "prepare"
    assert not (run / "trimmed" / "iter0" / "provenance.json").exists()
    assert (run / "trimmed" / "iter0.1" / "provenance.json").exists()


def test_a_run_directory_can_be_moved(config: Config, run: Path, tmp_path: Path) -> None:
    drive(config(), runner=Stages())
    moved = tmp_path / "elsewhere" / "td_loop_other"
    moved.parent.mkdir()
    run.rename(moved)
    drive(config(tag="other", runs_dir=moved.parent, iters=3), runner=Stages())
    assert len(_promoted(moved)) == 3


def test_a_lost_prior_cache_costs_one_comparison_and_no_more(config: Config, run: Path) -> None:
    drive(config(), runner=Stages())
    (run / "iter1" / "branch_data.npz").unlink()
    drive(config(iters=4), runner=Stages())
    kl = [r["stage3_validation"]["S3.7"] for r in content(run)["iters"]]
    assert [k["passed"] for k in kl] == [None, True, None, True]
    assert kl[0]["message"] == "no iteration before to compare with"
    assert re.fullmatch(
        r"the cache of iteration 1 cannot be read: .*branch_data\.npz: no such file", kl[2]["message"]
    )


def test_a_damaged_prior_cache_counts_as_lost(config: Config, run: Path) -> None:
    drive(config(), runner=Stages())
    (run / "iter1" / "branch_data.npz").write_bytes(b"no zip")
    drive(config(iters=3), runner=Stages({("prepare", 0): prepare}))
    verdict = content(run)["iters"][2]["stage3_validation"]["S3.7"]
    assert verdict["passed"] is None
    assert re.match(r"the cache of iteration 1 cannot be read: .*damaged", verdict["message"])
