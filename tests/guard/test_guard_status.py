from __future__ import annotations

import json
from pathlib import Path

import pytest

from td_loop.cli import main
from td_loop.lock import locked
from td_loop.text import WIDTH
from tests.guard.guarded import HEALTHY, Moves, guard

Capfd = pytest.CaptureFixture[str]


def shown(capfd: Capfd, *words: str) -> str:
    """What `td-loop guard WORDS` writes to standard output."""
    capfd.readouterr()
    assert main(["guard", *words]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


@pytest.fixture
def diverged(tmp_path: Path) -> Path:
    """A run that tripped in its first attempt, and ended well in the second."""
    bad: Moves = [*HEALTHY, ["save"], ["diverge", 5], ["wait"]]
    assert guard(tmp_path / "g", bad, [["train", 30], ["save"], ["train", 2, {"odd": "NaN"}]]) == 0
    return tmp_path / "g"


def test_status_fits_a_screen_and_says_where_the_run_stands(diverged: Path, capfd: Capfd) -> None:
    out = shown(capfd, "status", "--dir", str(diverged))
    lines = out.splitlines()
    assert all(len(line) <= WIDTH for line in lines)
    assert len(lines) < 20
    for text in (
        "at work     nobody",
        "closed; attempt 1, 1 retry, learning rate x 0.5",
        "last trip   step 23, ",
        "telemetry   step 42, ",
        "kl 0.01",
        "step 40, attempt 1, 2 B, pending, ",
        "<- active",
        "step 10, attempt 0, 2 B, stable",
        "quarantine  1 ",
    ):
        assert text in out, text


def test_status_for_programs_has_all_of_it(diverged: Path, capfd: Capfd) -> None:
    found = json.loads(shown(capfd, "status", "--json", "--dir", str(diverged)))
    assert found["running"] is None
    assert found["breaker"] | {"since": 0} == {
        "state": "closed",
        "locked": False,
        "retries": 1,
        "learning_rate_multiplier": 0.5,
        "since": 0,
    }
    assert found["attempt"] == 1
    assert found["last_trip"]["step"] == 23
    assert found["telemetry"]["step"] == 42
    assert [(s["step"], s["stable"]) for s in found["snapshots"]] == [(0, True), (10, True), (40, False)]
    assert found["active"] == "step_000000040_a1"
    assert found["quarantine"]["entries"] == 1


def test_a_guard_at_work_is_named_and_not_disturbed(diverged: Path, capfd: Capfd) -> None:
    with locked(diverged / "lock", "") as lock:
        line = lock.sign()
        out = shown(capfd, "status", "--dir", str(diverged))
    assert line.partition(" since")[0] in out


def test_history_tells_every_transition_with_its_reason(diverged: Path, capfd: Capfd) -> None:
    out = shown(capfd, "history", "--dir", str(diverged))
    lines = out.splitlines()
    assert all(len(line) <= WIDTH for line in lines)
    assert len(lines) == 5
    assert lines[1].split()[2:6] == ["0", "23", "trip", "open"]
    assert "kl: " in lines[1]
    assert [line.split()[4] for line in lines[2:]] == ["stopped", "restart", "recovered"]
    found = json.loads(shown(capfd, "history", "--json", "--dir", str(diverged)))
    assert [t["event"] for t in found] == ["trip", "stopped", "restart", "recovered"]
    assert found[0]["evidence"]["findings"][0]["detector"] == "kl"
    assert found[0]["evidence"]["findings"][0]["value"] == 0.9
    assert [r["step"] for r in found[0]["evidence"]["recent"]][-3:] == [21, 22, 23]
    assert found[1]["evidence"]["how"] == "SIGTERM"


def test_a_run_that_never_tripped_has_no_history(tmp_path: Path, capfd: Capfd) -> None:
    assert guard(tmp_path, HEALTHY) == 0
    assert "never left" in shown(capfd, "history", "--dir", str(tmp_path))


@pytest.mark.parametrize("words", [["status"], ["history"], ["reset", "--yes"]], ids=lambda w: w[0])
def test_a_folder_without_a_guard_is_a_data_error(tmp_path: Path, capfd: Capfd, words: list[str]) -> None:
    assert main(["guard", *words, "--dir", str(tmp_path)]) == 65
    assert "no guard has worked here" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_reset_asks_first_and_deletes_nothing(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad: Moves = [*HEALTHY, ["save"], ["diverge", 5], ["wait"]]
    assert guard(tmp_path, bad, flags=["--max-retries", "0"]) == 1
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "lock"}
    words = ["guard", "reset", "--dir", str(tmp_path)]
    monkeypatch.setattr("typer.confirm", lambda *_, **__: (_ for _ in ()).throw(SystemExit(1)))
    assert main(words) == 1
    assert "open, locked" in capfd.readouterr().out
    assert {p: p.read_bytes() for p in before} == before
    assert main([*words, "--yes"]) == 0
    assert "guard run" in capfd.readouterr().out
    assert all(p.read_bytes().startswith(content) for p, content in before.items())
    found = json.loads(shown(capfd, "history", "--json", "--dir", str(tmp_path)))
    assert found[-1]["to"] == "closed"
    assert found[-1]["attempt"] == 1


def test_a_reset_is_refused_while_a_guard_works(diverged: Path, capfd: Capfd) -> None:
    with locked(diverged / "lock", ""):
        assert main(["guard", "reset", "--yes", "--dir", str(diverged)]) == 5
    assert "stop it first" in capfd.readouterr().err


def test_a_postmortem_is_written_and_its_audits_are_told(diverged: Path, capfd: Capfd) -> None:
    config = diverged / "guard.toml"
    config.write_text("[audit]\nclip_norm = 0.5\n")
    out = shown(capfd, "postmortem", "--dir", str(diverged), "--config", str(config))
    lines = out.splitlines()
    assert [line.split("  ")[0].strip() in ("pass", "fail", "not checkable") for line in lines[:5]] == [True] * 5
    assert str(diverged / "postmortem.md") in lines
    page = (diverged / "postmortem.md").read_text()
    assert "kl" in page
    found = json.loads((diverged / "postmortem.json").read_text())
    assert found["trip"]["step"] == 23
    assert found["stable_step"] == 10
    assert found["telemetry"]["attempt"] == 0


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        '{"odd": 1}',
        '{"watch": 3, "telemetry": "x", "position": {}}',
        '{"watch": {"counts": 3}, "telemetry": "x", "position": {}}',
        '{"watch": {}, "telemetry": "x", "position": 3}',
        '{"watch": {}, "telemetry": "x", "position": {}, "values": {"kl": [1]}}',
        '{"watch": {}, "telemetry": "x", "position": {}, "faults": {"kl": "many"}}',
        '{"watch": {}, "telemetry": "x", "position": {}, "time": "noon"}',
    ],
)
def test_a_damaged_state_is_an_error_that_says_what_to_do(tmp_path: Path, capfd: Capfd, damage: str) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "state.json").write_text(damage)
    for command in (["status", "--dir", str(tmp_path)], ["run", "--dir", str(tmp_path), "--", "true"]):
        assert main(["guard", *command]) == 65
        err = capfd.readouterr().err
        assert str(tmp_path / "state.json") in err
        assert "remove it, then run again" in err
