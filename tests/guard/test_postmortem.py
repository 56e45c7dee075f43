from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import DataError
from td_loop.guard import history, plot
from td_loop.guard.audits import Facts, Outcome
from td_loop.guard.breaker import Breaker, BreakerSettings
from td_loop.guard.breaker_log import NAME, BreakerLog
from td_loop.guard.evidence import evidence
from td_loop.guard.history import read_history, telemetry_files
from td_loop.guard.panel import Panel
from td_loop.guard.postmortem import write_postmortem
from td_loop.guard.record import MAX_LINE, Record, encode

TRIP = 602


def diverging() -> list[Record]:
    rng = np.random.default_rng(0)
    return [
        Record(
            n,
            {
                "kl": float((0.01 if n < 600 else 0.4) * np.exp(0.3 * rng.standard_normal())),
                "reward": float(100 + 3 * rng.standard_normal()),
                "grad_norm": math.nan if n == TRIP else float(np.exp(0.2 * rng.standard_normal())),
                "lr": max(1e-3 * (1 - n / 300), 1e-5),
            },
            attempt=1,
        )
        for n in range(TRIP + 4)
    ]


def guard_folder(folder: Path, records: Iterable[Record] | None = None) -> Path:
    """A folder as a supervisor leaves it: tripped, tried again, tripped and locked, worker stopped."""
    log = BreakerLog(folder / NAME)
    breaker = Breaker(BreakerSettings(max_retries=1))
    panel, state, recent = Panel(), Panel().start(), []
    trip = None
    for record in diverging()[: TRIP + 1]:
        state, judgement = panel.step(state, record)
        recent.append(record)
        trip = judgement
    assert trip is not None
    assert trip.trip is not None
    for event in (
        lambda b: b.trip("worker exited with 1", {}, t=1e9, step=40),
        lambda b: b.stopped({"processes": 0}, t=1e9 + 1),
        lambda b: b.restart("from step 30", {}, t=1e9 + 2, step=30),
        lambda b: b.trip(trip.trip.why, evidence(trip.sick, recent), t=1e9 + 3, step=TRIP),
        lambda b: b.stopped({"processes": 0}, t=1e9 + 4),
    ):
        breaker, transition = event(breaker)
        log.append(transition)
    (folder / "telemetry.a0.jsonl").write_bytes(b'{"step": 1, "kl": 0.1}\n')
    lines = [encode(r) for r in (diverging() if records is None else records)]
    (folder / "telemetry.a1.jsonl").write_bytes(b"".join([*lines[:5], b"{torn\n", *lines[5:], b'{"step": 9']))
    return folder


def audits(folder: Path) -> dict[str, Any]:
    return {a["name"]: a for a in orjson.loads((folder / "postmortem.json").read_bytes())["audits"]}


def test_a_postmortem_tells_what_happened_and_what_to_do(tmp_path: Path) -> None:
    folder = guard_folder(tmp_path / "run")
    np.savez(tmp_path / "buffer.npz", rewards=np.ones(700), steps=np.arange(700))
    facts = Facts(clip_norm=10.0, replay_buffer="buffer.npz", total_steps=1000)
    written = write_postmortem(folder, facts, base=tmp_path)
    page = written.page.read_text()
    assert "open and locked after 1 retry" in page
    assert f"Last trip, at step {TRIP} of attempt 1: grad_norm is nan." in page
    assert "a stable snapshot of step 30" in page
    assert "2001-09-09 01:46:40" in page
    assert "×" in page
    assert "4 of 5 audits failed" not in page
    outcomes = {name: a["outcome"] for name, a in audits(folder).items()}
    assert outcomes == {
        "replay_buffer": "fail",
        "gradient_clip": "fail",
        "advantage_normalisation": "not_checkable",
        "reward_scale": "pass",
        "rate_decay": "fail",
    }
    assert audits(folder)["replay_buffer"]["figures"]["newer_than_stable"] == 669
    for failed in written.found.failed:
        assert failed.sentence in page
        assert failed.remedy in page
    found = orjson.loads(written.data.read_bytes())
    assert found["trip"]["evidence"]["findings"][0]["detector"] == "non_finite"
    assert found["telemetry"]["records"] == TRIP + 1
    assert found["telemetry"]["last"][-1]["grad_norm"] == "NaN"
    assert found["telemetry"]["not_counted"] == 3  # after the trip
    assert found["telemetry"]["bad_lines"] == 1


