from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from td_loop.loop.config import RunConfig
from td_loop.loop.console import closing_text, iteration_line, plan_text, reason, warning_lines
from td_loop.loop.cost import Cost, Work
from td_loop.loop.manifest import IterRecord, Json, Manifest, Status
from tests.loop.test_manifest import promoted

WORK = Work(80000, 0.3, 0.2, None, 24, 10, 64, 128)


def check(severity: str, passed: bool | None, message: str = "said", **numbers: float) -> Json:
    return {"severity": severity, "passed": passed, "message": message, "numbers": numbers}


def test_an_iteration_fits_a_line_of_80_columns() -> None:
    values = itertools.product(
        (0.0, 12.34567, "NaN"), (0.0, 1.0, None), (None, 1.234567e-05, "Infinity"), list(Status)
    )
    for loss, rate, kl, status in values:
        record = IterRecord(
            999,
            1,
            "iter999_retry1",
            "v",
            "0",
            status,
            prepare={"wall_s": 359999.0, "engine_fallback_rate": rate},
            fit={"wall_s": 1.0, "final_val_mc_nll": loss},
            stage3_validation={"S3.7": {"numbers": {"kl": kl}}},
        )
        line = iteration_line(record, eta_s=99 * 86400.0 if status is Status.PROMOTED else None)
        assert len(line) <= 80, line
        assert line.startswith(f"iter 999r1 {status}")


def test_an_iteration_line_says_how_it_went() -> None:
    record = replace(
        promoted(3, 0.51234),
        prepare={"wall_s": 700.0, "engine_fallback_rate": 0.02},
        stage3_validation={"S3.7": {"numbers": {"kl": 0.00123}}},
    )
    assert iteration_line(record, eta_s=3600.0) == (
        "iter 3   promoted     val 0.5123 fallback 2.0%  KL 0.0012  11m41s  ETA 1h00m"
    )


def test_the_plan_says_what_is_to_come(config: Callable[..., RunConfig]) -> None:
    manifest = Manifest.new("t", "0", {}).with_record(promoted(0))
    text = plan_text(
        config(iters=5),
        Path("runs/td_loop_t"),
        manifest,
        work=WORK,
        cost=Cost(1200.0, 60.0),
        cores=2,
        disk=95_000_000,
        free=10**11,
    )
    for words in (
        "4 to go, 1 of 5 done",
        "80,000 an iteration: 56,000 replay (R), about 24,000 agent (A)",
        "0.2 s a row, 24 workers (2 physical cores here)",
        "21m00s an iteration (prepare 20m00s, fit 1m00s)",
        "1h24m in all, from this run's earlier iterations",
        "about 95 MB needed, 100 GB free",
    ):
        assert words in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_soft_failures_and_drift_are_warned_of_but_never_in_a_flood() -> None:
    record = IterRecord(
        2,
        0,
        "iter2",
        "v",
        "0",
        Status.PROMOTED,
        stage3_validation={"S3.4": check("soft", False), "S3.5": check("soft", None), "S3.6": check("soft", True)},
        knot_coverage={"warnings": ["a", "b", "c", "d", "e"]},
    )
    assert warning_lines(record) == [
        "[S3.4] iteration 2: said",
        "[knot-drift] iteration 2: a",
        "[knot-drift] iteration 2: b",
        "[knot-drift] iteration 2: c",
        "[knot-drift] iteration 2: and 2 more, see validation.json",
    ]


@pytest.mark.parametrize(
    ("status", "stage3", "stage4", "expected"),
    [
        (
            Status.HARD_ABORTED,
            {"S3.1": check("hard", False), "S3.2": check("hard", True)},
            None,
            "S3.1 failed: said",
        ),
        (Status.HARD_ABORTED, {"config": {}, "failure": "exited with 1"}, None, "exited with 1"),
        # The losses say more than the weights that they spoiled.
        (
            Status.HARD_ABORTED,
            {"S3.4": check("soft", False)},
            {"S4.1": check("hard", False), "S4.3": check("soft", False), "failure": "no weights"},
            "S4.1 failed: said",
        ),
        (Status.REVERTED, {"S3.4": check("soft", False)}, {"S4.3": check("soft", False)}, "S4.3 failed: said"),
    ],
)
def test_the_reason_is_what_decided(status: Status, stage3: Json, stage4: Json | None, expected: str) -> None:
    record = IterRecord(0, 0, "iter0", "v", "0", status, stage3_validation=stage3, stage4_validation=stage4)
    assert reason(record) == expected


def test_the_last_words_say_where_the_weights_are() -> None:
    text = closing_text(Path("runs/td_loop_t"), Manifest.new("t", "0", {}).with_record(promoted(0, 0.5)), ["more"])
    assert "runs/td_loop_t/latest_good.npz is iter0/weights.npz" in text
    assert "val_mc_nll 0.5000 in iteration 0: runs/td_loop_t/best_val.npz" in text
    assert text.endswith("\nmore")
