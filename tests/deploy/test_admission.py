"""Admission: a good policy passes every check, and each fault is found by the check that is there for it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.cli import main
from td_loop.deploy.admission.record import is_verified, keep_record, record_path, require_verified
from td_loop.deploy.admission.table import verification_text
from td_loop.deploy.admission.verify import Verification, verify
from td_loop.errors import DataError, Refused
from td_loop.games.served import Inputs, Tensor
from td_loop.policy import runtimes
from td_loop.policy.artefact import Artefact
from td_loop.policy.runner import Runner
from tests.deploy import bad_artefacts as bad
from tests.deploy.toy_policy import run_numpy, run_torch, write_good
from tests.deploy.toy_served import CONTRACT, GAME


def open_toy(artefact: Artefact, runtime: str = "onnxruntime") -> Runner:
    """The toy network is not the package's own, so the tests bring its numpy and torch."""
    if runtime == "onnxruntime":
        return runtimes.open_runner(artefact)
    run = {"numpy": run_numpy, "torch": run_torch}[runtime]
    return lambda inputs: run(artefact.weights, inputs)


def ticking(seconds: Iterator[float]) -> Callable[[], float]:
    """A clock on which each call takes what `seconds` says: it is read twice a call."""
    now = 0.0
    reads = itertools.count()

    def clock() -> float:
        nonlocal now
        if next(reads) % 2:
            now += next(seconds)
        return now

    return clock


def examine(artefact: Artefact, **options: Any) -> Verification:
    options = {"open_runner": open_toy, "clock": ticking(itertools.repeat(0.001)), **options}
    return verify(artefact, GAME, **options)


def failed(artefact: Artefact, **options: Any) -> set[str]:
    return {check.name for check in examine(artefact, **options).failed}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return write_good(tmp_path_factory.mktemp("artefact") / "policy.onnx")


def test_a_good_policy_passes_every_check(good: Artefact) -> None:
    found = examine(good)
    assert [c.name for c in found.checks if not c.passed] == []
    assert [c.name for c in found.checks] == [
        "output shape",
        "finite outputs",
        "parity: stored",
        "parity: numpy",
        "parity: torch",
        "determinism",
        "exploration noise",
        "legality",
        "padding",
        "lengths",
        "warm-up",
        "latency p50",
        "latency p99",
    ]
    values = {c.name: c.values for c in found.checks}
    assert values["legality"]["actions"] > 100
    assert values["lengths"]["lengths"] == CONTRACT.limits["S"] + 4
    assert values["padding"]["paddings"] > 10


FAULTS: list[tuple[Callable[[Artefact, Path], Artefact], set[str]]] = [
    (bad.always_nan, {"finite outputs", "legality", "padding", "lengths", "parity: stored"}),
    (bad.noisy, {"exploration noise", "determinism", "parity: stored"}),
    (bad.left_in_training, {"exploration noise", "determinism"}),
    (bad.wrong_shape, {"output shape", "parity: stored", "legality"}),
    (bad.padding_bug, {"padding"}),
    (lambda good, path: bad.fixed_length(good, path, 4), {"lengths"}),
    (bad.collapsed, {"parity: numpy", "parity: torch"}),
]


