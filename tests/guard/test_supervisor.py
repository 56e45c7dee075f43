"""Guarded runs of a fake trainer, from start to end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from td_loop.cli import main
from td_loop.errors import StorageError
from td_loop.guard import attempt, store
from td_loop.guard.breaker import Event, Transition
from td_loop.guard.breaker_log import BreakerLog, read_log
from td_loop.guard.config import GuardConfig, read_config
from td_loop.guard.console import Console, Faults
from td_loop.guard.run import supervise
from td_loop.guard.supervisor import Locked
from tests.guard.guarded import DIVERGING, HEALTHY, Moves, config, guard, steps, trainer, words

Capfd = pytest.CaptureFixture[str]
BROKEN: Moves = [["train", 10], ["diverge", 10], ["wait"]]


def notes(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def starts(folder: Path) -> list[str]:
    """What the workers said when they started, of all attempts."""
    logs = sorted(folder.glob("worker.a*.log"))
    return [line for log in logs for line in log.read_text().splitlines() if line.startswith("attempt ")]


def events(folder: Path) -> list[str]:
    return [str(t.event) for t in read_log(folder / "breaker.jsonl")]


def test_a_healthy_run_ends_with_the_workers_code_and_a_stable_snapshot(tmp_path: Path, capfd: Capfd) -> None:
    assert guard(tmp_path, HEALTHY) == 0
    out, err = capfd.readouterr()
    assert out == "attempt 0 from 0\n"
    assert err == "guard: the worker ended with 0; stable snapshot of step 10\n"
    assert (tmp_path / "worker.a0.log").read_text() == out
    assert steps(tmp_path) == {"snapshots": [(0, True), (10, True)], "quarantine": []}
    assert (tmp_path / "active").read_text() == (tmp_path / "stable_checkpoint_latest").read_text() == "10"


def test_a_run_that_diverges_is_stopped_rolled_back_and_retried_at_half_the_rate(
    tmp_path: Path, capfd: Capfd
) -> None:
    note = str(tmp_path / "environments")
    second = [["note", note], ["train", 30], ["save"], ["train", 10]]
    assert guard(tmp_path / "g", [["note", note], *DIVERGING], second, flags=["--seed", "7"]) == 0
    first, retry = notes(Path(note))
    assert (first["LEARNING_RATE_MULTIPLIER"], retry["LEARNING_RATE_MULTIPLIER"]) == ("1", "0.5")
    assert (first["TD_GUARD_SEED"], retry["TD_GUARD_SEED"]) == ("7", "8")
    assert (first["TD_GUARD_ATTEMPT"], retry["TD_GUARD_ATTEMPT"]) == ("0", "1")
    out, err = capfd.readouterr()
    assert out == "attempt 0 from 0\nattempt 1 from 10\n"
    lines = err.splitlines()
    assert "tripped at step 23: kl:" in lines[0]
    assert "(SIGTERM): 1 process gone, " in lines[1]
    assert lines[2] == "guard: rolled back to the snapshot of step 10"
    assert lines[3].startswith("guard: retry 1 of 3: learning rate x 0.5, seed 8, on trial for 5")
    assert "trial passed, 5 healthy steps in a row" in lines[4]
    assert steps(tmp_path / "g")["snapshots"] == [(0, True), (10, True), (40, True)]
    assert events(tmp_path / "g") == ["trip", "stopped", "restart", "recovered"]


def test_what_was_saved_while_it_diverged_is_in_quarantine(tmp_path: Path) -> None:
    bad: Moves = [*HEALTHY, ["save"], ["diverge", 2], ["save"], ["diverge", 10], ["save"], ["wait"]]
    assert guard(tmp_path, bad, HEALTHY) == 0
    assert steps(tmp_path)["quarantine"] == [(20, False), (22, False)]
    unannounced = {p.name for p in (tmp_path / "quarantine").glob("staging_*")}
    assert unannounced <= {"staging_model_32.txt"}  # it may have been stopped before
    assert (tmp_path / "active").read_text() == "20"  # saved again by the second attempt


def test_the_breaker_locks_when_no_retry_is_left_and_a_reset_lets_it_run_again(
    tmp_path: Path, capfd: Capfd
) -> None:
    flags = ["--max-retries", "2"]
    again: Moves = [["train", 4], ["diverge", 5], ["wait"]]
    assert guard(tmp_path, DIVERGING, again, flags=flags) == 1
    assert "the breaker is locked after 2 retries" in capfd.readouterr().err
    assert starts(tmp_path) == ["attempt 0 from 0", "attempt 1 from 10", "attempt 2 from 10"]
    assert guard(tmp_path, DIVERGING, again, flags=flags) == 1
    assert "guard reset" in capfd.readouterr().err
    assert len(starts(tmp_path)) == 3
    assert main(["guard", "reset", "--dir", str(tmp_path), "--yes"]) == 0
    note = str(tmp_path / "environments")
    assert guard(tmp_path, [["note", note], *HEALTHY], flags=flags) == 0
    assert starts(tmp_path)[3:] == ["attempt 3 from 10"]
    assert notes(Path(note))[0]["LEARNING_RATE_MULTIPLIER"] == "1"


def test_without_retries_the_first_trip_locks(tmp_path: Path) -> None:
    assert guard(tmp_path, DIVERGING, flags=["--max-retries", "0"]) == 1
    assert starts(tmp_path) == ["attempt 0 from 0"]
    assert (tmp_path / "active").read_text() == "10"


def test_without_a_stable_snapshot_the_worker_stays_stopped(tmp_path: Path, capfd: Capfd) -> None:
    for _ in range(2):
        assert guard(tmp_path, BROKEN) == 65
        assert "there is no stable snapshot to roll back to" in capfd.readouterr().err
        assert starts(tmp_path) == ["attempt 0 from 0"]
    assert main(["guard", "reset", "--dir", str(tmp_path), "--yes"]) == 0
    assert guard(tmp_path, HEALTHY) == 0
    assert starts(tmp_path)[1:] == ["attempt 1 from 0"]


@pytest.mark.parametrize(("move", "code"), [(["exit", 3], 3), (["die", 9], 137), (["exit", 0], 0)])
def test_the_exit_code_is_the_workers_own(tmp_path: Path, move: list[object], code: int) -> None:
    assert guard(tmp_path, [*HEALTHY, move]) == code
    assert events(tmp_path) == []


def test_a_crash_is_retried_where_that_is_asked_for(tmp_path: Path, capfd: Capfd) -> None:
    assert guard(tmp_path, [*HEALTHY, ["exit", 3]], [["train", 20]], flags=["--on-crash", "retry"]) == 0
    assert "crash: the worker ended with 3" in capfd.readouterr().err
    assert starts(tmp_path) == ["attempt 0 from 0", "attempt 1 from 10"]


def test_a_crash_loop_without_progress_is_recognised(tmp_path: Path, capfd: Capfd) -> None:
    crash: Moves = [["train", 3], ["exit", 3]]
    assert guard(tmp_path, [*HEALTHY, ["exit", 3]], crash, flags=["--on-crash", "retry"]) == 3
    assert "a crash loop" in capfd.readouterr().err
    assert len(starts(tmp_path)) == 2


def test_crashes_with_progress_between_them_use_up_the_retries(tmp_path: Path) -> None:
    further: Moves = [["train", 30], ["save"], ["train", 10], ["exit", 3]]
    assert (
        guard(tmp_path, HEALTHY[:3] + further, further, flags=["--on-crash", "retry", "--max-retries", "2"]) == 1
    )
    assert len(starts(tmp_path)) == 3


def test_a_crash_before_anything_is_stable_ends_with_its_code(tmp_path: Path, capfd: Capfd) -> None:
    assert guard(tmp_path, [["train", 3], ["exit", 3]], flags=["--on-crash", "retry"]) == 3
    assert "no stable snapshot to go back to" in capfd.readouterr().err


@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_that_ends_diverged_has_tripped(tmp_path: Path, code: int) -> None:
    assert guard(tmp_path, [*HEALTHY, ["diverge", 3], ["exit", code]], HEALTHY) == 0
    assert events(tmp_path)[:3] == ["trip", "stopped", "restart"]


def test_a_trip_in_the_trial_is_the_next_retry(tmp_path: Path) -> None:
    note = str(tmp_path / "environments")
    quick: Moves = [["note", note], ["train", 3], ["diverge", 5], ["wait"]]
    last: Moves = [["note", note], *HEALTHY]
    assert guard(tmp_path, DIVERGING, quick, quick, last) == 0
    assert [n["LEARNING_RATE_MULTIPLIER"] for n in notes(Path(note))] == ["0.5", "0.25", "0.125"]
    assert "recovered" in events(tmp_path)


def test_retries_add_up_unless_they_are_forgiven(tmp_path: Path) -> None:
    note = str(tmp_path / "environments")
    relapse: Moves = [["note", note], ["train", 40], ["save"], ["train", 10], ["diverge", 5], ["wait"]]
    plans = [DIVERGING, relapse, [["note", note], *HEALTHY]]
    assert guard(tmp_path / "a", *plans) == 0
    forgiving = config(tmp_path, "[guard]\nforgive_after = 30\n")
    assert guard(tmp_path / "b", *plans, flags=["--config", forgiving]) == 0
    assert [n["LEARNING_RATE_MULTIPLIER"] for n in notes(Path(note))] == ["0.5", "0.25", "0.5", "0.5"]


def test_a_worker_that_ignores_sigterm_is_killed(tmp_path: Path, capfd: Capfd) -> None:
    stubborn: Moves = [["ignore", signal.SIGTERM], *DIVERGING]
    assert guard(tmp_path, stubborn, HEALTHY, flags=["--grace", "0.1"]) == 0
    assert "(SIGKILL): 1 process gone" in capfd.readouterr().err


def test_what_is_wrong_in_the_telemetry_is_said_and_survived(tmp_path: Path, capfd: Capfd) -> None:
    plan: Moves = [
        *HEALTHY,
        ["raw", "no json\n"],
        ["raw", '{"step": 21, "kl": 9, "attempt": 4}\n' * 5],
        ["raw", '{"step": 1e300, "kl": 0.01}\n{"step": 20, "checkpoint": "a\\u0000b"}\n'],
        ["jump", 2],
        ["train", 3],
        ["raw", '{"step": 6, "kl": 9'],
    ]
    assert guard(tmp_path, plan) == 0
    err = capfd.readouterr().err
    assert "is no JSON" in err
    assert "a record of attempt 4 came in attempt 0" in err
    assert "steps went back from 20 to 3" in err
    assert err.count("came in attempt 0") == 1  # the others are counted
    found = json.loads((tmp_path / "state.json").read_text())
    assert found["faults"] == {"telemetry": 2, "snapshot": 1, "foreign": 5, "backwards": 1}


def test_a_name_that_is_used_again_in_staging_is_told(tmp_path: Path, capfd: Capfd) -> None:
    assert guard(tmp_path, [["train", 9], ["save_twice"], ["train", 10]]) == 0
    assert "model.txt of step 9 was saved once more before it was taken in" in capfd.readouterr().err
    assert steps(tmp_path)["snapshots"] == [(10, True)]


def test_silence_is_warned_of_or_trips(tmp_path: Path, capfd: Capfd) -> None:
    text = "[detectors.stalled]\nafter_s = 0.2\nfirst_after_s = 60\n"
    go = str(tmp_path / "go")
    silent: Moves = [*HEALTHY, ["until", go], ["train", 1]]
    with pytest.MonkeyPatch.context() as patch:
        real = Faults.add

        def add(self: Faults, kind: str, said: str) -> None:
            real(self, kind, said)
            Path(go).touch()

        patch.setattr(Faults, "add", add)
        assert guard(tmp_path / "warned", silent, flags=["--config", config(tmp_path, text)]) == 0
    assert "no record for" in (err := capfd.readouterr().err)
    assert "the worker is left running" in err
    stuck: Moves = [*HEALTHY, ["wait"]]
    flags = ["--config", config(tmp_path, text), "--on-stall", "trip"]
    assert guard(tmp_path / "tripped", stuck, HEALTHY, flags=flags) == 0
    assert "tripped at step 20: stalled: no record for" in capfd.readouterr().err


def test_a_worker_that_never_says_anything_is_explained(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "HINT_S", 0.05)
    go = tmp_path / "go"
    monkeypatch.setattr(attempt, "no_telemetry", lambda *args: go.touch() or REAL_HINT(*args))
    assert guard(tmp_path / "g", [["until", str(go)]]) == 0
    err = capfd.readouterr().err
    assert err.count("no telemetry so far") == 1  # though it ended without any, too
    assert "g/telemetry.a0.jsonl; let the training call td_loop.guard.Telemetry()" in err


REAL_HINT = attempt.no_telemetry


def test_a_short_run_that_never_says_anything_is_explained_too(tmp_path: Path, capfd: Capfd) -> None:
    assert guard(tmp_path / "silent", []) == 0
    assert "no telemetry so far: no record was written to" in capfd.readouterr().err
    assert guard(tmp_path / "garbled", [["raw", "epoch 1\n"]]) == 0
    assert guard(tmp_path / "crashed", [["exit", 3]]) == 3
    assert guard(tmp_path / "heard", [["train", 1]]) == 0
    assert "no telemetry" not in capfd.readouterr().err


def test_what_a_worker_left_running_is_ended_and_told(tmp_path: Path, capfd: Capfd) -> None:
    there = str(tmp_path / "there")
    assert guard(tmp_path / "g", [["train", 1], ["stray", there], ["until", there]]) == 0
    assert "guard: ended 1 process that the worker left behind (SIGTERM)" in capfd.readouterr().err


def test_a_checkpoint_that_cannot_be_kept_costs_no_training(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageError("cannot write x: No space left on device; free space, then run again")

    monkeypatch.setattr(store, "atomic_folder", full)
    assert guard(tmp_path, HEALTHY) == 0
    err = capfd.readouterr().err
    assert "warning: the checkpoint of step 0 is not kept: cannot write x: No space left" in err
    assert (tmp_path / "quarantine").exists()
    assert {p.name for p in (tmp_path / "staging").iterdir()} == {"model_0.txt", "model_10.txt"}


def test_a_rollback_that_the_disk_refuses_keeps_the_worker_stopped_and_is_completed_later(
    tmp_path: Path, capfd: Capfd
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise StorageError("cannot write x: Read-only file system; see to the disk, then run again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.Store, "rollback", refused)
        assert guard(tmp_path, DIVERGING, HEALTHY) == 74
    assert "Read-only file system" in capfd.readouterr().err
    assert starts(tmp_path) == ["attempt 0 from 0"]
    assert guard(tmp_path, DIVERGING, HEALTHY) == 0
    assert starts(tmp_path)[1:] == ["attempt 1 from 10"]


def test_a_trip_that_cannot_be_recorded_still_stops_and_leads_back(tmp_path: Path) -> None:
    def refused(*_: object, **__: object) -> None:
        raise StorageError("cannot write breaker.jsonl: No space left on device; free space, then run again")

    bad: Moves = [*HEALTHY, ["save"], ["diverge", 9], ["wait"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BreakerLog, "append", refused)
        assert guard(tmp_path, bad) == 74
    assert (tmp_path / "active").read_text() == "10"


def test_a_trial_that_cannot_be_recorded_as_passed_trains_on(tmp_path: Path, capfd: Capfd) -> None:
    real = BreakerLog.append
    refusals = [StorageError("cannot write breaker.jsonl: No space left on device; then run again")] * 3

    def sometimes(self: BreakerLog, transition: Transition) -> None:
        if transition.event is Event.RECOVERED and refusals:
            raise refusals.pop()
        real(self, transition)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BreakerLog, "append", sometimes)
        assert guard(tmp_path, DIVERGING, HEALTHY) == 0
    assert "warning: recovered: cannot write" in capfd.readouterr().err
    assert events(tmp_path)[-1] == "recovered"


def test_a_lock_that_was_cut_short_is_completed_by_the_next(tmp_path: Path) -> None:
    bad: Moves = [*HEALTHY, ["save"], ["diverge", 9], ["wait"]]
    real = BreakerLog.append

    def dies(self: BreakerLog, transition: Transition) -> None:
        if transition.event is Event.STOPPED:
            raise KeyboardInterrupt
        real(self, transition)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BreakerLog, "append", dies)
        with pytest.raises(KeyboardInterrupt):
            supervise(tmp_path, locking(), trainer(bad), Console())
    assert (tmp_path / "active").read_text() == "20"
    with pytest.raises(Locked):
        supervise(tmp_path, locking(), trainer(bad), Console())
    assert (tmp_path / "active").read_text() == "10"
    assert events(tmp_path) == ["trip", "stopped"]
    assert len(starts(tmp_path)) == 1


def locking() -> GuardConfig:
    return read_config(None, {"breaker": {"max_retries": 0}, "snapshots": {"promote_after": 5}})


PURGE = """
import json, os, sys
with open(sys.argv[1], "a") as f:
    f.write(json.dumps([sys.argv[2:], {k: v for k, v in os.environ.items() if k.startswith("TD_GUARD_")}]) + "\\n")
