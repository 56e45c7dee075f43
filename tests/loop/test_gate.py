"""`--gate sprt`: what a match against latest_good does to a promotion, with matches of milliseconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from td_loop.errors import DataError, HardAbort, Reverted, StorageError, TdLoopError, UsageError
from td_loop.files import sha256
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.loop.preview import preview
from td_loop.loop.verify import faults
from tests.loop.fakes import Behaviour, Flags, Stages, ends, gate, reverts

Config = Callable[..., RunConfig]


def content(run: Path) -> Any:
    return orjson.loads((run / "manifest.json").read_bytes())


def stages_of(stages: Stages) -> list[str]:
    return [stage for stage, _ in stages.calls]


# --- off ---------------------------------------------------------------------------------------------------------


def test_by_default_nobody_speaks_of_a_match(
    config: Config, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = Stages()
    drive(config(), runner=stages)
    assert stages_of(stages) == ["prepare", "fit"] * 2
    assert preview(config(iters=3))[1:] == [
        "iter2: prepare runs: there is nothing to take up",
        "iter2: fit runs: its targets are new",
    ]
    assert "gate" not in capsys.readouterr().out
    for path in (p for p in run.rglob("*") if p.is_file()):
        assert "gate" not in path.name
        assert path.suffix != ".json" or b"gate" not in path.read_bytes(), path


def test_settings_of_a_match_make_no_sense_without_one() -> None:
    with pytest.raises(UsageError, match="--gate-budget is about a match"):
        RunConfig.from_flags({"gate_budget": "5e"})


def test_settings_come_back_from_the_manifest() -> None:
    config = RunConfig.from_flags({"gate": "sprt", "gate_elo": (-5.0, 20.0), "gate_budget": "5e"})
    stored = orjson.loads(orjson.dumps(config.hyperparams()))
    assert stored == config.hyperparams()
    assert RunConfig.from_flags(stored).match == config.match


# --- how a match ends --------------------------------------------------------------------------------------------


def test_a_won_match_promotes(gated: Config, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = Stages()
    drive(gated(iters=2, seed=7, gate_elo=(-1.5, 20.0)), runner=stages)
    assert stages_of(stages) == ["prepare", "fit", "gate"] * 2
    record = content(run)["iters"][1]
    assert list(record)[-1] == "gate"
    folder = run / "iter1"
    assert record["gate"] | {"wall_s": 0} == {
        "config": {
            "elo": [-1.5, 20.0],
            "rounds": 10,
            "budget_s": None,
            "budget_evals": 50,
            "workers": 2,
            "seed": 8,
        },
        "wall_s": 0,
        "exit_code": 0,
        "verdict": "H1",
        "bounds": [-2.94, 2.94],
        "llr": 3.0,
        "rounds": 3,
        "games": 6,
        "games_played": 6,
        "score": 0.75,
        "result_sha256": sha256(folder / "gate.json"),
        "games_sha256": sha256(folder / "gate.games"),
        "message": "H1 accepted: scored 75.0% against iter0/weights.npz in 3 rounds (6 games), "
        "LLR 3.00 (>= 2.94): 20 Elo stronger rather than -1.5",
    }
    assert orjson.loads((folder / "validation.json").read_bytes())["gate"] == record["gate"]
    assert stages.flags("gate", 1) == {
        "candidate": str(folder / "weights.npz"),
        "latest_good": str(run / "iter0" / "weights.npz"),
        "--sprt": "-1.5 20.0",
        "--rounds": "10",
        "--budget-evals": "50",
        "--seed": "8",
        "--workers": "2",
        "--game": "orbit_wars",
        "--store": str(folder / "gate.games"),
        "--out": str(folder / "gate.json"),
    }
    assert content(run)["latest_good"] == "iter1/weights.npz"
    assert "\ngate 1: H1, 75.0% of 3 rounds, LLR 3.00, 0s\n" in capsys.readouterr().out
    assert faults(run) == []


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({}, {"--budget-s": "0.2"}),
        ({"budget_evals": 9}, {"--budget-evals": "9"}),
        ({"budget_evals": 9, "gate_budget": "0.05s"}, {"--budget-s": "0.05"}),
        ({"gate_budget": "400e"}, {"--budget-evals": "400"}),
    ],
)
def test_a_move_may_take_what_a_search_of_prepare_may_if_nothing_else_is_said(
    config: Config, flags: dict[str, Any], wanted: dict[str, str]
) -> None:
    stages = Stages()
    drive(config(iters=1, gate="sprt", **flags), runner=stages)
    given = stages.flags("gate", 0)
    assert {key: value for key, value in given.items() if key.startswith("--budget")} == wanted


LOST = [("H0", "gate failed: H0 accepted: scored"), ("undecided", "gate failed: out of rounds: scored")]


@pytest.mark.parametrize(("verdict", "why"), LOST)
def test_a_match_that_is_not_won_reverts(gated: Config, run: Path, verdict: str, why: str) -> None:
    with pytest.raises(Reverted, match=f"iteration 1 was reverted: {why}"):
        drive(gated(iters=2), runner=Stages({("gate", 1): ends(verdict)}))
    manifest = content(run)
    record = manifest["iters"][1]
    assert (record["status"], record["promoted_to_latest_good"]) == ("reverted", False)
    assert record["gate"]["verdict"] == verdict
    assert manifest["latest_good"] == "iter0/weights.npz"
    assert str((run / "latest_good.npz").readlink()) == "iter0/weights.npz"
    assert faults(run) == []


def test_a_candidate_that_failed_its_checks_plays_no_match(gated: Config, run: Path) -> None:
    stages = Stages({("fit", 0): reverts})
    with pytest.raises(Reverted, match=r"S4\.3 failed"):
        drive(gated(), runner=stages)
    assert stages_of(stages) == ["prepare", "fit"]
    assert "gate" not in content(run)["iters"][0]


def test_a_retry_plays_a_match_of_its_own(gated: Config, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = Stages({("gate", 0): ends("H0")})
    drive(gated(on_fail="retry-then-abort"), runner=stages)
    first, second = (stages.flags("gate", k) for k in (0, 1))
    assert (first["--seed"], second["--seed"]) == ("0", "1000")
    assert Path(second["--store"]) == run / "iter0_retry1" / "gate.games"
    assert Path(second["candidate"]) == run / "iter0_retry1" / "weights.npz"
    (record,) = content(run)["iters"]
    assert (record["status"], record["gate"]["verdict"]) == ("promoted", "H1")
    assert record["previous_attempt"]["gate"]["verdict"] == "H0"
    said = capsys.readouterr().out
    assert "\ngate 0: H0, " in said
    assert "\ngate 0r1: H1, " in said
    assert faults(run) == []


# --- a match that could not be played ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1, HardAbort),
        (2, HardAbort),
        (5, HardAbort),
        (-9, HardAbort),
        (64, UsageError),
        (65, DataError),
        (74, StorageError),
    ],
)
def test_a_match_that_failed_aborts(gated: Config, run: Path, code: int, error: type[TdLoopError]) -> None:
    with pytest.raises(error, match="iteration 0 was aborted: gate ") as e:
        drive(gated(on_fail="retry-then-abort"), runner=Stages({("gate", 0): lambda _: code}))
    assert type(e.value) is error
    (record,) = content(run)["iters"]
    assert (record["status"], record["gate"]["exit_code"]) == ("hard_aborted", code)
    assert record["gate"]["failure"] in str(e.value)
    assert content(run)["latest_good"] == "iter0/V_snap.npz"
    assert faults(run) == []


def without(name: str) -> Behaviour:
    def behave(flags: Flags) -> int:
        code = gate(flags)
        Path(flags[name]).unlink()
        return code

    return behave


def linked(flags: Flags) -> int:
    code = gate(flags)
    Path(flags["--out"]).rename(Path(flags["--out"]).with_suffix(".moved"))
    Path(flags["--out"]).symlink_to("gate.moved")
    return code


def says(text: bytes) -> Behaviour:
    def behave(flags: Flags) -> int:
        code = gate(flags)
        Path(flags["--out"]).write_bytes(text)
        return code

    return behave


LIES: list[tuple[Behaviour, str]] = [
    (lambda _: 0, "gate.json: no such file"),
    (without("--out"), "gate.json: no such file"),
    (without("--store"), "gate.games: no such file"),
    (linked, "is a link to"),
    (says(b"{"), "not valid JSON"),
    (says(b"[]"), "is no result of a sequential test"),
    (says(b'{"sprt": {}, "pair": null}'), "is no result of a sequential test"),
    (ends("H0", code=0), "verdict 'H0', exit code 0"),
    (ends("H1", code=7), "verdict 'H1', exit code 7"),
    (ends("H1", llr=2.0), "differ"),
    (ends("H1", llr=math.nan), "no finite numbers"),
    (ends("H1", bounds=[1, 1]), "no finite numbers"),
    (ends("H1", elo1=99.0), "is of a test between"),
    (ends("H1", rounds=11), "of 10 rounds at most"),
]


@pytest.mark.parametrize(("lie", "why"), LIES)
def test_a_match_without_a_valid_result_aborts(gated: Config, run: Path, lie: Behaviour, why: str) -> None:
    with pytest.raises(HardAbort, match="left no valid result") as e:
        drive(gated(), runner=Stages({("gate", 0): lie}))
    assert why in str(e.value)
    (record,) = content(run)["iters"]
    assert (record["status"], record["promoted_to_latest_good"]) == ("hard_aborted", False)
    assert faults(run) == []
