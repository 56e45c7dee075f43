"""Runs with which nothing is wrong, and what is worth knowing of them all the same."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from td_loop.cli import main
from td_loop.files import read_json, write_json
from td_loop.loop import verify
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.loop.lock import run_lock
from td_loop.loop.verify import examine, faults
from tests.loop.fakes import Stages, write_bootstrap
from tests.loop.trouble import killed_after
from tests.report.conftest import write_rows

NAMES = ["promoted", "reverted", "retried", "aborted", "failed", "interrupted", "stopped", "trimmed"]
GATED = ["gated", "in a match", "no match"]
NAMES += GATED
Copy = Callable[[str], Path]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_a_run_however_it_ended(made: dict[str, Path], name: str) -> None:
    assert faults(made[name]) == []


def test_what_was_looked_at_is_counted(made: dict[str, Path]) -> None:
    found = examine(made["retried"])
    assert (found.promoted, found.weights, found.caches) == (3, 5, 2 + 1)  # caches of 1, its retry, and 2
    assert found.notes == ()
    assert found.driver is None


def test_nothing_is_changed(copy: Copy) -> None:
    run = copy("trimmed")
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.rglob("*") if p.is_file()}
    assert main(["verify", str(run)]) == 0
    assert main(["status", str(run)]) == 0
    assert main(["explain", str(run), "1"]) == 0
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.rglob("*") if p.is_file()} == before


def test_a_run_that_has_done_nothing_is_sound(copy: Copy) -> None:
    run = copy("promoted")
    for name in ("manifest.json", "iter1", "iter2", "latest_good.npz", "best_val.npz"):
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (run / "iter0").iterdir():
        if path.name != "V_snap.npz":
            path.unlink()
    assert examine(run).notes == ("no iteration was begun here yet",)
    assert faults(run) == []


def test_leftovers_are_notes_and_no_faults(copy: Copy) -> None:
    run = copy("unpruned")
    (run / "iter1" / ".weights.npz.abc.tmp").touch()
    (run / ".manifest.json.abc.tmp").touch()
    shutil.copytree(run / "iter2", run / "iter3")
    found = examine(run)
    assert found.faults == ()
    words = "\n".join(found.notes)
    assert "iter1/.weights.npz.abc.tmp is half a file" in words
    assert ".manifest.json.abc.tmp is half a file" in words
    assert "iter3 is of no record: a stopped driver left it" in words
    assert re.search(r"iter0/branch_data.npz \(.* kB\) is older than retention keeps", words)
    assert len(found.notes) == 4


def test_a_run_that_was_renamed_is_sound(copy: Copy) -> None:
    run = copy("promoted")
    moved = run.rename(run.with_name("elsewhere"))
    found = examine(moved)
    assert found.faults == ()
    assert found.notes == ("the folder was renamed or copied: tag 'promoted' is looked for in td_loop_promoted",)


def test_caches_and_rows_that_are_gone_are_notes(copy: Copy) -> None:
    run = copy("promoted")
    for path in run.glob("*/branch_data.npz"):
        path.unlink()
    (run / "mc_rows.npz").unlink()
    found = examine(run)
    assert found.faults == ()
    assert [note.split()[0] for note in found.notes] == ["iter2/branch_data.npz", "mc_rows.npz"]


def test_outcome_rows_of_a_program_of_the_users_own_are_its_own_affair(copy: Copy) -> None:
    run = copy("promoted")
    (run / "mc_rows.npz").write_bytes((run / "iter0" / "V_snap.npz").read_bytes())
    assert faults(run) == []


def test_pointer_files_do_as_well_as_links(copy: Copy) -> None:
    run = copy("promoted")
    for name in ("latest_good", "best_val"):
        link = run / f"{name}.npz"
        (run / f"{name}.txt").write_text(f"{link.readlink()}\n")
        link.unlink()
    assert faults(run) == []


# --- while a driver works --------------------------------------------------------------------------------------


def test_the_attempt_in_progress_is_left_alone(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy("promoted")
    (run / "iter3").mkdir()
    (run / "iter3" / ".branch_data.npz.abc.tmp").touch()
    (run / "iter3" / "validation.json").write_text("{")
    with run_lock(run / ".lock"):
        assert main(["verify", str(run)]) == 0
    out = capsys.readouterr().out
    assert "a driver is at work: " in out
    assert "iter3 is in progress and was left alone" in out
    assert "half a file" not in out


def test_what_a_driver_is_just_changing_is_no_fault(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest was written, its links come a moment later."""
    run = copy("promoted")
    link = run / "latest_good.npz"
    target = link.readlink()
    link.unlink()
    monkeypatch.setattr(verify.time, "sleep", lambda _: link.symlink_to(target))
    with run_lock(run / ".lock"):
        assert faults(run) == []


def test_a_fault_that_lasts_is_reported_while_a_driver_works(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    run = copy("promoted")
    (run / "best_val.npz").unlink()
    monkeypatch.setattr(verify.time, "sleep", lambda _: (run / "latest_good.npz").unlink())
    with run_lock(run / ".lock"):
        found = faults(run)
    assert [fault.file for fault in found] == ["best_val.npz"]


def test_tens_of_iterations_are_checked(copy: Copy) -> None:
    """One long run, made by copying records: contiguous, chained, and all files there."""
    run = copy("promoted")
    manifest = read_json(run / "manifest.json")
    last = manifest["iters"][-1]
    for i in range(3, 40):
        name = f"iter{i}"
        shutil.copytree(run / "iter1", run / name, ignore=shutil.ignore_patterns("branch_data.npz"))
        record = {
            **manifest["iters"][1],
            "i": i,
            "iter_dir": name,
            "weights": f"{name}/weights.npz",
            "v_snap": last["weights"],
            "v_snap_sha256": last["weights_sha256"],
        }
        validation = read_json(run / name / "validation.json")
        write_json(run / name / "validation.json", {**validation, "i": i})
        manifest["iters"].append(record)
        last = record
    manifest["latest_good"] = last["weights"]
    write_json(run / "manifest.json", manifest)
    (run / "latest_good.npz").unlink()
    (run / "latest_good.npz").symlink_to(last["weights"])
    write_rows(run)
    found = examine(run)
    assert (found.faults, found.promoted, found.weights) == ((), 40, 41)


def test_a_run_killed_after_any_change_on_disk_is_sound_but_for_its_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links come last, so they may still lead where they led before; the next start derives them."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    small = {"tag": "t", "iters": 2, "n": 20, "seg_uniform_tau": 1.0}
    bootstrap = write_bootstrap(tmp_path / "bootstrap.npz")
    behind = moment = 0
    killed = True
    while killed:
        folder = tmp_path / f"killed{moment}"
        config = RunConfig.from_flags({**small, "runs_dir": folder, "bootstrap": bootstrap})
        killed = killed_after(moment, lambda config=config: drive(config, runner=Stages()))
        run = folder / "td_loop_t"
        found = faults(run)
        assert {fault.file for fault in found} <= {"latest_good.npz", "best_val.npz"}
        behind += bool(found)
        drive(config, runner=Stages())
        assert faults(run) == []
        moment += 1
    assert moment > 15
    assert behind > 0
