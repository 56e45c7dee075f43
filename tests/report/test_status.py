"""Where a run stands: as a table for people, and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from td_loop.cli import main
from td_loop.files import read_json, write_json
from td_loop.loop.lock import run_lock
from td_loop.report.status import disk_used, status, status_text
from tests.report.test_verify_clean import NAMES

Copy = Callable[[str], Path]


def as_json(run: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["status", str(run), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return orjson.loads(out)


def test_the_table_tells_how_each_attempt_ended(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = made["retried"]
    assert main(["status", "retried", "--runs-dir", str(run.parent)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert f"run 'retried' in {run}" in " ".join(lines[:2])
    assert "  iterations   3 of 3 done" in lines
    assert "  driver       no driver is at work" in lines
    assert "  latest_good  iter2/weights.npz" in lines
    assert "  best_val     iter0/weights.npz, val_mc_nll 0.6000" in lines
    table = [line.split() for line in lines if line[:1].isdecimal()]
    assert [row[:2] for row in table] == [
        ["0", "promoted"],
        ["1", "reverted"],
        ["1r1", "promoted"],
        ["2", "promoted"],
    ]
    assert [row[4:6] for row in table] == [["0.6000", "0.7000"], ["0.9000", "0.7000"], *[["0.6000", "0.7000"]] * 2]
    assert [row[-1] for row in table] == ["b", "ok", "ok", "g"]


@pytest.mark.parametrize("name", NAMES)
def test_every_line_fits_80_columns(made: dict[str, Path], name: str) -> None:
    s = status(made[name])
    s["run"] = "runs/td_loop_default"
    for attempt in s["attempts"]:
        attempt |= {
            "iter": 999,
            "attempt": 1,
            "status": "hard_aborted",
            "prepare_wall_s": 86400 * 12.0,
            "fit_wall_s": 3599.0,
            "val_mc_nll": 1e9,
            "val_mc_nll_baseline": "Infinity",
            "kl": 1.234567e-05,
            "engine_fallback_rate": 1.0,
            "knots_drifted": 99,
            "is_latest_good": True,
            "is_best_val": True,
        }
        if "gate" in attempt:
            attempt["gate"] |= {"score": 1.0, "rounds": 10**6, "llr": -123.456, "wall_s": 86400 * 12.0}
    assert max(map(len, status_text(s).splitlines())) <= 80


def test_json_holds_the_same_and_more(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = made["promoted"]
    found = as_json(run, capsys)
    assert found["tag"] == "promoted"
    assert found["iterations"] == {"promoted": 3, "wanted": 3}
    assert found["driver"] is None
    assert found["best_val"] == {"iter": 0, "val_mc_nll": 0.5, "path": "iter0/weights.npz"}
    assert found["disk_bytes"] == sum(p.lstat().st_size for p in run.rglob("*") if p.is_symlink() or p.is_file())
    second = found["attempts"][1]
    assert second | {"prepare_wall_s": 0, "fit_wall_s": 0, "kl": 0} == {
        "iter": 1,
        "attempt": 0,
        "folder": "iter1",
        "status": "promoted",
        "stage": None,
        "prepare_wall_s": 0,
        "fit_wall_s": 0,
        "val_mc_nll": 0.51,
        "val_mc_nll_baseline": 0.7,
        "kl": 0,
        "engine_fallback_rate": 0.0,
        "knots_drifted": 0,
        "is_latest_good": False,
        "is_best_val": False,
    }
    assert second["kl"] > 0


def test_numbers_that_are_not_finite_are_strings_in_json_and_words_in_the_table(
    copy: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy("promoted")
    manifest = read_json(run / "manifest.json")
    manifest["iters"][2]["fit"]["final_val_mc_nll"] = "NaN"
    manifest["iters"][2]["stage3_validation"]["S3.7"]["numbers"]["kl"] = "Infinity"
    write_json(run / "manifest.json", manifest)
    last = as_json(run, capsys)["attempts"][2]
    assert (last["val_mc_nll"], last["kl"]) == ("NaN", "Infinity")
    assert main(["status", str(run)]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("2 ")]
    assert (row[4], row[6]) == ("NaN", "inf")


@pytest.mark.parametrize(
    ("name", "ended", "stage"),
    [
        ("reverted", "reverted", None),
        ("aborted", "hard_aborted", "fit"),
        ("failed", "hard_aborted", None),
        ("interrupted", "interrupted", "fit"),
        ("stopped", "interrupted", "prepare"),
        ("in a match", "interrupted", "gate"),
        ("no match", "hard_aborted", None),
    ],
)
def test_an_attempt_that_was_not_promoted_shows_how_far_it_came(
    made: dict[str, Path], name: str, ended: str, stage: str | None
) -> None:
    last = status(made[name])["attempts"][-1]
    assert (last["status"], last["stage"]) == (ended, stage)


def test_matches_have_a_table_of_their_own(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(made["gated"])]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(k for k, line in enumerate(lines) if line.split()[:2] == ["iter", "gate"])
    assert [line.split()[:5] for line in lines[at + 1 : at + 5]] == [
        ["0", "H1", "75.0%", "3", "3.00"],
        ["1", "H0", "75.0%", "3", "-3.00"],
        ["1r1", "H1", "75.0%", "3", "3.00"],
        ["2", "H1", "75.0%", "3", "3.00"],
    ]
    second = as_json(made["gated"], capsys)["attempts"][1]
    assert second["gate"] | {"wall_s": 0} == {
        "verdict": "H0",
        "llr": -3.0,
        "rounds": 3,
        "games": 6,
        "score": 0.75,
        "wall_s": 0,
        "exit_code": 6,
    }
    for name, said in (("in a match", "not at its end"), ("no match", "not played")):
        assert main(["status", str(made[name])]) == 0
        assert f"\n1    {said}" in capsys.readouterr().out
    assert "gate" not in status_text(status(made["promoted"]))


@pytest.mark.parametrize("spoiled", [None, 5, {"config": 5}, {"config": {}, "llr": "x"}])
def test_a_match_in_progress_is_shown(copy: Copy, capsys: pytest.CaptureFixture[str], spoiled: Any) -> None:
    run = copy("in a match")
    manifest = read_json(run / "manifest.json")
    write_json(run / "manifest.json", {**manifest, "iters": manifest["iters"][:1]})
    if spoiled is not None:
        write_json(run / "iter1/validation.json", {**read_json(run / "iter1/validation.json"), "gate": spoiled})
    with run_lock(run / ".lock"):
        assert main(["status", str(run)]) == 0
        assert ("\n1    playing" in capsys.readouterr().out) is (spoiled is None)
        assert main(["explain", str(run), "1"]) == 0
        assert ("it is gate's turn" in capsys.readouterr().out) is (spoiled is None)


def test_a_driver_at_work_and_its_attempt_are_shown(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy("promoted")
    (run / "iter3").mkdir()
    with run_lock(run / ".lock"):
        found = as_json(run, capsys)
        assert main(["status", str(run)]) == 0
        out = capsys.readouterr().out
        (run / "iter3" / "validation.json").write_bytes((run / "iter2" / "validation.json").read_bytes())
        assert status(run)["attempts"][-1]["stage"] is None
    assert "process " in found["driver"]["who"]
    assert found["driver"]["since"]
    assert (found["attempts"][-1]["status"], found["attempts"][-1]["stage"]) == ("in progress", "prepare")
    assert "a driver is at work: process " in out
    assert "\n3    preparing" in out
    assert status(run)["attempts"][-1]["status"] == "unfinished"


def test_a_run_that_has_just_begun_says_so(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy("promoted")
    manifest = read_json(run / "manifest.json")
    write_json(
        run / "manifest.json", {**manifest, "iters": [], "latest_good": "iter0/V_snap.npz", "best_val": None}
    )
    for name in ("iter1", "iter2"):
        (run / name).rename(run.parent / name)
    for path in (run / "iter0").iterdir():
        if path.name != "V_snap.npz":
            path.unlink()
    assert main(["status", str(run)]) == 0
    out = capsys.readouterr().out
    assert "0 of 3 done" in out
    assert "best_val     none yet" in out
    assert out.endswith("no iteration was begun yet\n")


def test_disk_use_counts_links_as_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "b").symlink_to("a")
    assert disk_used(tmp_path) == 1001


# --- which run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["status"], ["verify"], ["explain", "0"]])
def test_a_run_that_is_not_there_is_named_with_those_that_are(
    made: dict[str, Path], capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    folder = made["promoted"].parent
    name, *rest = command
    assert main([name, "other", *rest, "--runs-dir", str(folder)]) == 65
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: no run 'other': neither other nor ")
    assert f"tags in {folder}: aborted, failed, " in err


def test_a_folder_without_runs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "t", "--runs-dir", str(tmp_path)]) == 65
    assert f"{tmp_path} holds no run; see --runs-dir" in capsys.readouterr().err


def test_a_folder_that_is_called_like_a_tag_is_not_taken_for_the_run(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "promoted").mkdir()
    assert main(["status", "promoted", "--runs-dir", str(made["promoted"].parent)]) == 0


def test_a_damaged_manifest_is_one_line(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy("promoted")
    (run / "manifest.json").write_text("{")
    for command in (["status", str(run)], ["explain", str(run), "0"]):
        assert main(command) == 65
        assert capsys.readouterr().err.startswith(f"error: {run}/manifest.json: not valid JSON")


@pytest.mark.parametrize("value", [5, [], {"n_r": 1}])
def test_records_that_somebody_spoiled_are_one_line(
    copy: Copy, capsys: pytest.CaptureFixture[str], value: Any
) -> None:
    run = copy("promoted")
    manifest = read_json(run / "manifest.json")
    for key in ("prepare", "knot_coverage", "stage3_validation"):
        manifest["iters"][1][key] = value
    write_json(run / "manifest.json", manifest)
    for command in (["status", str(run)], ["explain", str(run), "1"], ["verify", str(run)]):
        assert main(command) in (0, 65)
        assert "Traceback" not in capsys.readouterr().err


def test_a_run_without_a_manifest_is_one_line(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy("promoted")
    (run / "manifest.json").unlink()
    assert main(["status", str(run)]) == 65
    assert capsys.readouterr().err.startswith(f"error: {run}: has no manifest.json")


@pytest.mark.parametrize("wall_s", ["x", [], {}])
def test_a_duration_that_is_no_number_is_an_error_of_one_line(
    copy: Copy, capsys: pytest.CaptureFixture[str], wall_s: Any
) -> None:
    run = copy("retried")
    content = read_json(run / "manifest.json")
    content["iters"][1]["prepare"]["wall_s"] = wall_s
    write_json(run / "manifest.json", content)
    assert main(["status", str(run)]) == 65
    assert "its records cannot be understood" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["status"], ["explain"]])
def test_a_manifest_that_is_a_folder_is_an_error_of_one_line(
    copy: Copy, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    run = copy("retried")
    (run / "manifest.json").unlink()
    (run / "manifest.json").mkdir()
    assert main([*command, str(run), *(["1"] if command == ["explain"] else [])]) == 65
    assert capsys.readouterr().err.count("\n") == 1
