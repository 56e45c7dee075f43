"""The postmortem of a rollback: each question finds what it asks for, and admits what it cannot know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.cli import main
from td_loop.deploy.canary import store
from td_loop.deploy.canary.controller import Controller
from td_loop.deploy.canary.machine import Event, Release, Stage
from td_loop.deploy.canary.observation import Counts, Observation
from td_loop.deploy.observe.engine import Engine
from td_loop.deploy.postmortem.artefact import Examined, examine_artefact
from td_loop.deploy.postmortem.case import Case, read_case
from td_loop.deploy.postmortem.questions import Answer, Outcome, answers
from td_loop.deploy.postmortem.write import DATA, PAGE, after_rollback, write_postmortem
from td_loop.errors import DataError
from td_loop.policy.artefact import Artefact
from tests.deploy import bad_artefacts as bad
from tests.deploy.canary_world import BAD, Policy, bench
from tests.deploy.toy_policy import write_good

FINE = {"cpu_s": 20.0, "voluntary": 9000.0, "involuntary": 400.0, "run_queue_s": 1.0, "throttled_s": 0.0}
NOW = Engine(t=0.0, cpu_s=1.0, voluntary=1, involuntary=1)


def counts(requests: float, **others: Any) -> Counts:
    """Of a healthy subset, where not told otherwise: half of the requests are rewarded, with 1 each."""
    usual: dict[str, Any] = {
        "fallbacks": {"timeout": 0.0, "output": 0.0},
        "errors": 0.0,
        "episodes": requests / 10,
        "rewards": requests / 2,
        "positive": requests / 2,
        "negative": 0.0,
        "squares": requests / 2,
        "seconds": ((0.005, requests), (float("inf"), requests)),
        "entropy": requests,
        "entropies": requests,
        "replayed": requests / 5,
        "drift": {"seats.land": 0.02, "seats.turn": 0.05},
    }
    return Counts(requests, **{**usual, **others})


def observed(time: float, requests: float, canary: Mapping[str, Any], engine: Mapping[str, float]) -> Observation:
    return Observation(time, 0.0, counts(10 * requests), counts(requests, **canary), ("a",), engine)


def roll_back(
    folder: Path,
    artefact: Artefact,
    canary: Mapping[str, Any] | None = None,
    engine: Mapping[str, float] = FINE,
    number: int = 1,
) -> None:
    """The audit log of a release that went live at t = 100 and was rolled back at t = 400, after 1000 requests."""
    release = Release(number, artefact.sha256, str(artefact.path))
    zero = dict.fromkeys(engine, 5.0)
    start = observed(100.0, 0.0, {}, zero).as_json()
    end = observed(400.0, 1000.0, canary or {}, {k: x + 5.0 for k, x in engine.items()}).as_json()
    findings = [{"trigger": "reward", "sentence": "the mean reward is 1.0, 40 % below 1.7", "figures": {}}]
    for event, before, after, evidence in (
        (Event.BEGIN, Stage.VERIFIED, Stage.VERIFIED, {}),
        (Event.ADVANCE, Stage.VERIFIED, Stage.SHADOW, {"observation": None, "weight": 0.0}),
        (Event.ADVANCE, Stage.SHADOW, Stage.CANARY, {"observation": start, "weight": 0.0}),
        (
            Event.ROLL_BACK,
            Stage.CANARY,
            Stage.ROLLING_BACK,
            {"triggers": ["reward"], "findings": findings, "observation": end, "weight": 5.0},
        ),
    ):
        seq = len(store.read_audit(folder)) + 1
        line = store.Line(
            seq, 1e9 + seq, event, before, replace(release, stage=after), "the reward fell", evidence
        )
        store.append_audit(folder, line)


def asked(folder: Path) -> dict[str, Answer]:
    case = read_case(folder)
    examined = examine_artefact(Path(case.release.path), case.release.sha256)
    return {a.name: a for a in answers(case, examined, NOW)}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return write_good(tmp_path_factory.mktemp("artefact") / "policy.onnx")


def test_of_a_healthy_canary_every_question_passes(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, good)
    found = asked(tmp_path)
    assert {a.name: a.outcome for a in found.values()} == dict.fromkeys(
        ("data_shift", "exploration_noise", "tensor_shape", "hardware"), Outcome.PASS
    )
    assert not any(a.remedy for a in found.values())


def test_counters_are_those_since_the_canary_had_traffic(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, good)
    case = read_case(tmp_path)
    assert case.canary is not None
    assert (case.seconds, case.canary.requests, case.canary.positive) == (300.0, 1000.0, 500.0)
    assert case.engine == FINE
    assert (case.stage, case.weight, case.triggers) == ("canary", 5.0, ("reward",))
    assert case.findings == ("the mean reward is 1.0, 40 % below 1.7",)


def test_a_shift_of_live_inputs_names_its_features(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, good, {"drift": {"seats.land": 0.9, "seats.turn": 0.1, "seats.own": 0.3}})
    found = asked(tmp_path)["data_shift"]
    assert found.outcome is Outcome.FAIL
    assert "2 of 3 features have shifted, seats.land the most (PSI 0.90)" in found.sentence
    assert "none of them in the stable policy's traffic" in found.sentence
    assert found.figures["canary"]["seats.own"] == 0.3


@pytest.mark.parametrize("canary", [{"drift": {}}, {"requests": 5.0}])
def test_drift_that_was_not_observed_is_no_pass(good: Artefact, canary: dict[str, Any]) -> None:
    case = Case(
        Release(1, "", ""), 0, "canary", 5, "", (), (), 1, counts(9), replace(counts(1000), **canary), {}, ""
    )
    assert answers(case, Examined("gone"), NOW)[0].outcome is Outcome.NOT_CHECKABLE


def test_noise_in_the_graph_is_found_without_traffic(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, bad.noisy(good, tmp_path / "noisy.onnx"))
    found = asked(tmp_path)
    assert found["exploration_noise"].outcome is Outcome.FAIL
    assert "RandomNormalLike" in found["exploration_noise"].sentence
    assert "differ" in found["exploration_noise"].sentence
    assert found["tensor_shape"].outcome is Outcome.NOT_CHECKABLE  # two answers differ whatever the padding is


def test_noise_in_the_traffic_is_found_without_the_artefact(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, replace(good, path=tmp_path / "gone.onnx"), {"differing": 17.0})
    found = asked(tmp_path)
    assert found["exploration_noise"].outcome is Outcome.FAIL
    assert "17 of 200 replayed states" in found["exploration_noise"].sentence
    assert found["tensor_shape"].outcome is Outcome.NOT_CHECKABLE
    assert "no such file" in found["tensor_shape"].sentence


def test_an_artefact_that_was_replaced_is_not_examined_in_its_place(good: Artefact, tmp_path: Path) -> None:
    other = write_good(tmp_path / "policy.onnx", seed=1)
    roll_back(tmp_path, replace(other, sha256=good.sha256))
    assert "another file by now" in asked(tmp_path)["tensor_shape"].sentence


def test_a_padding_bug_fails_the_question_of_shapes(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, bad.padding_bug(good, tmp_path / "padded.onnx"))
    found = asked(tmp_path)["tensor_shape"]
    assert found.outcome is Outcome.FAIL
    assert found.sentence.startswith("padding: ")


def test_nan_for_rare_inputs_is_traced_to_its_column(good: Artefact, tmp_path: Path) -> None:
    artefact = bad.nan_when(good, tmp_path / "nan.onnx", bad.When("seats", "troops", 6.5))
    roll_back(tmp_path, artefact, {"fallbacks": {"timeout": 0.0, "output": 40.0}})
    examined = examine_artefact(artefact.path, artefact.sha256)
    assert [name for name, _ in examined.beyond] == ["seats.troops"]
    assert examined.beyond[0][1] > 6.5
    found = asked(tmp_path)["tensor_shape"]
    assert "40 of 1000 live outputs were invalid" in found.sentence
    assert "seats.troops" in found.remedy


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        ({"throttled_s": 30.0}, "throttled 10.0% of the time"),
        ({"run_queue_s": 15.0}, "waited for a core 43% of the time"),
        ({"involuntary": 220_000.0}, "20.0 involuntary context switches a request"),
    ],
)
def test_a_machine_that_is_short_of_cores_is_to_blame(
    good: Artefact, tmp_path: Path, engine: dict[str, float], word: str
) -> None:
    roll_back(tmp_path, good, engine={**FINE, **engine})
    found = asked(tmp_path)["hardware"]
    assert found.outcome is Outcome.FAIL
    assert word in found.sentence


def test_of_servers_that_tell_nothing_of_their_engine_nothing_is_known(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, good, engine={})
    assert asked(tmp_path)["hardware"].outcome is Outcome.NOT_CHECKABLE


def test_a_rollback_before_anything_was_observed_can_be_examined(good: Artefact, tmp_path: Path) -> None:
    release = Release(1, good.sha256, str(good.path), stage=Stage.ROLLING_BACK)
    line = store.Line(1, 1e9, Event.ROLL_BACK, Stage.SHADOW, release, "aborted", {"triggers": ["abort"]})
    store.append_audit(tmp_path, line)
    case = read_case(tmp_path)
    assert "nothing had been observed" in case.note
    outcomes = {a.name: a.outcome for a in write_postmortem(tmp_path).answers}
    assert outcomes == {
        "data_shift": Outcome.NOT_CHECKABLE,
        "exploration_noise": Outcome.PASS,
        "tensor_shape": Outcome.PASS,
        "hardware": Outcome.NOT_CHECKABLE,
    }


def test_counters_that_began_anew_are_taken_as_they_are_and_that_is_said(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, good)
    lines = store.read_audit(tmp_path)
    start = dict(lines[2].evidence["observation"])
    start["stable"] = {**start["stable"], "requests": 1e9}
    (tmp_path / store.AUDIT).unlink()
    for line in (*lines[:2], replace(lines[2], evidence={"observation": start}), lines[3]):
        store.append_audit(tmp_path, line)
    case = read_case(tmp_path)
    assert "a server was restarted" in case.note
    assert case.canary is not None
    assert case.canary.requests == 1000


def test_the_report_is_a_page_and_json(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, good, {"drift": {"seats.land": 0.9}})
    written = write_postmortem(tmp_path, out=tmp_path / "report")
    page = (tmp_path / "report" / PAGE).read_text()
    assert [a.name for a in written.failed] == ["data_shift"]
    assert "# Postmortem of release 1" in page
    assert good.sha256[:12] in page
    assert "| seats.land | 0.02 | 0.9 | shifted |" in page
    assert "| requests | 10000 | 1000 |" in page
    data = json.loads((tmp_path / "report" / DATA).read_bytes())
    assert [q["outcome"] for q in data["questions"]] == ["fail", "pass", "pass", "pass"]
    assert data["engine"] == FINE
    assert data["canary"]["requests"] == 1000
    assert data["canary"]["seconds"][-1][0] == "Infinity"


def test_the_newest_rollback_is_examined_unless_another_is_named(good: Artefact, tmp_path: Path) -> None:
    roll_back(tmp_path, good, number=1)
    roll_back(tmp_path, good, {"differing": 3.0}, number=2)
    assert read_case(tmp_path).release.number == 2
    assert read_case(tmp_path, 1).canary == replace(read_case(tmp_path).canary, differing=0.0)  # type: ignore[type-var]
    with pytest.raises(DataError, match="release 3 was rolled back"):
        read_case(tmp_path, 3)


def test_the_controller_leaves_a_report_after_a_rollback(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy(differing=0.3))
    begun = b.begin(BAD)
    controller = Controller(replace(b.world(), postmortem=after_rollback), b.settings, begun.release)
    assert controller.run() is Stage.ROLLED_BACK
    data = json.loads((tmp_path / DATA).read_bytes())
    assert data["triggers"][0] == "nondeterminism"
    outcomes = {q["name"]: q["outcome"] for q in data["questions"]}
    assert outcomes["exploration_noise"] == "fail"
    assert outcomes["tensor_shape"] == "not_checkable"
    assert np.isfinite(data["canary"]["differing"])


def test_the_command_says_what_it_found(
    good: Artefact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "postmortem", "--dir", str(tmp_path)]) == 65
    assert "nothing to examine" in capsys.readouterr().err
    roll_back(tmp_path, good, {"drift": {"seats.land": 0.9}})
    assert main(["deploy", "postmortem", "--dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "Data distribution shift   fail" in said
    assert (tmp_path / PAGE).exists()