@pytest.mark.parametrize(("make", "names"), FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_fault_fails_the_check_that_is_there_for_it(
    good: Artefact, tmp_path: Path, make: Callable[[Artefact, Path], Artefact], names: set[str]
) -> None:
    assert failed(make(good, tmp_path / "bad.onnx")) >= names


def test_noise_is_named_by_its_operator(good: Artefact, tmp_path: Path) -> None:
    found = examine(bad.noisy(good, tmp_path / "noisy.onnx"))
    check = next(c for c in found.checks if c.name == "exploration noise")
    assert "RandomNormalLike" in check.figure
    assert check.values["differing"] > 0


def test_faults_of_weights_and_of_rare_states_pass(good: Artefact, tmp_path: Path) -> None:
    """These are what a canary is for."""
    when = bad.When("seats", "land", 1000.0)
    for name, artefact in {
        "worse": bad.worse(good, tmp_path / "worse.onnx"),
        "collapsed": bad.always_stays(good, tmp_path / "collapsed.onnx"),
        "rare NaN": bad.nan_when(good, tmp_path / "nan.onnx", when),
        "rarely slow": bad.slow(good, tmp_path / "slow.onnx", when=when),
    }.items():
        assert failed(artefact) == set(), name


def test_a_rare_fault_shows_where_its_condition_holds(good: Artefact, tmp_path: Path) -> None:
    when = bad.When("seats", "land", 1000.0)
    case = good.meta.cases[0]
    rare = {**case.inputs, "seats": np.where(np.arange(5) == 0, np.float32(2000), case.inputs["seats"])}
    nan = open_toy(bad.nan_when(good, tmp_path / "nan.onnx", when))
    slow = open_toy(bad.slow(good, tmp_path / "slow.onnx", products=1, when=when))
    np.testing.assert_allclose(nan(case.inputs), case.logits, atol=1e-5)
    assert np.isnan(nan(rare)).all()
    np.testing.assert_allclose(slow(rare), run_numpy(good.weights, rare), rtol=1e-4)


def test_latency_is_that_of_the_best_round(good: Artefact) -> None:
    warm_up, slow, fast = [0.001] * 10, [0.02] * 500, [0.002] * 500
    once_fast = next(
        c for c in examine(good, clock=ticking(iter([*warm_up, *slow[:151], *fast, *slow]))).checks[::-1]
    )
    assert once_fast.values == {"p99_ms": pytest.approx(2)}
    assert failed(good, clock=ticking(iter([*warm_up, *slow * 3]))) == {"latency p50", "latency p99"}


def test_a_few_slow_decisions_fail_p99_alone(good: Artefact) -> None:
    mostly_fast = [0.001] * 10 + ([0.001] * 49 + [0.05]) * 30
    assert failed(good, clock=ticking(iter(mostly_fast))) == {"latency p99"}
    assert failed(good, clock=ticking(iter(mostly_fast)), sla_ms=60) == set()


def test_a_policy_that_never_warms_up_fails(good: Artefact) -> None:
    assert "warm-up" in failed(good, clock=ticking(itertools.repeat(0.02)))
    warming = itertools.chain([0.5] * 9, itertools.repeat(0.001))
    assert failed(good, clock=ticking(warming)) == set()


class Flickering:
    """A runtime that answers a little differently every third time."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.calls = runner, itertools.count()

    def __call__(self, inputs: Inputs) -> Tensor:
        return self.runner(inputs) + np.float32(1e-6) * (next(self.calls) % 3 == 0)


def test_answers_that_differ_in_one_bit_are_not_deterministic(good: Artefact) -> None:
    def open_flickering(artefact: Artefact, runtime: str = "onnxruntime") -> Runner:
        runner = open_toy(artefact, runtime)
        return Flickering(runner) if runtime == "onnxruntime" else runner

    assert failed(good, open_runner=open_flickering) == {"determinism"}


def test_illegal_actions_are_counted(good: Artefact) -> None:
    class Greedy(type(GAME)):  # type: ignore[misc]
        def choose(self, state: Any, seat: int, inputs: Inputs, logits: Tensor) -> Any:
            return np.array([[seat, int(state.troops[seat]) + 1]])

    check = next(c for c in verify(good, Greedy(), open_runner=open_toy).checks if c.name == "legality")
    assert not check.passed
    assert check.values["illegal"] == check.values["actions"]


def test_a_runtime_that_raises_fails_its_check_alone(good: Artefact) -> None:
    def open_without_torch(artefact: Artefact, runtime: str = "onnxruntime") -> Runner:
        if runtime == "torch":
            raise RuntimeError("no kernel\nfor this")
        return open_toy(artefact, runtime)

    found = examine(good, open_runner=open_without_torch)
    assert [c.name for c in found.failed] == ["parity: torch"]
    assert found.failed[0].figure == "RuntimeError: no kernel for this"


def test_the_table_fits_eighty_columns(good: Artefact, tmp_path: Path) -> None:
    for artefact in (good, bad.always_nan(good, tmp_path / "a_rather_long_name_of_a_policy.onnx")):
        for line in verification_text(examine(artefact)).splitlines():
            assert len(line) <= 80


def test_a_record_is_of_the_bytes_that_passed(good: Artefact, tmp_path: Path) -> None:
    artefact = write_good(tmp_path / "policy.onnx")
    assert not is_verified(artefact.path)
    with pytest.raises(Refused, match=r"has not been verified.*td-loop deploy verify"):
        require_verified(artefact)
    assert keep_record(examine(artefact)) == record_path(artefact.path)
    assert is_verified(artefact.path)
    require_verified(artefact)
    other = write_good(artefact.path, seed=1)
    assert not is_verified(artefact.path)
    with pytest.raises(Refused, match="has changed since"):
        require_verified(other)


def test_a_record_can_stand_in_another_folder(good: Artefact, tmp_path: Path) -> None:
    keep_record(examine(good), tmp_path)
    assert is_verified(good.path, tmp_path)
    assert not is_verified(good.path)


@pytest.mark.parametrize("content", ["", "[]", '{"format_version": 2}', "{}"])
def test_a_damaged_record_is_none(good: Artefact, tmp_path: Path, content: str) -> None:
    record_path(good.path, tmp_path).write_text(content)
    assert not is_verified(good.path, tmp_path)
    with pytest.raises(Refused):
        require_verified(good, tmp_path)


def test_a_record_of_a_failed_one_is_none_and_an_earlier_one_goes(good: Artefact, tmp_path: Path) -> None:
    assert keep_record(examine(good), tmp_path) is not None
    slow = examine(good, clock=ticking(itertools.repeat(1.0)))
    assert keep_record(slow, tmp_path) is None
    assert not is_verified(good.path, tmp_path)


def test_a_missing_artefact_is_not_verified(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        is_verified(tmp_path / "no.onnx")


@pytest.fixture
def toy_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td_loop.deploy.admission.verify.open_runner", open_toy)
    monkeypatch.setattr(verify, "__kwdefaults__", {**verify.__kwdefaults__, "open_runner": open_toy})  # type: ignore[attr-defined]


@pytest.mark.usefixtures("toy_runtimes")
def test_the_command_leaves_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artefact = write_good(tmp_path / "policy.onnx")
    command = ["deploy", "verify", str(artefact.path), "--game", CONTRACT.game, "--sla-ms", "10000"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "policy.onnx.verified.json" in said
    assert max(map(len, said.splitlines()[:-1])) <= 80
    assert is_verified(artefact.path)
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sha256"] == artefact.sha256


@pytest.mark.usefixtures("toy_runtimes")
def test_the_command_names_what_failed(good: Artefact, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artefact = bad.padding_bug(good, tmp_path / "padded.onnx")
    command = ["deploy", "verify", str(artefact.path), "--game", CONTRACT.game, "--sla-ms", "10000", "--json"]
    assert main(command) == Refused.exit_code == 8
    out, err = capsys.readouterr()
    assert "padding" in json.loads(out)["failed"]
    assert "failed" in err
    assert "padding" in err
    assert not is_verified(artefact.path)


def test_the_command_refuses_what_is_no_artefact_of_the_game(
    good: Artefact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no.onnx").write_text("no")
    assert main(["deploy", "verify", str(tmp_path / "no.onnx"), "--game", CONTRACT.game]) == 65
    assert main(["deploy", "verify", str(good.path), "--game", "tests.toy_game:GAME"]) == 64
    assert "no policy can be served for it" in capsys.readouterr().err
