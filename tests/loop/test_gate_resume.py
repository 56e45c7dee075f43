"""`--gate sprt`: matches that are stopped, killed and gone on with, and what a plan says of one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from td_loop.errors import Interrupted, Reverted
from td_loop.journal import read_records
from td_loop.loop.config import RunConfig
from td_loop.loop.cost import GAME_MOVES, GATE_START_S, Match, match_s
from td_loop.loop.driver import drive
from td_loop.loop.forecast import predict
from td_loop.loop.manifest import Manifest
from td_loop.loop.preview import preview
from td_loop.loop.verify import faults
from tests.loop.fakes import Flags, Stages, add_games, ends, fit, stopped_after
from tests.loop.trouble import killed_after

Config = Callable[..., RunConfig]


def content(run: Path) -> Any:
    return orjson.loads((run / "manifest.json").read_bytes())


def stages_of(stages: Stages) -> list[str]:
    return [stage for stage, _ in stages.calls]


# --- stopped, killed, resumed ------------------------------------------------------------------------------------


def some_games(flags: Flags) -> int:
    """A match on its way."""
    add_games(flags, 2)
    return 0


@pytest.mark.parametrize("i", [0, 1])
def test_a_match_that_was_stopped_goes_on_from_its_games(
    gated: Config, run: Path, i: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Interrupted):
        drive(gated(iters=2), runner=Stages({("gate", i): stopped_after(some_games, signal.SIGTERM)}))
    record = content(run)["iters"][i]
    assert (record["status"], record["gate"]["exit_code"]) == ("interrupted", None)
    assert record["gate"]["config"]["rounds"] == 10
    assert faults(run) == []
    stages = Stages()
    drive(gated(iters=2), runner=stages)
    assert stages_of(stages)[0] == "gate"
    assert content(run)["iters"][i]["gate"]["games_played"] == 2
    assert f"iter{i}: gate goes on from the games of trimmed/iter{i}" in capsys.readouterr().out
    assert faults(run) == []


def test_a_match_that_ran_out_of_rounds_goes_on_with_more_of_them(gated: Config, run: Path) -> None:
    with pytest.raises(Reverted, match="more --gate-rounds go on from there"):
        drive(gated(gate_rounds=3), runner=Stages({("gate", 0): ends("undecided")}))
    stages = Stages({("gate", 0): ends("H1", rounds=5)})
    drive(gated(gate_rounds=5), runner=stages)
    assert stages_of(stages) == ["gate"]
    (record,) = content(run)["iters"]
    assert (record["gate"]["games"], record["gate"]["games_played"]) == (10, 4)
    assert len(list(read_records(run / "iter0" / "gate.games"))) == 11


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gate_budget": "9e"}, "budget_evals was 50 and is 9"),
        ({"seed": 1}, None),  # other rows, another candidate
        ({"gate_elo": (0.0, 5.0)}, ""),
        ({"workers": 1}, ""),
    ],
)
def test_games_of_another_match_are_left_alone(
    gated: Config, run: Path, change: dict[str, Any], why: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Reverted):
        drive(gated(), runner=Stages({("gate", 0): ends("H0")}))
    drive(gated(**change), runner=Stages())
    said = capsys.readouterr().out
    (record,) = content(run)["iters"]
    assert record["gate"]["games_played"] == (0 if why == "" else 6)
    if why:
        assert f"iter0: gate runs again: {why} (trimmed/iter0)" in said
    assert (run / "trimmed" / "iter0" / "gate.games").exists() is (why != "")


def test_without_the_gate_a_lost_match_does_not_count(gated: Config, config: Config, run: Path) -> None:
    with pytest.raises(Reverted):
        drive(gated(), runner=Stages({("gate", 0): ends("H0")}))
    stages = Stages()
    drive(config(iters=1, budget_evals=50), runner=stages)
    assert stages.calls == []  # all is taken back
    manifest = content(run)
    assert manifest["iters"][0]["status"] == "promoted"
    assert [("gate" in h["hyperparams"]) for h in manifest["hyperparams_history"]] == [True, False]
    assert faults(run) == []


def test_a_kill_at_any_change_on_disk_loses_no_game_and_promotes_the_same(gated: Config, tmp_path: Path) -> None:
    drive(gated(runs_dir=tmp_path / "whole"), runner=Stages())
    (whole,) = content(tmp_path / "whole" / "td_loop_t")["iters"]
    moment, killed = 0, True
    while killed:
        runs = tmp_path / f"{moment}"
        these = gated(runs_dir=runs)
        killed = killed_after(moment, lambda these=these: drive(these, runner=Stages()))
        stored = sum(len(list(read_records(p))) - 1 for p in runs.rglob("gate.games"))
        stages = Stages()
        drive(these, runner=stages)
        (record,) = content(runs / "td_loop_t")["iters"]
        assert (record["status"], record["weights_sha256"]) == ("promoted", whole["weights_sha256"])
        if "gate" in stages_of(stages):
            assert record["gate"]["games_played"] == 6 - stored
        assert faults(runs / "td_loop_t") == []
        moment += 1
    assert moment > 20


# --- the plan ----------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_what_becomes_of_the_match(gated: Config, run: Path) -> None:
    assert preview(gated())[-1] == "iter0: gate runs: its candidate is new"
    with pytest.raises(Interrupted):
        drive(gated(), runner=Stages({("fit", 0): stopped_after(fit)}))
    assert preview(gated())[-1] == "iter0: gate runs: there is nothing to take up"
    with pytest.raises(Interrupted):
        drive(gated(), runner=Stages({("gate", 0): stopped_after(some_games)}))
    assert preview(gated())[-1] == "iter0: gate goes on from the games of iter0"
    told = preview(gated(gate_budget="9e"))[-1]
    assert told == "iter0: gate runs again: budget_evals was 50 and is 9 (iter0)"
    assert preview(gated(lr_peak=0.01))[-1] == "iter0: gate runs: its candidate is new"


def test_the_plan_tells_of_the_match_and_its_time(gated: Config) -> None:
    said = preview(gated(gate_rounds=1000))[0]
    assert "\n  gate        0 or 50 Elo, 1000 rounds at most, 50 evaluations a move\n" in said
    assert ", gate " in said
    assert max(map(len, said.splitlines()[1:])) <= 80


def test_the_time_of_a_match_is_forecast_from_those_of_the_run(gated: Config) -> None:
    config, plain = gated(gate_rounds=500), gated(gate_rounds=500).hyperparams()
    new = Manifest.new("t", "0", plain)
    longest = predict(new, config).gate_s
    assert longest == Match(1000, None, 50, 2).seconds
    record = drive(config, runner=Stages()).iters[0]
    assert record.gate is not None
    # Settled after 100 games, 50 of which were played at one go, in twice the time that the constants say.
    part = Match(50, None, 50, 2)
    measured = replace(record, gate=record.gate | {"games": 100, "games_played": 50, "wall_s": 2 * part.seconds})
    assert predict(new.with_record(measured), config).gate_s == pytest.approx(2 * Match(100, None, 50, 2).seconds)
    nothing = replace(record, gate=record.gate | {"games_played": 0, "wall_s": 9.0})
    assert predict(new.with_record(nothing), config).gate_s == longest


def test_a_match_takes_longer_with_more_games_and_budget_and_less_with_more_workers() -> None:
    match = Match(100, 0.01, None, 2)
    assert match.seconds - GATE_START_S > 100 * GAME_MOVES * 0.005 / 2
    assert replace(match, games=200).seconds > match.seconds < replace(match, budget_s=0.1).seconds
    assert replace(match, workers=4).seconds < match.seconds
    assert match_s(match, [(match, 10.0, 300)]) == pytest.approx(10.0)  # no more games than there may be