def test_a_picture_is_drawn_where_matplotlib_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = write_postmortem(guard_folder(tmp_path))
    assert written.picture is not None
    assert written.picture.read_bytes().startswith(b"\x89PNG")
    assert "![telemetry](postmortem.png)" in written.page.read_text()


def test_without_matplotlib_the_page_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    written = write_postmortem(guard_folder(tmp_path))
    assert written.picture is None
    assert "postmortem.png" not in written.page.read_text()
    assert "▁" in written.page.read_text()


def test_the_pointer_names_the_stable_snapshot(tmp_path: Path) -> None:
    guard_folder(tmp_path)
    (tmp_path / "stable_checkpoint_latest").symlink_to("snapshots/step_000000450_a1/model.zip")
    assert write_postmortem(tmp_path).found.stable_step == 450


def test_without_a_telemetry_file_the_logs_own_records_are_shown(tmp_path: Path) -> None:
    guard_folder(tmp_path)
    (tmp_path / "telemetry.a1.jsonl").unlink()
    page = write_postmortem(tmp_path).page.read_text()
    assert "these records are from the breaker's log" in page
    assert f"| {TRIP} |" in page
    assert {a["outcome"] for a in audits(tmp_path).values()} == {"not_checkable"}


def test_a_run_that_never_tripped_is_examined_too(tmp_path: Path) -> None:
    (tmp_path / "telemetry.a0.jsonl").write_bytes(b"".join(encode(Record(n, {"kl": 0.01})) for n in range(5)))
    written = write_postmortem(tmp_path, out=tmp_path / "elsewhere")
    assert written.page == tmp_path / "elsewhere" / "postmortem.md"
    assert "Nothing has tripped." in written.page.read_text()


def test_a_folder_without_anything_to_examine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds neither breaker\.jsonl nor telemetry"):
        write_postmortem(tmp_path)


def test_a_reason_cannot_break_the_table(tmp_path: Path) -> None:
    log = BreakerLog(tmp_path / NAME)
    log.append(Breaker().trip("a | b\nc", {}, t=0.0)[1])
    assert r"| a \| b c |" in write_postmortem(tmp_path).page.read_text()


# --- reading telemetry -------------------------------------------------------------------------------------------


def test_only_the_end_of_a_long_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TAIL", 10)
    path = tmp_path / "telemetry.a0.jsonl"
    path.write_bytes(b"".join(encode(Record(n, {"lr": 1.0 if n < 50 else 0.5})) for n in range(100)))
    found = read_history(path, 0)
    assert (found.total, len(found.records), found.records[-1].step) == (100, 10, 99)
    assert found.rate is not None
    assert (found.rate.first, found.rate.last, found.rate.flat_since) == (1.0, 0.5, 50)


def test_a_line_of_any_length_is_one_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.a0.jsonl"
    for size in (MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE + 7):
        path.write_bytes(b'{"step": 1}\n' + b"x" * size + b'\n{"step": 2}\n')
        found = read_history(path, 0)
        assert [r.step for r in found.records] == [1, 2]
        assert found.bad == 1
        assert found.first_bad.startswith("byte 12: ")


def test_lines_of_other_attempts_and_a_torn_end_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.a1.jsonl"
    path.write_bytes(b'{"step": 1, "attempt": 1}\n{"step": 7, "attempt": 0}\n{"step": 2}\n{"step": 3')
    found = read_history(path, 1)
    assert [r.step for r in found.records] == [1, 2]
    assert (found.foreign, found.bad) == (1, 0)


def test_files_of_attempts_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("telemetry.a10.jsonl", "telemetry.a2.jsonl", "telemetry.ax.jsonl", "telemetry.a1.jsonl.bak"):
        (tmp_path / name).touch()
    assert list(telemetry_files(tmp_path)) == [2, 10]


# --- sparklines --------------------------------------------------------------------------------------------------


def test_a_sparkline_shows_height_and_what_is_not_finite() -> None:
    assert plot.sparkline([0.0, 1.0, math.nan, 7.0]) == "▁▂×█"
    assert plot.sparkline([1e-6, 1e-3, 1.0]) == "▁▅█"  # by their logarithm
    assert plot.sparkline([3.0, 3.0]) == "▅▅"
    assert len(plot.sparkline([1.0] * 500)) == plot.WIDTH


@given(st.lists(st.floats()))
def test_no_values_break_a_sparkline(values: list[float]) -> None:
    assert len(plot.sparkline(values)) == min(len(values), plot.WIDTH)


def test_outcomes_have_the_three_names_of_the_document() -> None:
    assert set(Outcome) == {"pass", "fail", "not_checkable"}
