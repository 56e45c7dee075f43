"""Why an iteration ended as it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from td_loop.checks import Severity, Verdict, knot_coverage, stage4
from td_loop.cli import main
from td_loop.files import read_json, write_json
from td_loop.loop.lock import run_lock
from td_loop.loop.manifest import IterRecord, Status
from td_loop.report.checks import check_rows
from td_loop.report.explain import explain
from tests.report.test_verify_clean import NAMES

Copy = Callable[[str], Path]
CHECKS = [*(f"S3.{i}" for i in range(1, 8)), *(f"S4.{i}" for i in range(1, 5)), "knots"]


def words(text: str) -> str:
    return " ".join(text.split())


def verdicts(text: str) -> dict[str, str]:
    """The verdict on each check, of an iteration of one attempt: the last word of the first line that names it."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return {line[0]: line[-1] for line in reversed(lines) if line[0] in CHECKS}


def test_a_promoted_iteration_lists_every_check(made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "promoted", "1", "--runs-dir", str(made["promoted"].parent)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert verdicts(out) == {**dict.fromkeys(CHECKS, "passed"), "S4.4": "logged"}
    said = words(out)
    assert (
        "attempt 0, iter1: promoted why no hard check failed and the final val_mc_nll is within its limit" in said
    )
    assert "so latest_good moved to iter1/weights.npz" in said
    assert "V_snap iter0/weights.npz (sha256 " in said
    assert "settings n 20, k 0.3, budget_s 0.2, workers 2, seed 0, epochs 10, lr_peak 0.03" in said
    assert "exit code 0: 14 replay rows (R), 6 agent rows (A)" in said
    assert "exit code 0: val_mc_nll 0.7000 before, 0.5100 after" in said
    assert "S4.3 final val_mc_nll 0.5100 <= 0.5250 soft passed" in said
    assert "S3.4 share of agent rows 0.3000 0.3 +- 0.3074 soft passed" in said
    assert "knots values above / below them 1% / 10% 30% / 70% soft passed" in said


def test_a_match_is_explained(made: dict[str, Path]) -> None:
    text = explain(made["gated"], "1")
    assert max(map(len, text.splitlines())) <= 80 or str(made["gated"]) in text
    said = words(text)
    lost = "scored 75.0% against iter0/weights.npz in 3 rounds (6 games), LLR -3.00 (<= -2.94): 0 Elo stronger"
    assert f"why gate failed: H0 accepted: {lost} rather than 50; it was run once more" in said
    assert "exit code 6: H0, 6 games; 0 or 50 Elo, 800 rounds at most, 0.2 s a move" in said
    assert "gate match with latest_good (LLR) -3.00 >= 2.94 soft FAILED" in said
    assert "within its limit (S4.3), and it won its match (gate), so latest_good moved to" in said
    assert "gate match with latest_good (LLR) 3.00 >= 2.94 soft passed" in said


def test_a_match_without_an_end_is_explained(made: dict[str, Path]) -> None:
    said = words(explain(made["in a match"], "1"))
    assert "why stopped during gate; the same command runs the iteration again" in said
    assert "gate not at its end: 0 or 50 Elo" in said
    said = words(explain(made["no match"], "1"))
    assert "why gate exited with code 1; its output is in" in said
    assert "exit code 1; 0 or 50 Elo" in said


def test_a_check_without_data_says_why(made: dict[str, Path]) -> None:
    said = words(explain(made["promoted"], "0"))
    assert "S3.7 targets moved (mean KL) - >= 0.0001 soft no data" in said
    assert "S3.7 no iteration before to compare with" in said


def test_a_retried_iteration_shows_both_attempts(made: dict[str, Path]) -> None:
    said = words(explain(made["retried"], "1"))
    first, retry = said.split("attempt 1, iter1_retry1: promoted")
    assert "attempt 0, iter1: reverted why S4.3 failed: final val_mc_nll 0.9000, limit 0.6300" in first
    assert "it was run once more with half the learning rate and another seed" in first
    assert "S4.3 final val_mc_nll 0.9000 <= 0.6300 soft FAILED" in first
    assert "seed 1000, epochs 10, lr_peak 0.015" in retry
    assert "FAILED" not in retry


@pytest.mark.parametrize("which", ["1_retry1", "1r1", "iter1_retry1"])
def test_the_retry_alone_can_be_asked_for(made: dict[str, Path], which: str) -> None:
    text = explain(made["retried"], which)
    assert "attempt 1, iter1_retry1: promoted" in text
    assert "attempt 0" not in text


def test_a_reverted_iteration_says_what_stayed(made: dict[str, Path]) -> None:
    assert "tau 0.05); latest_good stayed iter0/weights.npz" in words(explain(made["reverted"], "1"))


def test_a_hard_check_that_failed_is_the_reason(made: dict[str, Path]) -> None:
    text = explain(made["aborted"], "1")
    assert verdicts(text)["S3.3"] == "FAILED"
    assert "S4.1" not in verdicts(text)  # fit never ran
    assert "attempt 0, iter1: hard_aborted why S3.3 failed: 1 of 20 targets are not distributions" in words(text)
    assert "latest_good stayed iter0/weights.npz" in words(text)


def test_a_stage_that_failed_is_the_reason(made: dict[str, Path]) -> None:
    said = words(explain(made["failed"], "1"))
    assert "hard_aborted why fit exited with code 1; its output is in" in said
    assert "fit 0s, exit code 1" in said


@pytest.mark.parametrize(("name", "stage"), [("interrupted", "fit"), ("stopped", "prepare")])
def test_an_interrupted_iteration_says_where(made: dict[str, Path], name: str, stage: str) -> None:
    said = words(explain(made[name], "1"))
    assert f"interrupted why stopped during {stage}; the same command runs the iteration again" in said


def test_attempts_that_were_set_aside_are_shown_before_the_one_that_counts(made: dict[str, Path]) -> None:
    said = words(explain(made["trimmed"], "1"))
    ends = [
        said.index(f"attempt 0, {folder}: {how}")
        for folder, how in (
            ("trimmed/iter1", "reverted, then set aside by a resume why S4.3 failed"),
            ("trimmed/iter1.1", "reverted, then set aside by a resume why S4.3 failed"),
            ("iter1", "promoted"),
        )
    ]
    assert ends == sorted(ends)


@pytest.mark.parametrize("stage3", ["x", [], {"S3.1": 5}, {"S3.1": {"passed": True}}])
def test_an_attempt_set_aside_whose_checks_were_edited_hides_no_other(copy: Copy, stage3: Any) -> None:
    run = copy("trimmed")
    path = run / "trimmed" / "iter1" / "validation.json"
    write_json(path, read_json(path) | {"stage3": stage3})
    said = words(explain(run, "1"))
    assert "attempt 0, trimmed/iter1: " in said
    assert "attempt 0, iter1: promoted" in said


def test_the_attempt_in_progress_is_shown_and_after_a_kill_what_is_left_of_it(copy: Copy) -> None:
    run = copy("promoted")
    (run / "iter3").mkdir()
    with run_lock(run / ".lock"):
        assert "in progress why a driver works on it: it is prepare's turn" in words(explain(run, "3"))
        validation = {"i": 3, "attempt": 0, "status": None, "stage3": {}, "stage4": None, "knot_coverage": None}
        write_json(run / "iter3" / "validation.json", validation)
        assert "it is fit's turn" in words(explain(run, "3"))
    said = words(explain(run, "3"))
    assert "attempt 0, iter3: unfinished why its driver was killed during fit; the next start of the run" in said


@pytest.mark.parametrize("which", ["9", "0_retry1", "three", "-1", "1.5", ""])
def test_an_iteration_that_is_not_there_is_refused_with_those_that_are(
    made: dict[str, Path], capsys: pytest.CaptureFixture[str], which: str
) -> None:
    assert main(["explain", str(made["retried"]), "--", which]) == 64
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {which!r}: ")
    assert err.endswith("there are: 0, 1, 1_retry1, 2\n")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("which", ["0", "1"])
def test_no_line_is_wider_than_80_columns(
    made: dict[str, Path], name: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made[name].parent)
    lines = explain(Path(made[name].name), which).splitlines()
    assert all(len(line) <= 80 or "/" in line for line in lines)  # a path is never broken
    assert all(len(line) <= 80 for line in lines if line.strip().split(" ")[0] in CHECKS)


# --- rows of checks --------------------------------------------------------------------------------------------


def rows_of(*found: Verdict, config: dict[str, Any] | None = None) -> dict[str, tuple[str, str, str]]:
    record = IterRecord(1, 0, "iter1", "v", "0", Status.PROMOTED)
    validation = {v.id: v.as_json() for v in found} | {"config": config or {}}
    rows = check_rows(replace(record, stage4_validation=validation))
    return {row.id: (row.value, row.limit, row.verdict) for row in rows}


def test_a_blowup_shows_the_loss_and_its_threshold() -> None:
    aborted = {"reason": "val_mc_nll above its limit", "epoch": 1, "val_mc_nll": 2.0, "threshold": 0.9}
    training = {"history": {"val_mc_nll": [0.7, 2.0]}, "aborted": aborted}
    found = stage4(training, exit_code=2, best_val_so_far=None, val_regression_tau=0.05)
    assert rows_of(*found)["S4.2"] == ("2.0000", "<= 0.9000", "FAILED")


def test_the_limit_of_a_blowup_that_did_not_come_is_the_flags() -> None:
    found = stage4({"history": {"val_mc_nll": [0.7]}}, exit_code=0, best_val_so_far=None, val_regression_tau=0.05)
    assert rows_of(*found, config={"val_blowup_tau": 0.25})["S4.2"] == ("exit 0", "<= baseline +25%", "passed")


def test_a_soft_check_only_warns_unless_it_reverts() -> None:
    found = (Verdict("S3.6", Severity.SOFT, False, "m"), Verdict("S4.3", Severity.SOFT, False, "m"))
    assert {k: v[2] for k, v in rows_of(*found).items()} == {"S3.6": "warned", "S4.3": "FAILED"}


def test_a_check_of_another_version_is_shown_by_its_own_words() -> None:
    (row,) = check_rows(
        replace(
            IterRecord(1, 0, "iter1", "v", "0", Status.PROMOTED),
            stage3_validation={"S3.9": Verdict("S3.9", Severity.SOFT, False, "too new").as_json()},
        )
    )
    assert (row.id, row.value, row.verdict, row.message) == ("S3.9", "-", "warned", "too new")


def test_knots_show_the_worst_feature() -> None:
    stats = {
        "a": {"frac_above_top_knot": 0.4, "frac_below_first_interior_knot": 0.0},
        "b": {"frac_above_top_knot": 0.1, "frac_below_first_interior_knot": 0.2},
    }
    coverage = knot_coverage(stats, above_top_tau=0.3, below_first_tau=0.7).as_json()
    record = IterRecord(1, 0, "iter1", "v", "0", Status.PROMOTED, knot_coverage=coverage)
    (row,) = check_rows(record)
    assert (row.value, row.limit, row.verdict) == ("40% / 20%", "- / -", "warned")
    assert row.message.startswith("a: 40.0%")
