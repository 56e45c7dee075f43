"""The three commands of the loop have the same defaults, whichever door they come through."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from td_loop.cli import fit, prepare
from td_loop.cli.run import run
from td_loop.cli.tournament import tournament_command
from td_loop.fit.config import FitConfig
from td_loop.loop.config import RunConfig
from td_loop.loop.layout import AttemptPaths
from td_loop.loop.stages import fit_argv, gate_argv, prepare_argv
from td_loop.prepare.config import PrepareConfig

AT = Path("/run")


def passed(stage: str) -> set[str]:
    """Names of the flags that the loop gives a stage."""
    argv = {"prepare": prepare_argv, "fit": fit_argv}[stage]
    config = RunConfig.from_flags({"replays": AT, "cache_dir": AT, "budget_evals": 1})
    words = argv(config, 0, AT, AttemptPaths(AT, "iter0"), AT)
    return {word[2:].replace("-", "_") for word in words if word.startswith("--")}


def default(command: Any, name: str) -> Any:
    return inspect.signature(command).parameters[name].default


@pytest.mark.parametrize(("stage", "command"), [("prepare", prepare.prepare_command), ("fit", fit.fit_command)])
def test_a_stage_alone_has_the_defaults_of_the_loop(stage: str, command: Any) -> None:
    ours = RunConfig().hyperparams()
    shared = passed(stage) & (ours.keys() | {"lr"})
    assert len(shared) > 8
    for name in shared:
        given = default(command, name)
        if given is None and hasattr(FitConfig, name):  # only told apart from what a person gives
            given = getattr(FitConfig, name)
        if name == "workers":
            assert given is None
            continue
        assert given == ours["lr_peak" if name == "lr" else name], name


def test_all_that_the_loop_passes_a_stage_takes() -> None:
    for stage, command in (("prepare", prepare.prepare_command), ("fit", fit.fit_command)):
        assert passed(stage) <= inspect.signature(command).parameters.keys()


def test_all_that_the_loop_asks_of_a_match_a_tournament_takes() -> None:
    for budget in ("1e", "1s"):
        config = RunConfig.from_flags({"gate": "sprt", "gate_budget": budget})
        words = gate_argv(config, 0, AT, AT, AttemptPaths(AT, "iter0"))
        flags = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
        assert len(flags) == 8
        assert flags <= inspect.signature(tournament_command).parameters.keys()


def test_the_configs_agree_with_the_loop_too() -> None:
    ours = RunConfig().hyperparams()
    for kind in (PrepareConfig, FitConfig):
        for name in ours.keys() & vars(kind).keys() - {"workers"}:
            assert getattr(kind, name) == ours[name], name
    assert PrepareConfig(weights=AT, out=AT).budget.seconds == ours["budget_s"]
    assert default(run, "workers") is default(prepare.prepare_command, "workers") is None
