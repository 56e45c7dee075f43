"""Admission of the built-in game's own network, in all three runtimes, and of what `bad_artefacts` makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from td_loop.cli import main
from td_loop.deploy.admission.record import is_verified
from td_loop.deploy.postmortem.artefact import examine_artefact
from td_loop.games.orbit_wars.game import GAME
from td_loop.policy.artefact import Artefact
from td_loop.policy.export import export_untrained
from tests.deploy import bad_artefacts as bad


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return export_untrained(tmp_path_factory.mktemp("policy") / "policy.onnx", GAME)


def test_a_network_that_has_learnt_nothing_is_sound_all_the_same(
    good: Artefact, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a busy machine, too: what it may take is not asked here."""
    assert main(["deploy", "verify", str(good.path), "--sla-ms", "10000"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in said[:-1])
    assert is_verified(good.path)


FAULTS: list[tuple[Callable[[Artefact, Path], Artefact], set[str]]] = [
    (bad.worse, set()),
    (bad.collapsed, set()),
    (bad.always_stays, set()),
    (bad.noisy, {"exploration noise", "determinism", "parity: stored", "padding"}),
    (bad.left_in_training, {"exploration noise", "determinism", "parity: stored", "padding"}),
    (bad.padding_bug, {"padding"}),
    (bad.wrong_shape, {"output shape", "parity: stored"}),
]


@pytest.mark.parametrize(("make", "names"), FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_what_needs_no_game_is_found_without_one(
    good: Artefact, tmp_path: Path, make: Callable[[Artefact, Path], Artefact], names: set[str]
) -> None:
    made = make(good, tmp_path / "bad.onnx")
    examined = examine_artefact(made.path, made.sha256)
    assert {c.name for c in examined.failed} == names
    assert not examined.beyond


def test_the_column_that_makes_an_answer_nan_is_named(good: Artefact, tmp_path: Path) -> None:
    when = bad.When("nodes", "ships", good.meta.reference["nodes.ships"].high + 0.01)
    made = bad.nan_when(good, tmp_path / "nan.onnx", when)
    assert [name for name, _ in examine_artefact(made.path, made.sha256).beyond] == ["nodes.ships"]


def test_a_fault_of_rare_states_leaves_the_usual_ones_alone(good: Artefact, tmp_path: Path) -> None:
    made = bad.slow(good, tmp_path / "slow.onnx", when=bad.When("nodes", "ships", 99.0))
    assert examine_artefact(made.path, made.sha256).failed == []