sys.exit(os.path.exists(sys.argv[1] + ".fail"))
"""


def test_the_purge_command_is_told_what_is_polluted_and_has_to_succeed(tmp_path: Path, capfd: Capfd) -> None:
    told = tmp_path / "told"
    (tmp_path / "purge.py").write_text(PURGE)
    command = [sys.executable, "-I", "-S", str(tmp_path / "purge.py"), str(told), "{from_step}-{to_step}"]
    flags = ["--config", config(tmp_path, f"[purge]\ncommand = {json.dumps(command)}\n")]
    fail = tmp_path / "told.fail"
    fail.touch()
    assert guard(tmp_path / "g", DIVERGING, HEALTHY, flags=flags) == 1
    assert "the purge command ended with 1" in capfd.readouterr().err
    assert events(tmp_path / "g") == ["trip", "stopped"]
    fail.unlink()
    assert guard(tmp_path / "g", DIVERGING, HEALTHY, flags=flags) == 0
    (args, env), again = notes(told)
    assert args == again[0] == ["11-30"]
    assert (env["TD_GUARD_FROM_STEP"], env["TD_GUARD_TO_STEP"]) == ("11", "30")
    assert float(env["TD_GUARD_FROM_TIME"]) < float(env["TD_GUARD_TO_TIME"])
    assert starts(tmp_path / "g") == ["attempt 0 from 0", "attempt 1 from 10"]


@pytest.mark.parametrize(
    ("command", "timeout", "said"),
    [(["./nothing"], 9, "cannot start './nothing'"), (["sleep", "600"], 0.1, "took more than 0.1 s")],
)
def test_a_purge_command_that_does_not_work_is_told(
    tmp_path: Path, capfd: Capfd, command: list[str], timeout: float, said: str
) -> None:
    text = f"[purge]\ncommand = {json.dumps(command)}\ntimeout_s = {timeout}\n"
    assert guard(tmp_path / "g", DIVERGING, flags=["--config", config(tmp_path, text)]) == 1
    assert said in capfd.readouterr().err


def test_an_outer_loop_is_inherited_and_an_outer_guard_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TD_LOOP_RUN", "kept")
    monkeypatch.setenv("TD_GUARD_CHECKPOINT_EVERY", "999")
    monkeypatch.setenv("LEARNING_RATE_MULTIPLIER", "0.001")
    note = tmp_path / "environments"
    assert guard(tmp_path / "g", [["note", str(note)]]) == 0
    (found,) = notes(note)
    assert found["TD_LOOP_RUN"] == "kept"
    assert "TD_GUARD_CHECKPOINT_EVERY" not in found
    assert found["LEARNING_RATE_MULTIPLIER"] == "1"
    flags = ["--checkpoint-every", "50"]
    assert guard(tmp_path / "h", [["note", str(note)]], flags=flags) == 0
    assert notes(note)[1]["TD_GUARD_CHECKPOINT_EVERY"] == "50"


def test_a_command_is_asked_for_and_must_exist(tmp_path: Path, capfd: Capfd) -> None:
    assert main(["guard", "run", "--dir", str(tmp_path)]) == 64
    assert "give it behind --" in capfd.readouterr().err
    assert main(["guard", "run", "--dir", str(tmp_path), "--", "./nothing"]) == 64
    assert "cannot start './nothing'" in capfd.readouterr().err


def test_settings_are_printed_as_a_file_that_makes_the_same(tmp_path: Path, capfd: Capfd) -> None:
    assert main(["guard", "run", "--max-retries", "9", "--print-config"]) == 0
    out = capfd.readouterr().out
    assert "[breaker]\nmax_retries = 9\n" in out
    assert main(["guard", "run", "--config", config(tmp_path, out), "--print-config"]) == 0
    assert capfd.readouterr().out == out
    assert words(tmp_path)[0] == "guard"
