"""Finished stages of attempts that ended otherwise: taken back if they were made from the same, and only then."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from td_loop.errors import HardAbort, Interrupted, Reverted, StorageError
from td_loop.files import read_json, sha256, write_json
from td_loop.loop import attempt
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.npz import load_npz, save_npz
from tests.loop.fakes import Flags, Stages, fit, prepare, prepare_with, reverts, stopped_after
from tests.loop.test_resume import content, final_weights

Config = Callable[..., RunConfig]


@pytest.fixture
def stopped(config: Config, run: Path) -> Callable[..., None]:
    """Make a run whose iteration 1 was stopped when `stage` had done its work."""

    def make(stage: str) -> None:
        script = {(stage, 1): stopped_after(prepare if stage == "prepare" else fit)}
        with pytest.raises(Interrupted):
            drive(config(), runner=Stages(script))
        assert content(run)["iters"][1]["status"] == "interrupted"

    return make


def resume(config: RunConfig) -> list[str]:
    """Go on; the stages that were run."""
    stages = Stages()
    drive(config, runner=stages)
    return [stage for stage, _ in stages.calls]


def test_a_finished_prepare_is_not_run_again(
    config: Config, run: Path, stopped: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped("prepare")
    cache = sha256(run / "iter1" / "branch_data.npz")
    assert resume(config()) == ["fit"]
    assert sha256(run / "iter1" / "branch_data.npz") == cache
    assert "iter1: prepare is taken from trimmed/iter1, made from the same" in capsys.readouterr().out
    drive(config(runs_dir=tmp_path / "whole"), runner=Stages())
    assert final_weights(run) == final_weights(tmp_path / "whole" / "td_loop_t")


def test_a_finished_fit_is_not_run_again_and_the_records_are_the_same(
    config: Config, run: Path, stopped: Any, tmp_path: Path
) -> None:
    stopped("fit")
    assert resume(config()) == []
    drive(config(runs_dir=tmp_path / "whole"), runner=Stages())
    records, whole = (content(r)["iters"] for r in (run, tmp_path / "whole" / "td_loop_t"))
    for record in records + whole:
        record["prepare"]["wall_s"] = record["fit"]["wall_s"] = 0
    assert records == whole


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"k": 0.5}, "k was 0.3 and is 0.5"),
        ({"n": 40}, "n was 20 and is 40"),
        ({"seed": 3}, "seed was 0 and is 3"),
        ({"budget_s": 0.5}, "budget_s was 0.2 and is 0.5"),
        ({"budget_evals": 7}, "budget_evals is new"),
        ({"mc_target_p": 0.0}, "mc_target_p was 0.5 and is 0.0"),
        ({"replays": Path("/games")}, "replays was None and is /games"),
    ],
)
def test_what_prepare_depends_on_is_told_when_it_changed(
    config: Config, stopped: Any, change: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped("fit")
    # fit may find its own output again: these fakes write the same bytes whatever budget they have.
    assert resume(config(**change))[0] == "prepare"
    out = capsys.readouterr().out
    assert f"iter1: prepare runs again: {why} (trimmed/iter1)" in out
    assert len([line for line in out.splitlines() if "prepare runs again" in line]) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [({"lr_peak": 0.01}, "lr_peak was 0.03 and is 0.01"), ({"epochs": 3}, "epochs was 10 and is 3")],
)
def test_what_only_fit_depends_on_keeps_the_cache(
    config: Config, stopped: Any, change: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped("fit")
    assert resume(config(**change)) == ["fit"]
    assert f"iter1: fit runs again: {why} (trimmed/iter1)" in capsys.readouterr().out


@pytest.mark.parametrize("change", [{"workers": 7}, {"cache_dir": Path("/tmp")}, {"on_fail": "retry-then-abort"}])
def test_what_changes_no_output_changes_nothing(config: Config, stopped: Any, change: dict[str, Any]) -> None:
    stopped("fit")
    assert resume(config(**change)) == []


def test_another_program_in_place_of_a_stage_makes_its_own_output(config: Config, stopped: Any) -> None:
    stopped("fit")
    assert resume(config(prepare_cmd="true prepare"))[0] == "prepare"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


def test_only_what_a_program_of_the_user_finished_is_taken_back(config: Config, run: Path, program: Path) -> None:
    """It may write plausible files as it goes, and fail after that."""
    program.write_text("")
    mine = config(iters=1, fit_cmd=f"{sys.executable} {program} fit")
    with pytest.raises(HardAbort):
        drive(mine, runner=Stages({("fit", 0): lambda flags: fit(flags) + 1}))
    with pytest.raises(Interrupted):
        drive(mine, runner=Stages({("fit", 0): stopped_after(fit)}))
    assert resume(mine) == ["fit"]


def test_a_program_that_was_edited_makes_its_own_output(
    config: Config, run: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text("first")
    mine = {"fit_cmd": f"{sys.executable} {program} fit"}
    with pytest.raises(Reverted):
        drive(config(**mine), runner=Stages({("fit", 1): reverts}))
    stages = Stages()
    with pytest.raises(Reverted):  # unchanged: taken back
        drive(config(**mine), runner=stages)
    assert stages.calls == []
    program.write_text("second")
    assert resume(config(**mine)) == ["fit"]
    assert "iter1: fit runs again: fit's code changed" in capsys.readouterr().out


def test_replays_that_grew_make_new_targets(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    games = tmp_path / "games"
    games.mkdir()
    (games / "a.json").write_text("a")
    with pytest.raises(Interrupted):
        drive(config(replays=games), runner=Stages({("prepare", 0): stopped_after(prepare)}))
    (games / "b.json").write_text("b")
    assert resume(config(replays=games))[0] == "prepare"
    assert "iter0: prepare runs again: the replay files changed" in capsys.readouterr().out


@pytest.mark.parametrize("spoil", ["lost", "of other replays"])
def test_a_cache_without_its_outcome_rows_is_made_again(config: Config, run: Path, spoil: str) -> None:
    """fit would miss them, at every start."""

    def whole(flags: Flags) -> int:
        save_npz(Path(flags["--mc-rows"]), {}, {"replay_set_hash": "a"})
        return prepare_with(replay_set_hash="a")(flags)

    with pytest.raises(Interrupted):
        drive(config(iters=1), runner=Stages({("prepare", 0): stopped_after(whole)}))
    if spoil == "lost":
        (run / "mc_rows.npz").unlink()
    else:
        save_npz(run / "mc_rows.npz", {}, {"replay_set_hash": "b"})
    assert resume(config(iters=1))[0] == "prepare"


def test_a_cache_is_found_again_under_settings_that_come_back(config: Config, stopped: Any, run: Path) -> None:
    stopped("prepare")
    with pytest.raises(Interrupted):
        drive(config(k=0.9), runner=Stages({("prepare", 0): stopped_after(prepare)}))
    assert resume(config()) == ["fit"]
    assert (
        run / "trimmed" / "iter1.1" / "branch_data.npz"
    ).exists()  # the one of k = 0.9, until retention names it


def test_a_reverted_fit_gives_the_same_again_unless_a_setting_changes(config: Config, run: Path) -> None:
    with pytest.raises(Reverted, match="the same settings give the same again"):
        drive(config(), runner=Stages({("fit", 1): reverts}))
    stages = Stages()
    with pytest.raises(Reverted):
        drive(config(), runner=stages)
    assert stages.calls == []
    assert resume(config(lr_peak=0.01)) == ["fit"]


def test_a_retry_that_was_stopped_goes_on_where_it_was(config: Config, run: Path, tmp_path: Path) -> None:
    settings = {"on_fail": "retry-then-abort"}
    script: dict[tuple[str, int | str], Any] = {("fit", "iter1"): reverts}
    drive(config(**settings, runs_dir=tmp_path / "whole"), runner=Stages({**script}))
    with pytest.raises(Interrupted):
        drive(config(**settings), runner=Stages({**script, ("prepare", "iter1_retry1"): stopped_after(prepare)}))
    stages = Stages({**script})
    drive(config(**settings), runner=stages)
    assert [(s, Path(f.get("--output", "")).parent.name) for s, f in stages.calls] == [("fit", "iter1_retry1")]
    assert final_weights(run) == final_weights(tmp_path / "whole" / "td_loop_t")


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _other_weights(path: Path) -> None:
    arrays, meta = load_npz(path)
    save_npz(path, arrays | {"coef": arrays["coef"] + 1}, meta)
    training = path.with_suffix(".training.json")
    write_json(training, read_json(training) | {"output": {"sha256": "0" * 64}})


@pytest.mark.parametrize(
    ("spoil", "rerun"),
    [
        (lambda d: _damage(d / "branch_data.npz"), ["prepare"]),  # the same bytes again, so fit is found
        (lambda d: (d / "branch_data.npz").unlink(), ["prepare"]),
        (lambda d: (d / "provenance.json").unlink(), ["prepare", "fit"]),
        (lambda d: (d / "provenance.json").write_bytes(b"{"), ["prepare", "fit"]),
        (lambda d: _damage(d / "weights.npz"), ["fit"]),
        (lambda d: (d / "weights.training.json").write_bytes(b"{}"), ["fit"]),
        (lambda d: _other_weights(d / "weights.npz"), ["fit"]),
    ],
)
def test_what_is_missing_or_damaged_is_made_again(
    config: Config, run: Path, stopped: Any, spoil: Callable[[Path], Any], rerun: list[str]
) -> None:
    stopped("fit")
    spoil(run / "iter1")
    assert resume(config()) == rerun


def test_a_cache_that_failed_a_hard_check_is_made_again(config: Config, run: Path) -> None:
    def nan(cache: dict[str, Any]) -> None:
        cache["branch_r_target"][3, 0] = float("nan")

    with pytest.raises(HardAbort, match=r"S3\.3"):
        drive(config(), runner=Stages({("prepare", 1): prepare_with(nan)}))
    assert resume(config()) == ["prepare", "fit"]


def test_a_new_v_snap_makes_new_targets(config: Config, run: Path, stopped: Any) -> None:
    stopped("fit")
    manifest = content(run)
    # As if iteration 0 had been redone: the run starts over, with other weights to come.
    with pytest.raises(Interrupted):
        drive(config(tag="u", lr_peak=0.5), runner=Stages({("prepare", 1): stopped_after(prepare)}))
    other = run.with_name("td_loop_u")
    assert content(other)["iters"][0]["weights_sha256"] != manifest["iters"][0]["weights_sha256"]
    (run / "iter1").rename(other / "trimmed_iter1")
    (other / "trimmed").mkdir()
    (other / "trimmed_iter1").rename(other / "trimmed" / "iter1")
    (other / "iter1" / "branch_data.npz").unlink()
    assert resume(config(tag="u", lr_peak=0.5)) == ["prepare", "fit"]


def test_chunks_of_a_prepare_that_was_stopped_are_handed_to_the_next_of_the_same(
    config: Config, run: Path
) -> None:
    def half(flags: Flags) -> int:
        _chunks(flags).write_bytes(b"half of it")
        return 0

    seen: list[bool] = []

    def look(flags: Flags) -> int:
        seen.append(_chunks(flags).exists())
        return prepare(flags)

    for settings, handed in (({"seed": 1}, False), ({}, True)):
        with pytest.raises(Interrupted):
            drive(config(iters=1), runner=Stages({("prepare", 0): stopped_after(half)}))
        drive(config(iters=1, **settings, runs_dir=run.parent), runner=Stages({("prepare", 0): look}))
        assert seen.pop() is handed
        shutil.rmtree(run)


def _chunks(flags: Flags) -> Path:
    return Path(flags["--out"]).with_suffix(".chunks")


def test_a_full_disk_is_foreseen_before_an_iteration(
    config: Config, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(config(iters=1), runner=Stages())
    stages = Stages()
    with monkeypatch.context() as m:
        m.setattr(attempt, "disk_free", lambda _: 400_000)
        with pytest.raises(
            StorageError, match=r"iteration 1 needs about 1 MB, 400 kB is free; free \d+ kB, or give"
        ):
            drive(config(), runner=stages)
    assert stages.calls == []
    assert len(content(run)["iters"]) == 1
    assert resume(config()) == ["prepare", "fit"]
