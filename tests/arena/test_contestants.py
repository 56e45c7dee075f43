"""contestants: what a person types, and who is the same as whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from td_loop.arena.contestants import Contestant, Kind, line_up, parse
from td_loop.errors import DataError, UsageError, WeightsError
from td_loop.files import sha256
from td_loop.games.base import Budget
from tests.arena.agents import write_agent
from tests.toy_game import GAME

Weights = Callable[[int], Path]


def who(spec: str, **aliases: Path) -> Contestant:
    return parse(spec, GAME, Budget(seconds=0.2), aliases)


def test_weights(weights: Weights) -> None:
    path = weights(1)
    found = who(str(path))
    assert (found.label, found.kind, found.source) == ("w1", Kind.WEIGHTS, str(path))
    assert found.identity == f"weights:{sha256(path)}@0.2s"
    assert found.budget == Budget(seconds=0.2)


@pytest.mark.parametrize(
    ("suffix", "budget"),
    [("0.05s", Budget(seconds=0.05)), ("1s", Budget(seconds=1.0)), ("400e", Budget(evals=400))],
)
def test_a_budget_of_its_own_makes_another_contestant(weights: Weights, suffix: str, budget: Budget) -> None:
    found = who(f"{weights(1)}@{suffix}")
    assert found.budget == budget
    assert found.label == f"w1@{suffix}"
    assert found.identity.endswith(f"@{suffix}")


def test_a_label_and_an_alias(weights: Weights) -> None:
    assert who("mine=iter3", iter3=weights(1)).label == "mine"
    assert who("iter3", iter3=weights(1)).identity == who(str(weights(1))).identity


def test_files_and_folders_of_outside_agents(tmp_path: Path) -> None:
    file = who(str(write_agent(tmp_path, "one")))
    assert (file.label, file.kind) == ("one", Kind.OUTSIDE)
    folder = tmp_path / "strong"
    folder.mkdir()
    (folder / "main.py").write_text("def agent(obs): return []\n")
    before = who(str(folder))
    assert before.label == "strong"
    (folder / "table.bin").write_bytes(b"x")
    assert who(str(folder)).identity != before.identity  # what it imports and reads is part of it


def test_built_in_players() -> None:
    assert who("rusher") == Contestant("rusher", Kind.BUILT_IN, "rusher", "built-in:rusher")


def test_the_same_one_twice_plays_once_and_labels_are_told_apart(weights: Weights, tmp_path: Path) -> None:
    copy = tmp_path / "copy.npz"
    copy.write_bytes(weights(1).read_bytes())
    found, notes = line_up([who(str(weights(1))), who(str(copy)), who(f"w1={weights(2)}"), who("idle")])
    assert [c.label for c in found] == ["w1#1", "w1#2", "idle"]
    assert notes == ["copy is the same as w1: it plays once"]


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("nobody", UsageError, "nor one of .*random.*rusher"),
        ("rusher@1s", UsageError, "only weights have a budget"),
        ("gone.npz", WeightsError, "no such file"),
        ("gone.py", DataError, "cannot be read"),
        (".", DataError, "has no main.py"),
    ],
)
def test_what_cannot_play_is_refused(spec: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        who(spec)
